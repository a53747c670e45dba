"""The packages that an installation of the product brings along, as they are installed here."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PRODUCT: Final = "capi-node-attestation"
RUNTIME_EXTRAS: Final = ("controller", "tpm", "aws", "gcp", "gateway")
"""All of them; what is for tests is the distribution ``capi-node-attestation-testing``."""
CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"


class NotInstalled(Exception):
    """A package that is needed at run time is not installed, so that its metadata cannot be read."""


class MalformedConstraint(ValueError):
    """A line of constraints.txt is more or less than a name, a version and perhaps a marker."""


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package."""

    name: str
    """Canonical."""
    version: str
    metadata: importlib.metadata.PackageMetadata
    requires: frozenset[str]
    """Names of the packages that it brings along."""


def runtime_packages() -> Mapping[str, Package]:
    """The product and all that it brings along with every runtime extra, by name, in the order of names.

    Raises:
        NotInstalled: one is missing.
    """
    wanted = {PRODUCT: set(RUNTIME_EXTRAS)}
    waiting = [PRODUCT]
    found: dict[str, Package] = {}
    while waiting:
        name = waiting.pop()
        distribution = _distribution(name)
        needed = [
            (canonicalize_name(each.name), each.extras)
            for each in requirements_here(distribution.requires or (), wanted[name])
        ]
        found[name] = Package(
            name, distribution.version, distribution.metadata, frozenset(other for other, _ in needed)
        )
        for other, extras in needed:
            if other not in wanted or not extras <= wanted[other]:
                wanted.setdefault(other, set()).update(extras)
                waiting.append(other)
    return dict(sorted(found.items()))


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise NotInstalled(f"{name} is not installed; see `make provision` for what tpm2-pytss needs") from error


def requirements_here(lines: Iterable[str], extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Those that hold on this platform and Python, with these extras."""
    environment = {name: str(value) for name, value in default_environment().items()}
    environments = [{**environment, "extra": extra} for extra in ("", *sorted(extras))]
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
            yield requirement


def constrained_versions(text: str) -> Mapping[str, str]:
    """Name and version of every line of constraints.txt that holds here.

    Raises:
        MalformedConstraint: a line of another form, an address, or a name twice.
    """
    versions: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(" ") or "://" in line or "@" in line:
            raise MalformedConstraint(f"not a name and a version: {line!r}")
        requirement = Requirement(line)
        (pin,) = requirement.specifier or (None,)
        if pin is None or pin.operator != "==" or requirement.extras or "*" in pin.version:
            raise MalformedConstraint(f"not one version: {line!r}")
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        name = canonicalize_name(requirement.name)
        if name in versions:
            raise MalformedConstraint(f"{name} twice")
        versions[name] = pin.version
    return versions
