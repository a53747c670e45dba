"""Missing data in a cache never causes a denial: before a refusal, the controller reads from the API server.

Another replica may just have issued a credential, an operator may have deleted a record or corrected a Machine to admit
a node, and the watch of one collection may hang while the others go on. So the objects on which a refusal is based are
read again, by one or two calls. That is little compared with the denial itself, and with a node that starts over.
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

_ON_THE_RECORD: Final = frozenset(
    {
        Reason.FOREIGN_CREDENTIAL,
        Reason.IDENTITY_CONFLICT,
        Reason.SUPERSEDED,
        # The record says whether a request is a renewal, which what is being deleted admits.
        Reason.MACHINE_DELETING,
        Reason.CLUSTER_DELETING,
    }
)
_ON_THE_MACHINE: Final = frozenset(
    {
        Reason.MACHINE_DELETING,
        Reason.NODE_NAME_MISMATCH,
        Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES,
        Reason.ATTESTOR_NOT_AUTHORIZED,  # by the Machine's role
    }
)
_PAUSE: Final = timedelta(seconds=1)


def rests_on_cached_objects(refused: Refused) -> bool:
    """Whether a change of a record or a Machine may have changed the refusal."""
    return refused.deny.reason in _ON_THE_RECORD | _ON_THE_MACHINE


@dataclass(frozen=True, slots=True)
class LiveRecheck:
    """Reads records and Machines from the API server."""

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
        """Call this before a check of a Machine or its record denies; then run the checks again.

        ``recorded_machine`` is the one that the node's record names; it may be another Machine.

        Raises:
            Deferred: a Machine differs from the cached one.
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
