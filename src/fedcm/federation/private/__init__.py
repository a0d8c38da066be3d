"""Differential privacy in a federation: the server adds noise to the sum of reports, or each site adds a share."""
