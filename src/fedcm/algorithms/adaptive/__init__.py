"""Algorithms that adapt the step of each coordinate or matrix."""
