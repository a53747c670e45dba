"""What commands print: for people as wide as their terminal, or as files are read; for programs JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

WIDTH_OF_FILES: Final = 140
"""What is no terminal has no width; by itself rich takes 80, and folds names in the middle, where nobody finds them."""


def print_for_people(show: Callable[[Console], None]) -> None:
    """Print what ``show`` puts on the console."""
    show(Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES))


def print_as_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print it for programs."""
    json.dump(document, sys.stdout, indent=2)
    print()
