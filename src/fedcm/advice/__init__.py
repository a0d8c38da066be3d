"""Suggest α and η_l of FedCM for an experiment.

probe            short trials of FedCM on the experiment's data
suggestion       the suggestion that follows from their results

Import from the modules: this package imports none of them, so that a command can start without loading torch.
"""
