"""How much a client computes in a round, and how fast."""
