"""A site's side of a run: training on its own data."""
