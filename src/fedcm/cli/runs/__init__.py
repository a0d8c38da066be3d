"""Commands of runs: `fedcm run`, `resume`, `runs`, `verify`, and `worker`, the hidden command of a worker process."""
