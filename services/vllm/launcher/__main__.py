"""`python -m launcher [serve|plan|check|fetch|health|status|last-words|settings]`."""

import sys

from launcher.cli import main

if __name__ == "__main__":
    sys.exit(main())
