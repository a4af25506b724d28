"""Run as a program of its own, to be killed: collects on a simulated target.

python -m tests.kit.driver RUNS TARGET SEARCH CONFIGS
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit.studies import collected, wanted

SPACES, BATCH = ("layout",), 4


def main() -> None:
    runs, target, search, configs = sys.argv[1:]
    [one] = collected(Path(runs), wanted(target, configs=int(configs), search=search, spaces=SPACES, batch=BATCH))
    print(one.ending, one.configs, one.new)


if __name__ == "__main__":
    main()
