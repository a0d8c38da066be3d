"""Run a kit in the foreground or as a service, and keep the engine's processes in order."""
