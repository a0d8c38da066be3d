"""The parts of a training setup, each built and checked in a module of its own; `fedcm.runs.build` joins them."""
