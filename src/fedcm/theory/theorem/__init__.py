"""Theorem 1 of the FedCM paper.

bounds              its quantities and bounds, as stated and with the proof's constants
proof_step_sizes    the step sizes that its proof chooses
averages            the sequence z_t and its weighted average
simulation          rounds of any algorithm, over many replicates and step sizes at once
"""
