"""``python -m pyramidion`` is ``pyramidion``."""

from pyramidion.cli import run

if __name__ == "__main__":
    run()
