"""Algorithms without a server: nodes average their parameters with their neighbours in a graph."""
