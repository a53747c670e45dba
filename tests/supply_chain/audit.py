"""``python -m tests.supply_chain.audit PIP-AUDIT``: are faults known of the tested versions?

Exit codes: 0 none is known, 1 some are, 2 wrong usage, 3 it could not be asked, about some packages or at all.
pip-audit by itself takes a package that its database does not know for one without faults.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.supply_chain.dependencies import CONSTRAINTS

EXIT_FOUND: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_ASKED: Final = 3
_SECONDS: Final = 600


class NotAsked(Exception):
    """There is no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A known fault of one package."""

    package: str
    version: str
    identifier: str
    mended_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The answer."""

    asked: int
    faults: tuple[Fault, ...]
    not_asked: tuple[str, ...]
    """Packages about which nothing was said."""


def read_answer(text: str) -> Audit:
    """Read pip-audit's JSON.

    Raises:
        NotAsked: it is none: pip-audit failed.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(text)["dependencies"]
        silent = tuple(each["name"] for each in packages if "vulns" not in each)
        faults = tuple(
            Fault(each["name"], each["version"], found["id"], tuple(found["fix_versions"]))
            for each in packages
            for found in each.get("vulns", ())
        )
    except (ValueError, KeyError, TypeError) as error:
        raise NotAsked("pip-audit gave no answer") from error
    if not packages:
        raise NotAsked("pip-audit was asked about nothing")
    return Audit(len(packages) - len(silent), faults, silent)


def ask(pip_audit: str) -> Audit:
    """Ask about every line of constraints.txt.

    Raises:
        NotAsked: pip-audit could not, which without network is the rule.
    """
    command = [pip_audit, "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAsked(f"pip-audit did not run: {type(error).__name__}") from error
    try:
        return read_answer(done.stdout)
    except NotAsked as error:
        said = done.stderr.strip().splitlines()
        raise NotAsked(f"{error}: {said[-1][:300] if said else 'it says nothing'}") from error


def report(audit: Audit) -> int:
    """Print it; returns the exit code."""
    for fault in audit.faults:
        mended = f"mended in {', '.join(fault.mended_in)}" if fault.mended_in else "not mended yet"
        print(f"{fault.package} {fault.version}: {fault.identifier}, {mended}")
    print(f"{len(audit.faults)} known faults in {audit.asked} packages")
    if audit.not_asked:
        count, shown = len(audit.not_asked), ", ".join(audit.not_asked[:5])
        said = f"not audited: {count} packages of which the database says nothing ({shown} ...)"
        print(said, file=sys.stderr)
    return EXIT_FOUND if audit.faults else EXIT_NOT_ASKED if audit.not_asked else 0


def main(arguments: Sequence[str]) -> int:
    """Ask and print."""
    if len(arguments) != 1:
        print("usage: python -m tests.supply_chain.audit PIP-AUDIT", file=sys.stderr)
        return EXIT_USAGE
    try:
        return report(ask(arguments[0]))
    except NotAsked as error:
        print(f"not audited: {error}", file=sys.stderr)
        return EXIT_NOT_ASKED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
