"""How much is tried of what has no end: little by `make test`, for which a person waits, much by `make test-all`."""

import os

THOROUGH = bool(os.environ.get("TESTS_THOROUGH"))  # `sluice` would take a name that begins as its own do for a setting


def times(usual: int, thorough: int) -> int:
    """Return how often to try something: the first number in `make test`, the second in `make test-all`."""
    return thorough if THOROUGH else usual
