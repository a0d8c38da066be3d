"""The generated parts of docs/results.md and docs/in-practice.md; `results_tables.py` writes them."""
