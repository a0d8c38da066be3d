"""Algorithms that solve the consensus problem with dual variables."""
