"""Long runs of chance: ``python -m tests.campaign --minutes 60``, or ``make campaign MINUTES=60``.

The tests that are marked `campaign`, and with them those that draw at random (`statistical`) and
the properties that hypothesis tries (`property`), run again and again until the time is over. Each
round explores by a seed of its own, which is printed with the command that repeats the round. The
exit code is 1 as soon as a round fails.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time

SEED = "PYRAMIDION_CAMPAIGN_SEED"


def examples(few: int, many: int) -> int:
    """How many examples of a property are tried: some by `make test`, many by a campaign."""
    return many if SEED in os.environ else few


def main(arguments: list[str] | None = None) -> int:
    """Run rounds until the time is over or one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--seed", type=int, help="repeat the one round of this seed")
    parser.add_argument("tests", nargs="*", help="files or folders; all without")
    given = parser.parse_args(arguments)
    end = time.monotonic() + 60 * given.minutes
    rounds = 0
    while rounds == 0 or (given.seed is None and time.monotonic() < end):
        seed = secrets.randbits(31) if given.seed is None else given.seed
        print(f"round {rounds + 1}; again: python -m tests.campaign --seed {seed}", flush=True)
        try:
            code = play(seed, given.tests, None if given.seed is not None else end)
        except subprocess.TimeoutExpired:
            print(f"the time is over within round {rounds + 1}; nothing failed before")
            return 0
        if code:
            return code
        rounds += 1
    print(f"{rounds} rounds, none failed")
    return 0


def play(seed: int, tests: list[str], end: float | None) -> int:
    """One round: the exit code of pytest."""
    kinds = "campaign or statistical or property"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "auto", "--dist", "loadscope"]
    rest = None if end is None else max(1.0, end - time.monotonic())
    command += [f"--hypothesis-seed={seed}"]
    environment = os.environ | {SEED: str(seed)}
    found = subprocess.run(
        [*command, "-m", kinds, *tests], env=environment, check=False, timeout=rest
    )
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
