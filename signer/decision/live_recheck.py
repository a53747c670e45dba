"""What our caches lack is never a denial: before a request is refused, the API server itself is asked.

Another replica may have issued a credential a moment ago, a person may have deleted a record or corrected a Machine to
let a node in, and one collection's watch may hang while the others go on. What a refusal rests upon is therefore looked
at once more, by a call or two: little beside the denial itself, and a node that begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import record_name
from signer.rules.machine import MachineGone
from signer.store.live_reads import LiveReads
from signer.store.records import Records

_ON_THE_RECORD: Final = frozenset({Reason.FOREIGN_CREDENTIAL, Reason.IDENTITY_CONFLICT})
_ON_THE_MACHINE: Final = frozenset(
    {Reason.MACHINE_DELETING, Reason.NODE_NAME_MISMATCH, Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES}
)
_PAUSE: Final = timedelta(seconds=1)


def rests_on_cached_objects(refused: Refused) -> bool:
    """Whether a record or a Machine may have changed what is refused."""
    return refused.deny.reason in _ON_THE_RECORD | _ON_THE_MACHINE


@dataclass(frozen=True, slots=True)
class LiveRecheck:
    """Looks at records and Machines in the API server itself."""

    records: Records
    live_reads: LiveReads

    async def look(
        self,
        refused: Refused,
        cluster: ClusterKey,
        node_name: str,
        machine: MachineView | MachineGone,
        recorded_machine: MachineView | MachineGone,
    ) -> None:
        """To be called before a check of a Machine or its record denies; then the checks are made again.

        ``recorded_machine`` is the one that the record of that node names, which may be another.

        Raises:
            Deferred: a Machine is not as it is known here.
            ApiError: from the management cluster.
        """
        reason = refused.deny.reason
        if reason in _ON_THE_RECORD:
            await self.records.refresh(cluster, record_name(cluster, node_name))
        if reason in _ON_THE_MACHINE:
            await self._require_as_known(machine)
        if reason == Reason.IDENTITY_CONFLICT:
            await self._require_as_known(recorded_machine)

    async def _require_as_known(self, machine: MachineView | MachineGone) -> None:
        if isinstance(machine, MachineView) and not await self.live_reads.is_as_known(machine):
            raise Deferred(
                Reason.RESERVATION_PENDING, f"{machine} has changed, and how is not known here yet", _PAUSE
            ) from None
