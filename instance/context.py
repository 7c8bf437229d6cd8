"""Which destination the running code works for, so that everything it logs can say so."""

from contextvars import ContextVar

current_destination: ContextVar[str] = ContextVar("current_destination", default="")
"""Name of the destination; set at the start of each thread and task that serves one."""
