"""What differential privacy costs: ε of noisy rounds, the noise that a budget needs, and the plan of an experiment."""
