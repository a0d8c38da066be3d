"""`fedcm theory rates`: measured exponents beside the proven ones.

experiment, plan        what an experiment is, and all of them
step_grids              the step sizes that are tried
measurement, parallel   measure the points of an experiment, on all cores
slopes                  a slope on log-log axes, its interval and the verdict
ratios                  FedAvg's error divided by FedCM's
bound_ratios            the theorem's bounds beside the measured errors
tables, markdown, figures, output    the results as files
"""
