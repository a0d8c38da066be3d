"""Algorithms that evaluate gradients at perturbed points, to find flat minima."""
