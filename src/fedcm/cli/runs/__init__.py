"""Commands of one run: `fedcm run`, `resume`, `runs`, and `worker`, the hidden command of a worker process."""
