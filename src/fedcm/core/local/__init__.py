"""The local steps of clients: one client at a time, or a stack of clients at once."""
