"""YAML as tests read it: PyYAML's C parser reads a rendered chart in a tenth of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final

import yaml

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def safe_load(text: str | bytes | IO[Any]) -> Any:
    """As ``yaml.safe_load``."""
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  # a safe one


def safe_load_all(text: str | bytes | IO[Any]) -> Iterator[Any]:
    """As ``yaml.safe_load_all``."""
    return yaml.load_all(text, Loader=_LOADER)
