"""The running process: get/ack/rollback semantics, the HTTP API, Canal's protocol, the command line."""

import sys


def main() -> None:
    """Run the command ``sluice``; say what to install where only the client is."""
    try:
        from sluice.server import cli  # noqa: PLC0415  it needs what the client does without
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "sluice":
            raise
        print(f"sluice: {error.name} not found: pip install 'sluice[server]'", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    cli.main()
