"""What a command finds: a line each, and whether all is well."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from ...instance.sources.mysql.connection import Connection


class Findings:
    """Prints findings as they come."""

    def __init__(self, console: Console) -> None:
        self.healthy = True
        """Whether nothing was wrong yet."""
        self._console = console

    def good(self, what: object, text: object) -> None:
        """Say that something is as it should be."""
        self._print("green", "good", what, text)

    def note(self, what: object, text: object) -> None:
        """Say something that is to be known."""
        self._print("yellow", "note", what, text)

    def wrong(self, what: object, text: object) -> None:
        """Say that something is not as it has to be."""
        self._print("red", "wrong", what, text)
        self.healthy = False

    def _print(self, colour: str, verdict: str, what: object, text: object) -> None:
        self._console.print(Text(f"{verdict:<5} ", style=colour) + Text(f"{what}: ", style="bold") + Text(str(text)))


def examine_password(findings: Findings, destination: str, connection: "Connection") -> None:
    """Say what protects the password of a source's account, and find wrong what will stop its login some day."""
    what = f"{destination}, password"
    if connection.exposure:
        findings.wrong(what, connection.exposure)
        return
    findings.good(what, connection.protection)
    if connection.unchecked_tls:
        findings.note(what, connection.unchecked_tls)
