"""Outputs to files in a folder."""
