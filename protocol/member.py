"""The members of a merged stream: what they can be called, and how many there can be."""

from typing import Final

from .errors import ConfigError

MAX_MEMBERS: Final = 64
"""Of a merged stream, those that have left it included: their places stay."""
NAME: Final = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""What the name of a member looks like, as a regular expression."""
KEYS: Final = "sluice.group."
"""What the keys of a member's settings begin with: its name and a dot follow."""


def name_again(name: str) -> ConfigError:
    """Return why the name of a member that was removed is not that of another one."""
    return ConfigError(
        f"member {name} was removed, and clients have its last place: a name is not used again, choose another"
    )
