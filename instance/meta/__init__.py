"""Subscriptions and cursors, kept over restarts."""
