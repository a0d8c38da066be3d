"""The command line: one module per command. `main` puts them together; `terminal` prints tables and progress."""
