"""Outputs of other packages: see `sluice.server.outputs.api`."""
