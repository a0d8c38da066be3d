"""`make soak` runs this folder; it has no tests."""

collect_ignore_glob = ["*.py"]
