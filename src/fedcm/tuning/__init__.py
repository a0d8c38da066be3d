"""Search for good settings of each algorithm, by a validation metric and never by the test set.

space       the settings to tune, from `path=low..high:log` to the values of a trial
plan        one experiment and one space per algorithm; plan_file: tune.json, which refuses another plan
objective   the score of a trial, from its validation metrics
trials      a trial and its record in trials.jsonl
sampler     the next settings and the hopeless trials, by Optuna
search      run trials in parallel until the budget is used
winners     the best trial of each algorithm, and its runs with further seeds
estimate    the time before it runs
session     a whole tuning, from its plan to its winners
"""
