"""The search of a tuning in its report: charts of the trials on the page and as pictures, and tables."""
