"""What can be configured of the HTTP API."""

import ipaddress
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from ... import __version__
from ...instance.settings import FolderPath, names, setting
from ..front import FrontConfig, Host


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return value


class HttpConfig(FrontConfig):
    """The configuration of the HTTP API."""

    title: ClassVar[str] = "HTTP API"

    # The HTTP API.

    host: Host = setting("sluice.http.host", "127.0.0.1")
    """Address to listen on. To serve other hosts, set `0.0.0.0`, which needs a certificate and credentials."""
    port: int = setting("sluice.http.port", 11180, ge=0, lt=1 << 16)
    """Port to listen on. 0 takes any free port."""
    tls_cert: FolderPath | None = setting("sluice.http.tlsCert", None)
    """PEM file with the server's certificate and the intermediate certificates. Empty: no TLS. When the files change,
    new connections use their new content. If Sluice cannot use it, it logs an error."""
    tls_key: FolderPath | None = setting("sluice.http.tlsKey", None)
    """PEM file with the private key of the certificate, not encrypted."""
    max_header: int = setting("sluice.http.maxHeader", 16 * 1024, ge=1 << 10, le=1 << 20, unit="bytes")
    """Maximum size of a request's header, including its URL."""
    max_url: int = setting("sluice.http.maxUrl", 8 * 1024, ge=256, le=1 << 20, unit="bytes")
    """Maximum size of a URL."""
    max_body: int = setting("sluice.http.maxBody", 1 << 20, ge=1 << 10, le=1 << 30, unit="bytes")
    """Maximum size of a request's body. For a call that needs no credentials the limit is 8192 bytes at most."""
    header_timeout: float = setting("sluice.http.headerTimeout", 10.0, gt=0, le=3600, unit="s")
    """Timeout for the header of a request, and for the TLS handshake before it."""
    request_timeout: float = setting("sluice.http.requestTimeout", 30.0, gt=0, le=3600, unit="s")
    """Timeout for a whole request to arrive. It does not limit the response."""
    proxies: Annotated[tuple[str, ...], BeforeValidator(names), AfterValidator(_networks)] = setting(
        "sluice.http.proxies", ()
    )
    """Addresses or networks of reverse proxies in front of this server, separated by commas. Sluice trusts their
    `X-Forwarded-For`, so that it counts failed logins against the caller and not against the proxy."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("sluice.http.tlsCert and sluice.http.tlsKey belong together; give both or neither")
        return self

    def announcement(self, address: str) -> str:
        """Say that the server serves, and where its calls are described."""
        return f"sluice {__version__} serves {address} (all calls: {address}/docs)"

    def url(self, host: str) -> str:
        """Return the URL by which those know the API who reach it at ``host``; empty: where it listens."""
        host = host or self.host
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_cert else 'http'}://{name}:{self.port}"
