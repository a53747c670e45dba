"""Marks and paragraphs of what ``rotate`` prints."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

YES: Final = Text("✓", style="green")
NO: Final = Text("✗", style="bold red")
UNKNOWN: Final = Text("?", style="yellow")


def paragraph(console: Console, head: str, text: str) -> None:
    """One paragraph beside its head; in one line where there is no terminal."""
    if not text:
        return
    if not console.is_terminal:
        console.print(Text(f"{head:<11}{text}"), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(min_width=10, style="bold")
    grid.add_column(overflow="fold")
    grid.add_row(escape(head), Text(text))
    console.print(grid)
