"""``python -m sluice.server.cli`` is the command ``sluice``."""

from . import main

if __name__ == "__main__":
    main()
