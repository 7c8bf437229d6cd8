"""How far a connection to a MySQL or MariaDB server is protected, by the names of MySQL's own clients."""

from enum import StrEnum


class SslMode(StrEnum):
    """Whether a connection is encrypted, and how far the server's certificate is checked."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    """Encrypted if the server offers it, unchecked: no protection from whoever answers in its place."""
    REQUIRED = "REQUIRED"
    """Encrypted, unchecked: no protection from whoever answers in its place, either."""
    VERIFY_CA = "VERIFY_CA"
    """By an authority that is trusted."""
    VERIFY_IDENTITY = "VERIFY_IDENTITY"
    """By an authority that is trusted, and for the host's name."""
