"""``node-attestation-controller node-access preflight CLUSTER``: other ways into the machines than SSH certificates."""

from __future__ import annotations

import argparse
import asyncio
import enum
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from signer.cli.arguments import cluster_key
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.controller.named_cluster import require_cluster
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.ssh.ways_in.findings import WayIn, WaysIn
from signer.ssh.ways_in.reading import WaysInReader
from signer.ssh.ways_in.status import STOCK_SSHD
from signer.store.cluster_api import discover_cluster_api

EXIT_NEEDS_ATTENTION: Final = 3
EXIT_NOT_KNOWN: Final = 5


class Verdict(enum.Enum):
    """What follows from everything that was read; the value is for scripts."""

    NONE_DECLARED = "NoneDeclared"
    DECLARED = "Declared"
    NOT_KNOWN = "NotKnown"
    """Nothing is declared for certain, and something is possible or could not be read."""


_EXIT_CODES: Final = {
    Verdict.NONE_DECLARED: 0,
    Verdict.DECLARED: EXIT_NEEDS_ATTENTION,
    Verdict.NOT_KNOWN: EXIT_NOT_KNOWN,
}
_WORDS: Final = {
    Verdict.NONE_DECLARED: "No object that was read declares another way in.",
    Verdict.DECLARED: "There are other ways in than certificates.",
    Verdict.NOT_KNOWN: "Whether there are other ways in is not known.",
}


@dataclass(frozen=True, slots=True)
class WaysInFound:
    """What the command shows."""

    cluster: ClusterKey
    ways: WaysIn

    @property
    def verdict(self) -> Verdict:
        """See there."""
        if self.ways.declared:
            return Verdict.DECLARED
        return Verdict.NOT_KNOWN if self.ways.possible or self.ways.unread else Verdict.NONE_DECLARED


def run_preflight(options: argparse.Namespace) -> int:
    """Run ``node-access preflight`` with its parsed arguments."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)

    async def connected() -> WaysInFound:
        access = await management_access(options)
        async with Client(access.connection, token_source=access.token_source) as management:
            return await read_ways_in(management, key)

    found = asyncio.run(connected())
    print_result(options.output, lambda: ways_in_as_json(found), lambda console: show_ways_in(found, console))
    return _EXIT_CODES[found.verdict]


async def read_ways_in(management: Client, key: ClusterKey) -> WaysInFound:
    """Look for other ways in.

    Raises:
        NoSuchCluster: the Cluster does not exist.
        ApiError: it cannot be read.
    """
    version = await discover_cluster_api(management)
    await require_cluster(management, version.clusters, key)
    return WaysInFound(key, await WaysInReader(management, version, key).read())


def show_ways_in(found: WaysInFound, console: Console) -> None:
    """Print them as text."""
    ways = found.ways
    console.print(Text.assemble("Cluster ", (str(found.cluster), "bold"), "\n"))
    _show("Declared", [_line(one) for one in ways.declared], console)
    _show("Possible", [_line(one) for one in ways.possible], console)
    _show("Not known", [str(one) for one in ways.unread], console)
    _show("Not visible from the management cluster", (STOCK_SSHD, *ways.unseen), console)
    console.print(Text(_WORDS[found.verdict], style="green" if found.verdict is Verdict.NONE_DECLARED else "yellow"))


def _line(one: WayIn) -> str:
    return f"{one}. To close it: {one.close}"


def _show(title: str, lines: Sequence[str], console: Console) -> None:
    if not lines:
        return
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    console.print()


def ways_in_as_json(found: WaysInFound) -> dict[str, Any]:
    """Everything as JSON. Fields are only ever added."""
    ways = found.ways
    return {
        "cluster": str(found.cluster),
        "verdict": found.verdict.value,
        "declared": [_way(one) for one in ways.declared],
        "possible": [_way(one) for one in ways.possible],
        "notKnown": [{"what": printable(one.what), "message": printable(one.why)} for one in ways.unread],
        "notVisible": [STOCK_SSHD, *ways.unseen],
    }


def _way(one: WayIn) -> dict[str, Any]:
    return {
        "kind": printable(one.kind),
        "names": [printable(name) for name in one.names],
        "objects": one.count,
        "field": printable(one.field),
        "message": printable(one.says),
        "toClose": printable(one.close),
    }
