#!/usr/bin/env python3
"""Write manual pages: one for each program and each command, from the parsers of their command lines.

    make man

It needs the programs' libraries, and for those of a node no others. The same parsers give the same bytes: no page has a
date.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PARSERS: Final = {
    "kubelet-authenticator": ("authenticator.commands", "parser"),
    "node-access": ("node_access.client.cli", "parser"),
    "node-access-bastions": ("signer.bastions.entry", "make_parser"),
    "node-access-containers": ("node_access.containers.cli", "_parser"),
    "node-access-gateway": ("signer.gateway.entry", "make_parser"),
    "node-access-sessions": ("node_access.cli", "_parser"),
    "node-attestation-controller": ("signer.cli", "_parser"),
}
"""For each program the module and the function that makes its whole parser."""
ALIASES: Final = {"kubectl-node_access": "node-access", "kubectl-node_attestation": "node-attestation-controller"}
"""Programs with the page of another."""
_COLUMNS: Final = "10000"
"""argparse wraps usage at this width; the pages' reader wraps it again."""
_CHARACTERS: Final = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
"""What roff would change (groff_char(7))."""


@dataclass(frozen=True, slots=True)
class Page:
    """One command, or a whole program."""

    name: str
    """Of the file: the words with hyphens between."""
    summary: str
    parser: argparse.ArgumentParser
    related: tuple[str, ...]
    """Names of the pages above and below."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages; returns the exit code."""
    options = _parser().parse_args(arguments)
    os.environ |= {"COLUMNS": _COLUMNS, "NO_COLOR": "1"}
    options.output.mkdir(parents=True, exist_ok=True)
    for program in options.programs or sorted(PARSERS):
        for page in pages(program):
            (options.output / f"{page.name}.1").write_text(render(page), encoding="ascii")
        for alias in (name for name, target in ALIASES.items() if target == program):
            (options.output / f"{alias}.1").write_text(f".so man1/{program}.1\n", encoding="ascii")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="man", description="Writes manual pages of the programs.")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", choices=[*sorted(PARSERS), []], help="default: all")
    return parser


def pages(program: str) -> Iterator[Page]:
    """The program's page, and one for each of its commands."""
    module, function = PARSERS[program]
    make: Callable[[], argparse.ArgumentParser] = getattr(importlib.import_module(module), function)
    parser = make()
    yield from _pages(program, _sentence(parser.description or ""), parser, ())


def _pages(name: str, summary: str, parser: argparse.ArgumentParser, above: tuple[str, ...]) -> Iterator[Page]:
    below = list(_commands(parser))
    yield Page(name, summary, parser, (*above, *(f"{name}-{command}" for command, _, _ in below)))
    for command, text, child in below:
        yield from _pages(f"{name}-{command}", text, child, (name,))


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, summary and parser of each command below."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                yield name, _sentence(texts.get(name, child.description or "")), child


def _sentence(text: str) -> str:
    """As a page's summary: one line, without the name before it and the full stop at its end."""
    return re.sub(r"^``[\w -]+``: ", "", " ".join(text.split())).removesuffix(".")


def render(page: Page) -> str:
    """The page in roff with the macros of man(7)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parser = page.parser
    lines = [
        f'.TH "{escaped(page.name.upper())}" 1 "" "{escaped(project["name"])} {escaped(project["version"])}"',
        *(".nh", ".ad l"),
        *(".SH NAME", f"{escaped(page.name)} \\- {prose(page.summary)}"),
        *(".SH SYNOPSIS", escaped(" ".join(parser.format_usage().removeprefix("usage: ").split()))),
    ]
    if parser.description:
        lines += [".SH DESCRIPTION", *_paragraphs(parser.description)]
    commands = list(_commands(parser))
    if commands:
        lines.append(".SH COMMANDS")
        for name, text, _ in commands:
            lines += [".TP", f"\\fB{escaped(name)}\\fR", prose(f"{text}.")]
    lines += _options(parser)
    if parser.epilog:
        lines += [".SH NOTES", ".nf", *(prose(line) for line in parser.epilog.splitlines()), ".fi"]
    lines.append(".SH SEE ALSO")
    if page.related:
        lines.append(",\n".join(f"\\fB{escaped(name)}\\fR(1)" for name in page.related))
        lines.append(".PP")
    lines.append(escaped(project["urls"]["Documentation"]))
    return "\n".join(lines) + "\n"


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Positional arguments and options in their groups, each with its help."""
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        shown = [
            action
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)
        ]
        if not shown:
            continue
        title = "arguments" if group.title == "positional arguments" else group.title or "options"
        yield f".SH {escaped(title.upper())}"
        yield from _paragraphs(group.description or "")
        for action in shown:
            value = "" if action.nargs == 0 else formatter._format_args(action, _metavar(action))
            names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings)
            yield from (".TP", f"{names} \\fI{escaped(value)}\\fR".strip() if value else names)
            yield prose(formatter._expand_help(action)) if action.help else "\\&"


def _metavar(action: argparse.Action) -> str:
    """The value's name where the action gives none, as in argparse's own help."""
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip()) if text.strip() else ()):
        if number:
            yield ".PP"
        yield prose(" ".join(paragraph.split()))


def prose(text: str) -> str:
    """A line of text. Between double backticks it is bold, as in the docstrings that some descriptions are."""
    parts = text.split("``")
    made = "".join(f"\\fB{escaped(part)}\\fR" if number % 2 else escaped(part) for number, part in enumerate(parts))
    made = re.sub(r"(?<=\d)\.(?=\d)", r".\:", made)  # OIDs may be longer than a line
    return rf"\&{made}" if made.startswith(".") else made


def escaped(text: str) -> str:
    """Text that roff prints as it stands, in ASCII."""
    return "".join(
        _CHARACTERS.get(one, one) if one.isascii() else rf"\[u{ord(one):04X}]" for one in text.replace("\t", " ")
    )


if __name__ == "__main__":
    sys.exit(main())
