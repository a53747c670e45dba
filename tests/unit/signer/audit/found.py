"""What verification finds in a log whose lines are not valid decisions."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from attestors.registry import Registry
from signer.audit.authenticity import NoControllerKey
from signer.audit.chain import Unreadable, read_lines
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
