"""``python -m tests.supply_chain.lowest FILE``: writes constraints with the lowest versions that pyproject.toml allows.

Every direct dependency of the product is at its lower bound, or at what another package's own minimum forces; the
output names those. Test tools, and what dependencies bring along, are at their tested versions; what a dependency that
is so old refuses of these is left to pip.

Exit codes: 0 written, 1 a bound does not do, 2 wrong usage, 3 pip could not be asked.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.supply_chain.dependencies import CONSTRAINTS, PRODUCT, constrained_versions, requirements_here

EXTRAS: Final = ("controller", "aws", "gcp", "gateway")
"""What the quick tests need: without its library, the agent plugin of the TPM attestor is left out."""
EXIT_BOUND: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_ASKED: Final = 3
_SECONDS: Final = 600


class UnfitBound(ValueError):
    """A lower bound that cannot be installed; the message says why."""


class NotAsked(Exception):
    """pip gave no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version of a package."""

    version: Version
    requires: tuple[str, ...]
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What one package wants of another."""

    by: str
    """With its version."""
    requirement: Requirement

    @property
    def name(self) -> str:
        """Of the other, canonical."""
        return canonicalize_name(self.requirement.name)

    def __str__(self) -> str:
        return f"{self.by} wants {self.requirement.specifier}"


@dataclass(frozen=True, slots=True)
class Lowest:
    """The versions to install."""

    bounds: Mapping[str, Version]
    """The lower bound of each direct dependency."""
    direct: Mapping[str, Version]
    """Their versions."""
    raised: Mapping[str, Wish]
    """Whose minimum forces a version above the bound."""
    tested: Mapping[str, str]
    """Versions of all else."""
    left: Mapping[str, Wish]
    """What refuses a tested version."""

    def lines(self) -> Iterator[str]:
        """Of the constraints file."""
        yield from (f"{name}=={version}" for name, version in sorted({**self.tested, **self.direct}.items()))

    def report(self) -> Iterator[str]:
        """What differs from the bounds, and from the tested versions."""
        for name, wish in sorted(self.raised.items()):
            yield f"{name} is {self.direct[name]} and not {self.bounds[name]}: {wish}"
        for name, wish in sorted(self.left.items()):
            yield f"{name} is left to pip: {wish}"
        at_bounds = len(self.direct) - len(self.raised)
        yield f"{len(self.direct)} direct dependencies, {at_bounds} of them at their lower bounds"


def direct_requirements(pyproject: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Those of the product and of :data:`EXTRAS` that hold here."""
    project = pyproject["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    return tuple(requirements_here(lines))


def lower_bound(requirement: Requirement) -> Version:
    """The lowest version that it allows.

    Raises:
        UnfitBound: it names none.
    """
    found = [each.version for each in requirement.specifier if each.operator in {">=", "==", "~="}]
    bounds = [Version(text) for text in found if not text.endswith(".*")]
    if not bounds or not requirement.specifier.contains(max(bounds), prereleases=True):
        raise UnfitBound(f"{requirement} names no lowest version")
    return max(bounds)


def settle(
    wishes: Sequence[Wish],
    tested: Mapping[str, str],
    ask: Callable[[Mapping[str, Version]], Mapping[str, Release]],
    requires: Callable[[str], Iterable[str]],
) -> Lowest:
    """Raise the lower bounds among ``wishes``, those that come from the product, until every minimum is met.

    Args:
        wishes: of the product and of its tests.
        tested: the tested versions.
        ask: gives these versions of direct dependencies.
        requires: what the tested version of a package wants.

    Raises:
        UnfitBound: a bound names no version, or one that was withdrawn, or that another package refuses.
    """
    bounds: dict[str, Version] = {}
    for wish in wishes:
        if wish.by == PRODUCT:
            bounds[wish.name] = max(lower_bound(wish.requirement), bounds.get(wish.name, Version("0")))
    direct = dict(bounds)
    raised: dict[str, Wish] = {}
    left: dict[str, Wish] = {}
    while True:
        kept = {name: version for name, version in tested.items() if name not in direct and name not in left}
        releases = dict(ask(direct))
        for name, release in releases.items():
            if release.withdrawn:
                raise UnfitBound(f"{name} {release.version} was withdrawn by those who made it: raise its lower bound")
        releases |= {name: Release(Version(version), tuple(requires(name))) for name, version in kept.items()}
        unmet = [wish for wish in _all_wishes(wishes, releases) if not _met(wish, releases)]
        refused = {wish.name: wish for wish in unmet if wish.name not in direct}
        if refused:
            left |= refused
        elif unmet:
            for wish in unmet:
                if not _allows(wish, direct[wish.name]):  # another wish may have met it just now
                    direct[wish.name], raised[wish.name] = _higher(wish, direct[wish.name]), wish
            left.clear()
        else:
            return Lowest(bounds, direct, raised, kept, left)


def _higher(wish: Wish, version: Version) -> Version:
    """The lowest version that meets a wish which this one does not meet."""
    try:
        least = lower_bound(wish.requirement)
    except UnfitBound:
        least = version
    if least <= version:
        raise UnfitBound(f"{wish.name} {version} does not do: {wish}")
    return least


def _met(wish: Wish, releases: Mapping[str, Release]) -> bool:
    """Whether it is, or nothing is known of what it asks for."""
    release = releases.get(wish.name)
    return release is None or _allows(wish, release.version)


def _allows(wish: Wish, version: Version) -> bool:
    return wish.requirement.specifier.contains(version, prereleases=True)


def _all_wishes(wishes: Sequence[Wish], releases: Mapping[str, Release]) -> Iterator[Wish]:
    """These, and those of all that they bring along: the product's own first, which a user meets as well."""
    waiting = deque(wishes)
    seen: dict[str, set[str]] = {}
    while waiting:
        wish = waiting.popleft()
        yield wish
        name, extras = wish.name, wish.requirement.extras
        if name not in releases or (name in seen and extras <= seen[name]):
            continue
        seen.setdefault(name, set()).update(extras)
        by = f"{name} {releases[name].version}"
        waiting += [Wish(by, each) for each in requirements_here(releases[name].requires, seen[name])]


def read_report(text: str) -> Mapping[str, Release]:
    """Read pip's report of an installation.

    Raises:
        NotAsked: it is none.
    """
    try:
        return {
            canonicalize_name(each["metadata"]["name"]): Release(
                Version(each["metadata"]["version"]),
                tuple(each["metadata"].get("requires_dist", ())),
                each["is_yanked"],
            )
            for each in json.loads(text)["install"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise NotAsked("pip gave no report") from error


def ask_pip(versions: Mapping[str, Version]) -> Mapping[str, Release]:
    """Ask the package index, by pip, installing nothing.

    Raises:
        NotAsked: pip could not, or there is no such version.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--report", str(report), *(f"{name}=={version}" for name, version in versions.items())]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NotAsked(f"pip took more than {_SECONDS} seconds") from error
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            raise NotAsked(said[-1][:300] if said else f"pip ended with {done.returncode}")
        return read_report(report.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Write the file."""
    if len(arguments) != 1:
        print("usage: python -m tests.supply_chain.lowest FILE", file=sys.stderr)
        return EXIT_USAGE
    pyproject = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    wishes = [
        *(Wish(PRODUCT, each) for each in direct_requirements(pyproject)),
        *(Wish("the tests", each) for each in requirements_here(pyproject["dependency-groups"]["dev"])),
    ]
    tested = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    try:
        lowest = settle(wishes, tested, ask_pip, _installed_requires)
    except UnfitBound as error:
        print(error, file=sys.stderr)
        return EXIT_BOUND
    except NotAsked as error:
        print(f"the lowest versions are not known: {error}", file=sys.stderr)
        return EXIT_NOT_ASKED
    Path(arguments[0]).write_text("".join(f"{line}\n" for line in lowest.lines()), encoding="utf-8")
    print("\n".join(lowest.report()))
    return 0


def _installed_requires(name: str) -> Iterable[str]:
    """Of a tested version, which is installed here, or needed for nothing here."""
    try:
        return importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
