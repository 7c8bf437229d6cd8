"""Conditions on rows and masks: read, compiled and judged, for any source."""
