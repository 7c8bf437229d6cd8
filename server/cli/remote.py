"""Calls from the command line to a running server."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3

from ...protocol.errors import ConfigError, SluiceError, SourceError, sentences

DEFAULT_URL = "http://127.0.0.1:11180"
CONNECT_TIMEOUT = 5.0  # seconds
READ_TIMEOUT = 60.0  # seconds, longer than a call may wait for changes

ADVICE = {
    "bad-parameter": "Correct the argument; --help describes each.",
    "unauthorized": "The command line takes a token from $SLUICE_TOKEN or $SLUICE_TOKEN_FILE.",
    "unknown-destination": "sluice status lists those configured there.",
    "destination-stopped": "sluice status says why it does not run.",
    "not-subscribed": "sluice clients lists those that have subscribed; let its consumer do so first.",
    "unknown-batch": "sluice status shows those that are outstanding.",
    "unknown-snapshot": "sluice snapshot lists those of the client.",
    "snapshot-running": "Let the client take it, or cancel it: sluice snapshot … --cancel ID.",
    "gap": "Copy the named changes if you need them, then confirm the gap: sluice gaps confirm.",
}
"""What to do about problems whose advice in the HTTP API names its calls, by commands."""


class RemoteError(SluiceError):
    """The server refused a call; ``problem`` is its type."""

    type = "remote"

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(message)
        self.problem = problem


class Remote:
    """A server's HTTP API. Calls raise RemoteError when it refuses, SourceError when it cannot be reached."""

    def __init__(self, url: str, *, token: str = "", ca: Path | None = None) -> None:
        """Make calls to the server at `url`, trusting the authority in the file `ca`; raises ConfigError."""
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not the URL of a server; write http://host:port or https://host:port")
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise ConfigError(f"cannot load the authority {ca}: {error.strerror}; name a PEM file with --ca") from None
        self.url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._pool = urllib3.PoolManager(
            ssl_context=context,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT),
            retries=False,
        )

    def request(
        self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None, accept: str = "*/*"
    ) -> urllib3.BaseHTTPResponse:
        """Make a call and return the whole response."""
        try:
            response = self._pool.request(
                method,
                self.url
                + path
                + ("?" + "&".join(f"{k}={quote(v, safe='')}" for k, v in query.items()) if query else ""),
                headers=self._headers | {"accept": accept},
                json=body,
            )
        except urllib3.exceptions.ReadTimeoutError:
            raise SourceError(
                f"the server at {self.url} did not answer within {READ_TIMEOUT:g} s; it may still do what it was asked:"
                " sluice status shows that"
            ) from None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise SourceError(self._unreachable(error)) from None
        if response.status >= 400:
            raise _refusal(response)
        return response

    def call(self, method: str, *path: str, query: dict[str, str] | None = None) -> Any:
        """Make a call without body; the parts after the first are quoted. Return the JSON of the answer."""
        return self.request(method, "/".join([path[0], *(quote(part, safe="") for part in path[1:])]), query).json()

    def client_call(
        self,
        destination: str,
        client_id: int,
        name: str,
        query: dict[str, str] | None = None,
        body: Any = None,
        accept: str = "*/*",
    ) -> urllib3.BaseHTTPResponse:
        """Make one of the calls of a client."""
        path = f"/v1/destinations/{quote(destination, safe='')}/clients/{client_id}/{name}"
        return self.request("POST", path, query, body, accept)

    def _unreachable(self, error: Exception) -> str:
        """Say why there was no answer, and what to do."""
        cause = error.args[0] if isinstance(error, urllib3.exceptions.SSLError) else error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {self.url} is not trusted: {cause.verify_message}; name the file of the authority"
                " that signed it with --ca"
            )
        if isinstance(cause, ssl.SSLError):
            return f"{self.url} does not speak TLS: {cause.reason}; if it has no certificate, its URL is http://…"
        if isinstance(error, urllib3.exceptions.ProtocolError) and self.url.startswith("http://"):
            return f"{self.url} ended the connection without an answer; if it has a certificate, its URL is https://…"
        reason = getattr(cause, "strerror", None) or str(error).rpartition(": ")[2]
        return f"no server answers at {self.url}: {reason}; start one with sluice serve, or name it with --url"


def _refusal(response: urllib3.BaseHTTPResponse) -> RemoteError:
    try:
        problem = response.json()
        advice = ADVICE.get(problem.get("type"), problem.get("advice") or "")
        text = sentences(problem.get("detail") or "", advice)
    except (ValueError, AttributeError):
        return RemoteError(f"the server answered {response.status} {response.reason}", "")
    if problem.get("active"):
        text += f" It is at {problem['active']}: name that with --url."
    return RemoteError(text, problem.get("type", ""))
