"""Statements that change tables, and what a server says that they left."""
