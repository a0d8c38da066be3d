"""The processes that share a run.

connection   rank 0's side: start workers, hand them the run, watch them, end them
worker       the workers' side
pool         worker processes on this machine
torchrun     processes that torchrun started, on one machine or many
handshake    how rank 0 and the workers agree on a run before its first round
"""
