"""Algorithms that correct local steps for the difference between client and global gradients."""
