"""How the scenes of the demo look."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def print_heading(console: Console, title: str, text: str) -> None:
    """A rule with a title, and a sentence about what follows."""
    console.rule(title, style="dim", align="left")
    print_indented(console, f"{text}\n", 0)


def print_indented(console: Console, text: str, columns: int = 2) -> None:
    """Print the markup with every line indented, and without blanks at the ends of lines."""
    for line in Text.from_markup(text).wrap(console, console.width - columns):
        line.rstrip()
        console.print(Text(" " * columns if line else "").append_text(line))
