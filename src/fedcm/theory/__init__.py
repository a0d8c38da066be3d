"""The convergence theorem of the FedCM paper, made checkable: a table of contents.

known_problem.py        what a federated problem with known constants is
quadratics.py, regression.py, saturating.py               four of them: ridge and logistic regression share a file
losses.py, dealt_digits.py    the two regressions' losses; the real digits, dealt out by label
draws.py                cohorts and gradient noise, from fedcm.rng
walk.py                 rounds of any algorithm of the project, over many replicates and step sizes at once
averages.py             z_t and the averages that the theorem speaks of
bounds.py               the theorem's quantities and its bounds
proof_steps.py          the step sizes that its proof chooses
slopes.py               a slope on log-log axes, its interval, and the verdict
points.py, plan.py      `fedcm theory rates`: what an experiment is, and all of them
step_grids.py, rates.py       the step sizes that are tried, and the measuring
ratios.py, ratios_figure.py   FedAvg's error over FedCM's, on the same draws
rates_bounds.py, rates_table.py, rates_markdown.py, rates_figure.py       what came out, beside what was proven
"""
