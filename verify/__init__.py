"""A second decoder beside the product: ``sluice verify`` compares the two. Needs ``sluice-cdc[verify]``."""
