"""Algorithms that use a global momentum in every local step."""
