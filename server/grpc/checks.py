"""Whether a pump may be served as it is configured; nothing is started for that."""

from importlib.util import find_spec

from ...protocol.errors import BadParameterError, ConfigError
from ...sql.database import Database
from ..certificates import require_authorities, require_certificate
from ..network import address_text, is_loopback, refuse_open
from .config import PumpConfig


def require_safe(config: PumpConfig) -> None:
    """Refuse a pump beyond loopback that does not know who calls, and certificates that cannot be used: ConfigError.

    Refuse one also where the library that it needs is not installed.
    """
    if find_spec("grpc") is None:
        raise ConfigError(f"the {config.title} needs grpcio: pip install 'sluice-cdc[server,tidb]'")
    databases_of(config)
    if config.host:
        refuse_open(
            config.host,
            _missing(config),
            insecure=config.insecure,
            advice="Set them, so that TiDB and Drainer have to have certificates",
        )
    if config.tls_cert is not None and config.tls_key is not None:
        require_certificate(config.tls_cert, config.tls_key, (config.key_of("tls_cert"), config.key_of("tls_key")))
    if config.tls_ca is not None:
        require_authorities(config.tls_ca, config.key_of("tls_ca"))


def databases_of(config: PumpConfig) -> list[Database]:
    """Return the servers to ask for the time. Raises ConfigError."""
    password = config.tidb_password.get_secret_value()
    try:
        return [Database.of(url, password=password) for url in config.tidb_sql]
    except BadParameterError as error:
        raise ConfigError(f"{config.key_of('tidb_sql')}: {error}") from None


def doubts(config: PumpConfig) -> list[str]:
    """Say that other hosts may write and read without a proof of who they are, when they may."""
    missing = _missing(config)
    if not config.host or is_loopback(config.host) or not missing:
        return []
    text = (
        f"any machine that reaches the pump at {address_text((config.host, config.port))} writes to it and reads all of"
        f" it: set {' and '.join(missing)}"
    )
    return [text]


def _missing(config: PumpConfig) -> list[str]:
    return [config.key_of(field) for field in ("tls_cert", "tls_ca", "allowed") if not getattr(config, field)]
