"""How a parser names what runs its command, without importing it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Run: TypeAlias = Callable[[argparse.Namespace], int]
"""Runs a command, and returns its exit code."""
Load: TypeAlias = Callable[[], Run]
"""Imports what a command needs to run. A parser keeps it as ``load`` in what it has parsed."""
