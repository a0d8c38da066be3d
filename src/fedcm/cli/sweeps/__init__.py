"""Commands of many runs: `fedcm compare`, `sweep` and `reproduce`. `session` is the part that they share."""
