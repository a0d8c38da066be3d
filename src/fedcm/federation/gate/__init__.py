"""The server's gate: who may connect, and as whom. It runs in the engine's main process of the server."""
