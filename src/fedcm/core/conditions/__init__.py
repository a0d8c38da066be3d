"""The conditions under which clients take part: when they are available, and who reports before the deadline."""
