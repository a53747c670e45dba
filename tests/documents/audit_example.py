"""The recorded audit log, for the examples in ``docs/audit.md``: printed by the program itself."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from functools import partial
from typing import Final

from rich.console import Console

from attestors.registry import Registry
from signer.audit.authenticity import NoControllerKey
from signer.audit.findings import Broken
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.verification import Finding, decisions, verify
from signer.cli.audit import concerns_node, show_described, show_findings
from signer.configuration import operator_settings, read_attestors
from tests.documents.markdown import ROOT

WIDTH: Final = 110
_FOLDER: Final = ROOT / "fixtures" / "audit" / "v1"
_LOG: Final = _FOLDER / "audit.log"


def verified(*, with_config: bool = True) -> str:
    """What ``audit verify`` prints."""
    configured = read_attestors(_FOLDER / "config.yaml") if with_config else {}
    plugins = ReplayAttestors(Registry(), partial(operator_settings, configured))

    async def collect() -> list[Finding]:
        return [finding async for finding in verify([_LOG], plugins, NoControllerKey())]

    return _printed(lambda console: show_findings(asyncio.run(collect()), console))


def shown() -> str:
    """What ``audit show --node worker-1`` prints."""
    read = [one for one in decisions([_LOG]) if not isinstance(one, Broken)]
    found = [(place, line) for place, line in read if concerns_node(line, "worker-1")]
    return _printed(lambda console: show_described(found, console))


def _printed(show: Callable[[Console], None]) -> str:
    output = io.StringIO()
    show(Console(file=output, width=WIDTH, highlight=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines()).strip("\n") + "\n"
