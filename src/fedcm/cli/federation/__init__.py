"""`fedcm federation`: one module per command."""
