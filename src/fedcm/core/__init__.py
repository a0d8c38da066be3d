"""Federated optimisation itself: the algorithm contract, local steps, the exact mean, the round loop.

algorithm       the six functions and four messages that an algorithm consists of
contract        checks that an algorithm follows the contract
problem         a torch model and its loss as functions of one flat vector
losses          the default losses, per batch and per example
model_mode      training and eval mode of a model's modules
local           the local SGD loop of one client, and of several clients at once; optimisers and factors of the steps
participation   which clients form the cohort of a round
schedule        the learning rates of a round
schedule_kinds  factors of a learning rate over rounds or local steps
executor        the interface between the round loop and whatever runs the clients
exact_mean      the mean of reports, with the same bits in any order
evaluation      loss and metrics on the test data and the validation data
scoring         the metrics of an evaluation
stopping        when a run ends early, and which round was the best
round_loop      the round loop
metrics         the metrics of one round

Import from the modules: this package imports none of them, so that a command can start without loading torch.
"""
