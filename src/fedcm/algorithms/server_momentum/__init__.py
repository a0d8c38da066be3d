"""Algorithms with momentum at the server."""
