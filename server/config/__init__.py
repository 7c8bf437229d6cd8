"""The configuration of the server and its destinations."""

from .folder import Configuration
from .settings import ServerConfig

__all__ = ["Configuration", "ServerConfig"]
