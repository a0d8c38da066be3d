"""Commands that create a federation and give its parties certificates."""
