"""Clients that others have written for Canal."""
