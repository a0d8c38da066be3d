"""Commands of an admin: run experiments over sites."""
