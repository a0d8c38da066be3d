"""Check a kit before it is used: credentials, connection, data and limits."""
