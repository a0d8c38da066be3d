"""A real federation: sites with their own data, keys and failures, over NVIDIA FLARE."""
