"""Algorithms whose server averages the clients' movements, and whose clients take plain or proximal steps."""
