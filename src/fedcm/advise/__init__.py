"""Suggest α and η_l of FedCM for an experiment: `probe` runs short trials, `advice` draws conclusions from them.

Import from the modules: this package imports none of them, so that a command can start without loading torch.
"""
