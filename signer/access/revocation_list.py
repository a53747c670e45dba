"""Revokes the certificates of ended grants: keeps each Cluster's list of key ids, and hands it to the trust bundle.

What a process knows it keeps in memory, and writes again if somebody deletes or edits the ConfigMap. So an editor can
delay nothing but a restart of the controller, for which there is another memory: what the published bundle revokes
(:class:`signer.ssh.revocations.PublishedRevocations`). A version that the controller wrote earlier takes nothing away.

The list is bounded, and no entry is dropped for lack of room: a key id gets its place before the first certificate with
it is issued (:meth:`RevocationList.reserve`). Without room, nothing is issued.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations
from signer.access.revocations import (
    MAXIMUM_BYTES,
    MAXIMUM_ENTRIES,
    AuthenticList,
    ForeignList,
    NoList,
    ReadList,
    list_name,
    list_path,
    manifest_of,
    needed,
    read_list,
    require_key_id,
    united,
)
from signer.kube.calls import GetCreateReplace
from signer.kube.clocks import ClockAnswer, ClocksAgree
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.kube.supervision import until_wanted
from signer.model.cluster import LONG_AGO, ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.fields import format_time
from signer.ssh.revocations import LONGEST, PublishedRevocations, Revocation, RevocationsUnknown
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
VERIFIED_SECONDS: Final = 300.0
"""Between looks at the ConfigMap."""
WAITING_SECONDS: Final = 15.0
"""After a look that failed."""
DROPPED_AFTER: Final = timedelta(hours=1)
"""Entries that nobody needs are dropped with the next other change, or after that time: each change of the list is one
of the bundle, which every node reads."""
_ATTEMPTS: Final = 5
"""Of a write, while other clients write the same object."""


class RevocationListFull(Exception):
    """There is no room for another key id, so no certificate with it may be issued. The message says what to do."""


@dataclass(slots=True)
class _Known:
    """What this process knows of one Cluster's list."""

    entries: dict[str, datetime] = field(default_factory=dict)
    reserved: dict[str, datetime] = field(default_factory=dict)
    """Key ids that have certificates, and are not revoked."""
    is_read: bool = False
    """Whether the ConfigMap was read in this process."""
    is_written: bool = False
    """Whether it holds ``entries``, as far as this process knows."""
    was_changed: bool = False
    """Somebody had changed the ConfigMap when this process read it first."""
    untrusted_until: datetime = LONG_AGO
    """Certificates of before that end by then."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RevocationList:
    """The lists of all Clusters. Implements :class:`signer.access.parts.RevocationList`."""

    def __init__(
        self,
        *,
        management: GetCreateReplace,
        caches: Caches,
        published: PublishedRevocations,
        now: Callable[[], datetime],
        clock: Callable[[], ClockAnswer],
    ) -> None:
        """No entry goes while ``clock`` does not say that ``now`` is the API server's time, too."""
        self._management = management
        self._caches = caches
        self._published = published
        self._now = now
        self._clock = clock
        self._known: dict[ClusterKey, _Known] = {}
        self._wakes: dict[ClusterKey, Callable[[], None]] = {}

    # What is revoked

    def of(self, cluster: ClusterKey) -> tuple[Revocation, ...]:
        """Implements :data:`~signer.ssh.revocations.RevocationsOf`."""
        known = self._trusted(cluster)
        return (CertificateRevocations(AnyAuthority(), key_ids=tuple(known.entries)),) if known.entries else ()

    def is_published(self, cluster: ClusterKey, key_id: str) -> bool:
        """Whether the trust bundle that nodes can read revokes the key id."""
        return self._published.has(cluster, key_id)

    # What grants do

    def reserve(self, cluster: ClusterKey, key_id: str, until: datetime) -> None:
        """Keep a place for the key id of certificates that end then at the latest. Call this before they are issued,
        and for each grant that has certificates when this process begins.

        Raises:
            RevocationsUnknown: the list has not been read.
            RevocationListFull: there is no room for it.
        """
        require_key_id(key_id)
        known = self._trusted(cluster)
        known.reserved = self._needed(known.reserved)
        places = {*self._needed(known.entries), *known.reserved, key_id}
        is_new = key_id not in known.entries and key_id not in known.reserved
        if is_new and (len(places) > MAXIMUM_ENTRIES or sum(map(len, places)) > MAXIMUM_BYTES):
            raise RevocationListFull(
                f"the grants of the last hour take all {MAXIMUM_ENTRIES} places or {MAXIMUM_BYTES} bytes of key ids "
                "in the list of revocations; wait, or delete grants that nobody uses and wait for an hour"
            )
        known.reserved[key_id] = max(until, known.reserved.get(key_id, until))

    async def add(self, cluster: ClusterKey, key_id: str, until: datetime) -> None:
        """Revoke the key id. It is in the ConfigMap when this returns, unless its certificates have ended or there is
        no Cluster any more.

        Raises:
            ApiError: it may not have been written. It is revoked all the same while this process runs.
            Deferred: the controller key is not available.
        """
        require_key_id(key_id)
        if not self._needed({key_id: until}):
            return
        known = self._of(cluster)
        until = until.replace(microsecond=0)
        if known.entries.get(key_id, until - timedelta(seconds=1)) < until:
            known.entries[key_id] = until
            known.is_written = False
            self._wake(cluster)
        known.reserved.pop(key_id, None)
        if not known.is_written:
            await self._bring_into_line(cluster)

    # The object

    async def look(self, cluster: ClusterKey) -> float:
        """Compare the ConfigMap with what is known, and write it again if it differs. Returns the seconds to wait."""
        known = self._of(cluster)
        known.is_written = False
        try:
            await self._bring_into_line(cluster)
        except (ApiError, Deferred) as error:
            said = printable(str(error))
            _LOG.warning("the list of revoked grants cannot be kept", extra={"cluster": str(cluster), "error": said})
            return WAITING_SECONDS
        return VERIFIED_SECONDS

    def begin(self, cluster: ClusterKey, wake: Callable[[], None]) -> None:
        """The Cluster is connected. Another replica may have written the list: it counts once it is read again.
        ``wake`` is called when it has changed: the trust bundle is to be published.
        """
        self._of(cluster).is_read = False
        self._wakes[cluster] = wake

    def end(self, cluster: ClusterKey) -> None:
        """The Cluster is connected no longer, and may be gone."""
        self._wakes.pop(cluster, None)
        known = self._of(cluster)
        if not self._needed({**known.entries, **known.reserved}):
            del self._known[cluster]

    async def _bring_into_line(self, cluster: ClusterKey) -> None:
        known = self._of(cluster)
        async with known.lock:  # what came while another write was under way is written by one
            for attempt in range(_ATTEMPTS):
                if known.is_written and known.is_read:  # the Cluster may have been connected during that write
                    return
                try:
                    await self._write(cluster, known)
                except (Conflict, AlreadyExists):
                    if attempt == _ATTEMPTS - 1:
                        raise

    async def _write(self, cluster: ClusterKey, known: _Known) -> None:
        view = self._caches.clusters.get(cluster.namespace, cluster.name)
        keys = self._caches.authentic.keys()
        found = await self._read(cluster)
        read = read_list(found, cluster, keys)
        before = dict(known.entries)
        if isinstance(read, AuthenticList):
            known.entries = united(known.entries, read.entries)
        if isinstance(read, ForeignList):
            _LOG.warning(
                "somebody changed the list of revoked grants; it is written again",
                extra={"cluster": str(cluster), "detail": read.why},
            )
            if not known.is_read:
                known.was_changed, known.untrusted_until = True, self._now() + LONGEST
        known.entries = self._without_old(known.entries, read)
        # Before the write: who keeps the object from being written must not keep revocations from nodes.
        was_read, known.is_read = known.is_read, True
        if not was_read or known.entries != before:
            self._wake(cluster)
        wanted = dict(known.entries)
        if not self._is_kept(read, wanted) and view is not None:
            manifest = manifest_of(wanted, view, self._caches.version.clusters.api_version, keys, found)
            await self._store(cluster, manifest, exists=bool(found))
        known.is_written = known.entries == wanted

    def _is_kept(self, read: ReadList, wanted: Mapping[str, datetime]) -> bool:
        if isinstance(read, AuthenticList):
            return read.is_current and read.entries == wanted
        return isinstance(read, NoList) and not wanted

    def _without_old(self, entries: dict[str, datetime], read: ReadList) -> dict[str, datetime]:
        """Without entries that nobody needs, if something else changes, or if one of them is old."""
        changes = not self._is_kept(read, entries)
        is_old = len(self._needed(entries, DROPPED_AFTER)) < len(entries)
        return self._needed(entries) if changes or is_old else entries

    def _needed(self, entries: Mapping[str, datetime], ended_before: timedelta = timedelta(0)) -> dict[str, datetime]:
        """Those that are needed, or were so long ago; all of them while the clock may be wrong."""
        if not isinstance(self._clock(), ClocksAgree):
            return dict(entries)
        return needed(entries, self._now() - ended_before)

    async def _read(self, cluster: ClusterKey) -> dict[str, object]:
        try:
            return await self._management.get(list_path(cluster))
        except NotFound:
            return {}

    async def _store(self, cluster: ClusterKey, manifest: dict[str, object], *, exists: bool) -> None:
        if exists:
            await self._management.replace(list_path(cluster), manifest)
        else:
            await self._management.create(CONFIG_MAPS.collection(cluster.namespace), manifest)

    def _trusted(self, cluster: ClusterKey) -> _Known:
        """
        Raises:
            RevocationsUnknown: an entry may be missing.
        """
        known = self._of(cluster)
        if not known.is_read:
            raise RevocationsUnknown(f"ConfigMap {list_name(cluster)} has not been read")
        is_over = self._now() >= known.untrusted_until and isinstance(self._clock(), ClocksAgree)
        if known.was_changed and not is_over and not self._published.had_one(cluster):
            raise RevocationsUnknown(
                f"somebody changed ConfigMap {list_name(cluster)} while no controller ran, and no trust bundle says "
                f"what was revoked; certificates of before end by {format_time(known.untrusted_until)}"
            )
        return known

    def _of(self, cluster: ClusterKey) -> _Known:
        return self._known.setdefault(cluster, _Known())

    def _wake(self, cluster: ClusterKey) -> None:
        wake = self._wakes.get(cluster)
        if wake is not None:
            wake()


class RevocationListWatch:
    """Looks at the list of one Cluster while its workload cluster is connected."""

    name: Final = "SSH access revocations"

    def __init__(self, cluster: ClusterKey, revocation_list: RevocationList, changed: Callable[[], None]) -> None:
        """``changed`` is called when the list has changed."""
        self._cluster = cluster
        self._list = revocation_list
        self._changed = changed
        self._wanted = asyncio.Event()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """None: ``SSHTrustPublished`` says that revocations are unknown."""
        return ()

    def wake(self) -> None:
        """The Cluster or its policy has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Look until cancelled."""
        self._list.begin(self._cluster, self._changed)
        try:
            while True:
                self._wanted.clear()
                pause = await self._list.look(self._cluster)
                await until_wanted(self._wanted, pause)
        finally:
            self._list.end(self._cluster)


__all__ = ["RevocationList", "RevocationListFull", "RevocationListWatch"]
