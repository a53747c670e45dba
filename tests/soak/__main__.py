"""``python -m tests.soak [--minutes N] [--seed N] [--shards N] [--json FILE]``.

Exit code 0: no problems; 1: problems were found; 2: no kube-apiserver.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tests.soak.soak import Plan, soak
from tests.support.binaries import MissingPart


def main() -> int:
    """Run the soak test."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=20.0, metavar="N")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="default: a random seed, which is printed")
    parser.add_argument(
        "--shards",
        type=int,
        default=None,
        metavar="N",
        help="run all controllers with N shards, or with leader election if N is 0 (default: change during the run)",
    )
    parser.add_argument("--short", action="store_true", help="run the short form: fewer API servers, faster faults")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the controllers' logs there")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    console = Console(highlight=False)
    console.print(f"Seed {seed}; starting API servers …")
    seconds = options.minutes * 60
    plan = Plan.short(seed, seconds) if options.short else Plan(seconds, seed)
    if options.shards is not None:
        plan = replace(plan, sharings=(options.shards,))
    try:
        outcome = soak(plan, partial(console.print, soft_wrap=True), options.logs)
    except MissingPart as missing:
        console.print(f"The soak test needs a real control plane: {missing}")
        return 2
    console.print(outcome.table())
    for problem in outcome.problems:
        console.print(escape(problem), style="red")
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.as_json(), indent=2))
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
