"""The command ``sluice``: a module for each family of commands."""

import sys


def main() -> None:
    """Run the command ``sluice``; say what to install where only the client is."""
    try:
        from . import command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "sluice":
            raise
        print(f"sluice: {error.name} not found: pip install 'sluice-cdc[server]'", file=sys.stderr)
        sys.exit(2)
    command.main()
