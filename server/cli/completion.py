"""``sluice completion``: what makes a shell complete commands."""

import argparse
from functools import partial
from typing import Any

from .common import add_command

SHELLS = ("bash", "zsh", "tcsh")


def add_completion_command(commands: Any, command_line: argparse.ArgumentParser) -> None:
    """Add the command to those of the command line, which is what it completes."""
    completion = add_command(
        commands,
        "completion",
        partial(completion_command, command_line),
        "print a completion script for a shell",
        "Print a script that makes a shell complete commands, options and files. The shell has to load it.",
        "sluice completion bash > /etc/bash_completion.d/sluice",
        "sluice completion zsh > ~/.zfunc/_sluice    # a folder in $fpath",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))


def completion_command(command_line: argparse.ArgumentParser, options: Any) -> int:
    """Print what makes a shell complete commands."""
    import shtab

    print(shtab.complete(command_line, options.shell))
    return 0
