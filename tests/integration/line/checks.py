from sluice.server.network import refuse_open
from tests.integration.line.config import LineConfig


def require_safe(config: LineConfig) -> None:
    refuse_open(config.host, ["a password"], insecure=config.insecure, advice="There is none")


def doubts(config: LineConfig) -> list[str]:
    return [f"anybody on this host reads the names of the destinations at port {config.port}"]
