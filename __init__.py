"""A Canal-compatible change-subscription server for MySQL and MariaDB."""

from pathlib import Path

__version__ = "0.1.0"
# In a checkout src/sluice is made of links. Modules go by the places of their files, as breakpoints and tracebacks do.
__path__.insert(0, str(Path(__file__).resolve().parent))
