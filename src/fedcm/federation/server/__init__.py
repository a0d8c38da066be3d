"""The server's side of a run: rounds over sites."""
