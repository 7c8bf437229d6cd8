"""Measurements of each stage apart, on real data: `python -m bench --help`."""
