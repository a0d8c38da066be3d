"""The command line: one module per command.

main             puts the commands together and prints errors
runs, sweeps     commands that train; catalogue: what comes with fedcm; federation: real sites
session          signals, torchrun and exit codes; options: those that several commands share
terminal         tables and progress
"""
