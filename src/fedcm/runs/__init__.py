"""A run: its folder, its checkpoints, its session and its workers.

session          Session: start or resume a run; owns lock, workers, process group and rounds
build            from an experiment to the objects that train
smoke_test       one step before a folder exists; autotune: the fastest engine settings
folder           the files of a run; archive, checkpoint, summary, overview
worker           the other side of a session; worker_pool, torchrun, handshake
progress         the progress line
"""
