"""Experiments: their schema, how they are read from TOML files and how settings are overridden.

sections      the tables of an experiment
experiment    reads, checks and writes an experiment
overrides     changes an experiment's table: another algorithm, settings from the command line
schema        reads a TOML table as a typed record
toml_values   TOML values on the command line

Import from the modules: this package imports none of them, so that a command can start without loading torch.
"""
