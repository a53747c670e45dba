"""``python -m tests.fuzz [TARGET ...] [--seconds N | --runs N]``: exit code 1 if a parser breaks its contract."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.fuzz.engine import AtherisMissing, Effort, fuzz, load

EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_ATHERIS: Final = 3
_FINDINGS: Final = Path("build") / "fuzz"


def main(arguments: list[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=int, default=10, help="for each target (default %(default)s)")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes (default: another each time)")
    parser.add_argument("--findings", type=Path, default=_FINDINGS, help="where inputs go that break a contract")
    parser.add_argument("--list", action="store_true", help="only list the targets")
    given = parser.parse_args(arguments)
    try:
        table = load()
    except AtherisMissing as missing:
        print(f"{missing}", file=sys.stderr)
        return EXIT_NO_ATHERIS
    unknown = sorted(set(given.targets) - set(table.TARGETS))
    if unknown:
        print(f"no target is called {unknown[0]}; --list shows them", file=sys.stderr)
        return EXIT_USAGE
    names = given.targets or list(table.TARGETS)
    if given.list:
        print("\n".join(names))
        return 0
    effort = Effort(given.runs or -1, 0 if given.runs else given.seconds, given.seed)
    broken = [name for name in names if not _kept(table, name, effort, given.findings / name)]
    print(f"{len(names) - len(broken)} of {len(names)} targets kept their contract")
    return EXIT_BROKEN if broken else 0


def _kept(table: object, name: str, effort: Effort, findings: Path) -> bool:
    kept = fuzz(table, name, effort, findings)
    print(f"{name:<28}{'kept' if kept else f'BROKEN: see {findings}'}", flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
