"""``python -m pyramidion`` is ``pyramidion``."""

import sys

from pyramidion.cli import main

if __name__ == "__main__":
    sys.exit(main())
