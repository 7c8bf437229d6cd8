"""``sluice plugins``: the kinds of sources, outputs and forms that installed packages bring."""

from typing import Any

from .common import NO, add_command, out
from .findings import Findings


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    add_command(
        commands,
        "plugins",
        plugins_command,
        "list the sources, outputs and forms of installed packages",
        "List the kinds of sources, outputs and forms that installed packages bring, each with its package. The\n"
        "command imports no package. `sluice check` does, if a configuration names its kind. The exit status is 1\n"
        "when one of them cannot be used.",
        "sluice plugins",
    )


def plugins_command(options: Any) -> int:
    """List what packages bring."""
    from ...instance.plugins import FORMS, OUTPUTS, SOURCES, installed
    from ...instance.sources.kinds import CONFIGS
    from ..outputs.forms.registry import OWN
    from ..outputs.registry import KINDS

    del options
    findings = Findings(out)
    for it in installed({SOURCES: CONFIGS, OUTPUTS: KINDS, FORMS: OWN}):
        report = findings.wrong if it.trouble else findings.good
        report(f"{it.group} {it.name}".strip() or "entry points", f"{it} {it.trouble}".rstrip())
    return 0 if findings.healthy else NO
