"""What verification finds in a log whose lines are not valid decisions."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from attestors.registry import Registry
from signer.audit.authenticity import NoControllerKey
from signer.audit.chain import START, ChainedLine, Unreadable, read_line, read_lines, start_content
from signer.audit.findings import Broken, MacsNotChecked, Noticed
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.verification import Finding, verify
from signer.configuration import operator_settings


async def found_in(*paths: Path) -> list[Finding]:
    plugins = ReplayAttestors(Registry(), partial(operator_settings, {}))
    found = [one async for one in verify(paths, plugins, NoControllerKey())]
    return [one for one in found if not isinstance(one, MacsNotChecked)]


def broken(*paths: Path) -> list[str]:
    """What makes the log one that is not in order."""
    found = asyncio.run(found_in(*paths))
    return [one.why for one in found if isinstance(one, Broken) and "not a valid decision" not in one.why]


def noticed(*paths: Path) -> list[Noticed]:
    return [one for one in asyncio.run(found_in(*paths)) if isinstance(one, Noticed)]


def numbers(path: Path) -> list[int]:
    lines = [line for line in read_lines(path) if not isinstance(line, Unreadable)]
    return [line.content["number"] for line in lines if "number" in line.content]


def start_lines(first: bytes, until: int) -> bytes:
    """A log of start lines behind the genuine ``first``: they need no MAC, so anybody can write them."""
    line = read_line(first)
    assert isinstance(line, ChainedLine)
    link, written = line.link, [first]
    while link.sequence < until:
        written.append(link.next_line(START, start_content("")))
        link = link.after(written[-1])
    return b"".join(one + b"\n" for one in written)
