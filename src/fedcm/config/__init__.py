"""Experiments: their schema, how they are read from TOML files and how settings are overridden.

sections      the tables of an experiment and their keys
experiment    read, check and write an experiment
robustness    reject robust means and attacks that do not fit the other settings
overrides     change an experiment's table: another algorithm, other settings
bundled       the experiments that come with fedcm
schema        read a TOML table as a typed record
defaults      settings that an older run lacks
toml_values   TOML values on the command line

Import the modules one by one: this package imports none of them, so that a command can start without loading torch.
"""
