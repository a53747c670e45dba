"""The Machines of one Cluster, as ``status CLUSTER`` prints them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from signer.explain.fleet import AuthorityLife, ClusterStatus
from signer.explain.machines import LastCertificate, MachineState, MachineStatus
from signer.explain.next_commands import describe_machine
from signer.model.cluster import MACHINE_KIND
from signer.model.decision import printable
from signer.model.fields import format_time

_SHORT_HASH: Final = slice(len("sha256:"), len("sha256:") + 12)
_REASON: Final = "Reason"
_MAXIMUM_COMMANDS: Final = 3
STYLES: Final = {
    MachineState.ATTESTED: "green",
    MachineState.OVERDUE: "red",
    MachineState.UNATTESTED: "red",
    MachineState.STARTING: "",
    MachineState.UNKNOWN: "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    heading: str
    text: Callable[[ClusterStatus, MachineStatus], str]
    wide: bool = False
    """Whether it is left out unless all columns are asked for."""


def _until(cluster: ClusterStatus, one: MachineStatus) -> str:
    del cluster
    return f"{one.certificate.not_after:%Y-%m-%d %H:%M}Z" if isinstance(one.certificate, LastCertificate) else ""


def _attestor(cluster: ClusterStatus, one: MachineStatus) -> str:
    del cluster
    return one.certificate.attestor if isinstance(one.certificate, LastCertificate) else ""


def _authority(cluster: ClusterStatus, one: MachineStatus) -> str:
    """The CA that signed the certificate, and whether another one signs now."""
    if not isinstance(one.certificate, LastCertificate) or not one.certificate.authority:
        return ""
    found, current = one.certificate.authority, cluster.authority
    is_former = isinstance(current, AuthorityLife) and current.client not in ("", found)
    return found[_SHORT_HASH] + (" (former)" if is_former else "")


def _ends(cluster: ClusterStatus, one: MachineStatus) -> str:
    del cluster
    return format_time(one.certificate.not_after) if isinstance(one.certificate, LastCertificate) else ""


def _authority_hash(cluster: ClusterStatus, one: MachineStatus) -> str:
    del cluster
    return one.certificate.authority if isinstance(one.certificate, LastCertificate) else ""


COLUMNS: Final = (
    Column("Machine", lambda cluster, one: printable(one.machine.name)),
    Column("Node", lambda cluster, one: one.node),
    Column("State", lambda cluster, one: one.state.value),
    Column("Until", _until),
    Column("Attestor", _attestor),
    Column("CA", _authority),
    Column("Kind", lambda cluster, one: one.machine.kind, wide=True),
    Column("Provider ID", lambda cluster, one: printable(one.machine.provider_id), wide=True),
    Column("Expiry", _ends, wide=True),
    Column("CA hash", _authority_hash, wide=True),
    Column(_REASON, lambda cluster, one: one.reason),
)
"""The reason is last: it is the only cell with a sentence, and it widens no line of a Machine without one."""
NARROW_COLUMNS: Final = tuple(column for column in COLUMNS if not column.wide)


def in_order(machines: Sequence[MachineStatus]) -> list[MachineStatus]:
    """Those that need attention first, each by name."""
    return sorted(machines, key=lambda one: (not one.needs_attention, one.machine.name, one.machine.provider_id))


def next_commands(cluster: ClusterStatus) -> Iterator[str]:
    """The commands that say more of the first Machines that need attention."""
    needy = [one for one in in_order(cluster.machines) if one.needs_attention]
    for one in needy[:_MAXIMUM_COMMANDS]:
        if one.machine.kind != MACHINE_KIND and not one.node:
            yield describe_machine(cluster.cluster, one.machine)
            continue
        subject = f"machine/{one.machine.name}" if one.machine.kind == MACHINE_KIND else f"node/{one.node}"
        yield f"node-attestation-controller explain {shlex.quote(printable(subject))} --cluster {cluster.cluster}"


def show_machines(cluster: ClusterStatus, console: Console, *, wide: bool = False) -> None:
    """Print the Machines: a table, or some lines for each where the console is too narrow for it."""
    if not cluster.machines:
        console.print("The Cluster has no Machines whose nodes run or may come.")
        return
    columns = COLUMNS if wide else NARROW_COLUMNS
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    rows = [[_cell(column, cluster, one) for column in columns] for one in in_order(cluster.machines)]
    for number, column in enumerate(columns):
        texts = [column.heading, *(row[number].plain for row in rows)]
        is_wrapped = column.heading == _REASON
        words = [word for text in texts for word in text.split()] if is_wrapped else texts
        table.add_column(column.heading, no_wrap=not is_wrapped, min_width=max(map(cell_len, words)))
    for row in rows:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(max_width=sys.maxsize)).minimum <= console.width:
        console.print(table)
        return
    for one in in_order(cluster.machines):
        cells = {column.heading: _cell(column, cluster, one) for column in columns}
        console.print(Text.assemble((cells.pop("Machine").plain, "bold"), ", ", cells.pop("State")))
        rest = "; ".join(f"{heading}: {cell.plain}" for heading, cell in cells.items() if cell)
        console.print(Padding(Text(rest), (0, 0, 0, 2)))
    console.print()


def _cell(column: Column, cluster: ClusterStatus, one: MachineStatus) -> Text:
    if column.heading != "State":
        return Text(column.text(cluster, one))
    # Nothing is green while any bootstrap token gets a certificate for any node name.
    is_green = one.state is MachineState.ATTESTED and cluster.is_open
    return Text(one.state.value, style="" if is_green else STYLES[one.state])
