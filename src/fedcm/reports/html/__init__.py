"""The report's page as HTML."""
