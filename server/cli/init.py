"""``sluice init``: write a folder of configuration to begin with."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.text import Text

from ...instance.config import DESTINATION_NAME
from ...instance.files import open_private
from ...protocol.errors import ConfigError
from ..config.settings import NAMES_HAVE
from .common import DIRECTORIES, add_command, out

TEMPLATE = "example"
"""The destination of the files that come with Sluice."""


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    init = add_command(
        commands,
        "init",
        init_command,
        "write a configuration to start with",
        "Write FOLDER/canal.properties and FOLDER/DESTINATION/instance.properties. Comments in these files explain\n"
        "the keys. Existing files are not overwritten.",
        "sluice init",
        "sluice init /etc/sluice --destination shop",
    )
    folder = init.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("conf"),
        metavar="FOLDER",
        help="folder to write to (default: conf)",
    )
    folder.complete = DIRECTORIES  # type: ignore[attr-defined]  # as `shtab` reads it
    init.add_argument(
        "--destination", default=TEMPLATE, metavar="NAME", help=f"name of the destination (default: {TEMPLATE})"
    )


def init_command(options: Any) -> int:
    """Write the files, which only this user can read: the one of the destination is to hold a password."""
    name: str = options.destination
    if not re.fullmatch(DESTINATION_NAME, name):
        raise ConfigError(f"--destination: {name[:200]!r} is not a name of a destination, which {NAMES_HAVE}")
    template = files(__package__) / "conf"
    server, instance = options.folder / "canal.properties", options.folder / name / "instance.properties"
    texts = {
        server: re.sub(
            r"(?m)^canal\.destinations = .*$",
            f"canal.destinations = {name}",
            (template / "canal.properties").read_text().replace(f"conf/{TEMPLATE}", str(options.folder / name)),
        ),
        instance: (template / TEMPLATE / "instance.properties").read_text().replace(f'"{TEMPLATE}"', f'"{name}"'),
    }
    if found := [str(path) for path in texts if path.exists()]:
        raise ConfigError(f"{' and '.join(found)} already there: name another folder, or change what is there")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_private(path, "x") as file:
            file.write(text.replace("--conf conf", f"--conf {options.folder}"))
    out.print(
        Text(
            f"{server} and {instance} are written. Next:\n"
            f"  1. set canal.instance.master.address, dbUsername and dbPassword in {instance}\n"
            f"  2. sluice check --conf {options.folder}\n"
            f"  3. sluice serve --conf {options.folder}"
        )
    )
    return 0
