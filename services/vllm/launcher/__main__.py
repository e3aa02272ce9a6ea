"""`python -m launcher [serve|plan|check|fetch|health|settings]`."""

import sys

from launcher.cli import main

if __name__ == "__main__":
    sys.exit(main())
