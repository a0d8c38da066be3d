"""Batches of any structure: trees of tensors, sequences of unequal lengths, and how examples become a batch."""
