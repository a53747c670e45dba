"""``python -m tests.documents.addresses``: write the addresses of ``[project.urls]`` wherever they stand.

``pyproject.toml`` is the one place where a person changes them. The other distribution's ``pyproject.toml`` has them as
they were written last, so that the writer knows what to replace.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.documents.markdown import ROOT

SOURCE: Final = "pyproject.toml"
WRITTEN: Final = "signer/testing/pyproject.toml"
PLACES: Final = (
    "deploy/helm/capi-node-attestation/Chart.yaml",
    "deploy/monitoring/README.md",
    "deploy/monitoring/alerts.yaml",
    "docs/troubleshooting.md",
    "mkdocs.yml",
    "signer/model/documentation.py",
    WRITTEN,  # last: after an interruption the others are still found
)
"""Every file with an address outside of generated parts."""
LABELS: Final = frozenset({"Documentation", "Source"})
_ADDRESS: Final = re.compile(r"https://[a-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._~-]+)*", re.ASCII)


class UnfitAddress(ValueError):
    """``[project.urls]`` cannot be written elsewhere; the message says why."""


def addresses(root: Path, name: str) -> Mapping[str, str]:
    """The addresses in a ``pyproject.toml``, by label.

    Raises:
        UnfitAddress: one is missing, is none, or is there twice.
    """
    found: dict[str, str] = tomllib.loads((root / name).read_text(encoding="utf-8"))["project"].get("urls", {})
    if set(found) != LABELS or len(set(found.values())) != len(LABELS):
        raise UnfitAddress(f"{name}: [project.urls] must have two different addresses, {' and '.join(sorted(LABELS))}")
    for label, address in found.items():
        if not _ADDRESS.fullmatch(address):
            raise UnfitAddress(
                f"{name}: {label} is not an address with https and without a slash at its end: {address!r}"
            )
    return found


def replaced(text: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The text with the new addresses. One address may begin with the other."""
    labels = {address: label for label, address in old.items()}
    longest_first = sorted(labels, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: new[labels[match[0]]], text)


def write(root: Path = ROOT) -> list[Path]:
    """Write them; returns the files that changed.

    Raises:
        UnfitAddress: the addresses cannot be written.
    """
    old, new = addresses(root, WRITTEN), addresses(root, SOURCE)
    changed = []
    for name in PLACES:
        path = root / name
        before = path.read_text(encoding="utf-8")
        after = replaced(before, old, new)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


if __name__ == "__main__":
    try:
        for one in write():
            print(one.relative_to(ROOT))
    except UnfitAddress as error:
        sys.exit(f"addresses: {error}")
