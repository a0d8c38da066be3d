"""The reports of one round at the server: plain or masked, checked and compared."""
