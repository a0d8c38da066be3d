"""Secure aggregation: the server learns the sum of the sites' reports and no single report.

The protocol follows Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017).
Site and server code are in `site_session` and `server_session`, without any network.
"""
