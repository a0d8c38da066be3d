"""A run: its folder, its checkpoints, its session and its workers.

session       Session: start or resume a run; owns lock, workers, process group and rounds
build         from an experiment to the objects that train
smoke_test    one step before a folder exists
autotune      the fastest engine settings, by timing
timing        the shortest time of a function, for autotune and estimates
identity      name, hash of settings and provenance: what a resume must not change
folder        the files of a run
recorder      write checkpoints, the summary and the model
checkpoint    the files of a checkpoint
summary       the scores of a run
overview      what `fedcm runs` lists
archive       where `--fresh` moves runs
evidence/     the manifest of a finished run and its verification
workers/      the processes that share a run
"""
