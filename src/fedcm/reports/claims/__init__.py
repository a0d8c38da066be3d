"""Compare runs with their uncertainty: the headline of a table, and the verdicts on the FedCM paper's claims."""
