"""Many runs from one experiment.

grid             expand a file into runs; axes: swept settings; run_names, labels
placement        the folder of each run; tasks: one per run, with its progress
preflight        reject what cannot work; estimate: the time before it runs
session          run all tasks of a sweep to their end
run_parallel     one process per run (run_process); run_sequential: one after another, under torchrun
cells            the tables that a run belongs to; paper_grids: the paper's tables
"""
