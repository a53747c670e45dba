"""What whoever waits is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]
"""Tells what is being done, in a few words."""
