"""Federated problems whose constants (μ, L, σ_l, σ_g) and minimum are known.

known_problem    what such a problem provides
quadratics       heterogeneous quadratics with chosen constants
regression       ridge and logistic regression, on the digits or on any features
losses, digits   the losses and the data of the two regressions
saturating       a smooth problem that is not convex
sampling         cohorts and gradient noise of every round
"""
