"""The convergence theorem of the FedCM paper, made checkable: a table of contents.

known_problem.py        what a federated problem with known constants is
quadratics.py, ridge.py, logistic.py, saturating.py       four of them
dealt_digits.py         the real digits, dealt out by label, for the two regressions
draws.py                cohorts and gradient noise, from fedcm.chance
walk.py                 rounds of any algorithm of the project, over many replicates and step sizes at once
averages.py             z_t and the averages that the theorem speaks of
bounds.py               the theorem's quantities and its bounds
proof_steps.py          the step sizes that its proof chooses
slopes.py               a slope on log-log axes, its interval, and the verdict
rates.py, plan.py       `fedcm theory rates`: what it measures, and the measuring
rates_table.py, rates_figure.py
"""
