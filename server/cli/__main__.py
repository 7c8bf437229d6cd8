"""``python -m sluice.server.cli`` is the command ``sluice``."""

from sluice.server.cli import main

if __name__ == "__main__":
    main()
