"""Outputs: subscribers that send what they are given to another system."""
