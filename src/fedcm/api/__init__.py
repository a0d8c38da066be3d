"""The public Python API. Everything here is also an attribute of `fedcm`: `fedcm.train`, `fedcm.run`, …

The commands `run`, `resume` and `advise` call these functions. `compare`, `sweep` and `reproduce` share
`fedcm.sweeps.session` with `fedcm.sweep`, `tune` shares `fedcm.tuning.session` with `fedcm.tune`, and `report` shares
`fedcm.reports.write` with `fedcm.report`.
`progress` shows progress and messages on stderr.
"""
