"""What a command finds: one line for each finding, and whether any of them failed."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from ...instance.source import Examination


class Findings:
    """Prints findings as they come."""

    def __init__(self, console: Console) -> None:
        self.healthy = True
        """Whether nothing has failed yet."""
        self._console = console

    def good(self, what: object, text: object) -> None:
        """Report something that is as it should be."""
        self._print("green", "ok", what, text)

    def note(self, what: object, text: object) -> None:
        """Report something that is worth knowing."""
        self._print("yellow", "note", what, text)

    def wrong(self, what: object, text: object) -> None:
        """Report something that would not work."""
        self._print("red", "FAIL", what, text)
        self.healthy = False

    def _print(self, colour: str, verdict: str, what: object, text: object) -> None:
        self._console.print(Text(f"{verdict:<4} ", style=colour) + Text(f"{what}: ", style="bold") + Text(str(text)))


def examine_password(findings: Findings, destination: str, source: "Examination") -> None:
    """Report what protects the password of a source's account, and fail what will stop its login one day."""
    what = f"{destination}, password"
    if source.exposure:
        findings.wrong(what, source.exposure)
        return
    findings.good(what, source.protection)
    if source.unchecked_tls:
        findings.note(what, source.unchecked_tls)
