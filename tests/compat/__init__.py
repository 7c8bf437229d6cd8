"""Whether what Sluice delivers is what stock Canal delivers of the same source."""
