"""The public Python API. Everything here is also an attribute of `fedcm`: `fedcm.train`, `fedcm.run`, …

The commands `run` and `resume` are thin layers over these functions; the others share their building blocks.
"""
