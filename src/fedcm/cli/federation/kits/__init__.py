"""Commands that check and start a kit."""
