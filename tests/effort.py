"""How much is tried of what has no end: little by `make test`, for which a person waits, much by `make test-all`."""

import os

THOROUGH = bool(os.environ.get("SLUICE_THOROUGH"))


def times(usual: int, thorough: int) -> int:
    """Return how often to try something: the first number in `make test`, the second in `make test-all`."""
    return thorough if THOROUGH else usual
