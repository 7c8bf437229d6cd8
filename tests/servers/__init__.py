"""Real database servers for tests, the demo and the benchmarks."""

from tests.servers.server import ALL, CI, Server, ServerError

__all__ = ["ALL", "CI", "Server", "ServerError"]
