"""Sources of other packages: see `sluice.instance.sources.api`."""
