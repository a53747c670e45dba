"""The background process of one grant: heartbeats, new certificates, and a connection for a moment after each."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.ssh.certificate import parse_certificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import PublicKey
from node_access.client.container_files import ContainerAccess
from node_access.client.container_ways import nodes_in_use
from node_access.client.errors import ClientFailed, Invalid, ManagementFailed, NotFound
from node_access.client.folders import BadFolder, FolderRecord, GrantFolder
from node_access.client.grants import AllNodesTarget, Grant, InvalidGrant, parse_grant
from node_access.client.keys import FreshKey
from node_access.client.kubectl import Kubectl
from node_access.client.lifecycle import interval, is_ready, waits_for, why_ended, why_paused
from node_access.client.manifests import heartbeat_patch
from node_access.client.node_files import NotUsable, needs_touch
from node_access.client.ssh_agent import NoAgent, SSHAgent
from node_access.client.ssh_files import AnyAccess, access_of
from node_access.client.touching import touch
from node_access.client.words import duration_text, printable, time_text

LAST_SESSION: Final = "its last session ended"
REVOKED: Final = "it was revoked on this machine"
_MAXIMUM_TOUCHED: Final = 16
_RENEWAL_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_LONGEST_UNKNOWN_SECONDS: Final = 7 * 86400.0
"""No grant lives longer. It counts while none could be read here."""
_LOOK_SECONDS: Final = 15.0
_COMMENT: Final = "node-access"


@dataclass(frozen=True, slots=True)
class WithoutAgent:
    """The key is not in an ssh-agent, or this process does not have it."""


@dataclass(frozen=True, slots=True)
class InAgent:
    """This process hands key and certificates to the agent, with a lifetime, again and again."""

    agent: SSHAgent
    key: FreshKey = field(repr=False)

    def give(self, access: AnyAccess, now: float) -> None:
        """Hand over what counts until the certificates end.

        Raises:
            NoAgent: the agent refuses.
        """
        self.agent.add_key(self.key.private, f"{_COMMENT} {access.grant.key}", int(access.valid_before - now))
        self.give_certificates(access, now)

    def give_certificates(self, access: AnyAccess, now: float) -> None:
        """Hand over the certificates alone, until they end; the key keeps its lifetime.

        Raises:
            NoAgent: the agent refuses.
        """
        seconds = int(access.valid_before - now)
        name = f"{_COMMENT} {access.grant.key}"
        for hop, signed in access.certificates.items():
            self.agent.add_certificate(self.key.private, signed, f"{name} {hop.value}", seconds)


KeyPlace: TypeAlias = WithoutAgent | InAgent


@dataclass(frozen=True, slots=True)
class Over:
    """The grant has ended."""

    why: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A signal asked this process to stop; the grant goes on until its heartbeat is missing."""


class Heartbeat:
    """Keeps one grant alive."""

    def __init__(
        self,
        kubectl: Kubectl,
        folder: GrantFolder,
        record: FolderRecord,
        place: KeyPlace,
        *,
        say: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self._record = record
        self._place = place
        self._say = say
        self._stop = stop
        self._said = ""
        self._written: tuple[int, ...] = ()
        self._end = datetime.now(UTC) + timedelta(seconds=_LONGEST_UNKNOWN_SECONDS)
        """From then on, nothing that was asked for here counts any more."""

    def run(self) -> Over | Stopped:
        """Go on until the grant is over; its folder says why then.

        A refusal does not end it: an authorizer or an admission webhook may be away for a moment, and a role may be
        made anew. What is final is in the grant's conditions.
        """
        wait, step, failures = 0.0, self._begin, 0
        while not self._is_stopped_within(wait):
            try:
                grant = step()
                step, failures = self._beat, 0
                wait = interval(grant, random.random()).total_seconds()  # noqa: S311 - no secret
                if why_paused(grant):
                    wait = min(wait, _LONGEST_RETRY_SECONDS, max(0.0, _seconds_until(self._end)))
            except _GrantOver as over:
                return self._over(str(over))
            except NotFound:
                return self._over("it is gone: it was revoked, or it ended")
            except (ManagementFailed, InvalidGrant, NotUsable, BadFolder) as error:
                if datetime.now(UTC) >= self._end:
                    return self._over(f"its time is over, and no heartbeat prolonged it; the last fault: {error}")
                wait, failures = min(_retry_seconds(failures), max(0.0, _seconds_until(self._end))), failures + 1
                self._tell(f"no heartbeat, trying again until {time_text(self._end)}: {error}")
        return Stopped()

    def _is_stopped_within(self, seconds: float) -> bool:
        """Wait. A suspended machine's monotonic clock stands still, and the grant's time does not."""
        due = time.time() + seconds
        while (left := min(seconds, due - time.time())) > 0:
            if self._stop.wait(min(left, _LOOK_SECONDS)):
                return True
            seconds -= _LOOK_SECONDS
        return self._stop.is_set()

    def _begin(self) -> Grant:
        """The creation counts as a heartbeat."""
        grant = self._get()
        if is_ready(grant):
            self._use(grant)
        return grant

    def _beat(self) -> Grant:
        if not self._folder.path.is_dir():
            self._kubectl.delete_grant(self._record.key)
            raise _GrantOver("its folder was removed from this machine")
        self._end_what_was_ended_here()
        before = self._get()
        if not self._record.keep:
            self._end_without_sessions()
        if why := why_paused(before):
            self._tell(f"no heartbeat: {why}")
            return before
        try:
            self._kubectl.patch_grant(before.key.name, heartbeat_patch(before.key, datetime.now(UTC)))
        except Invalid as error:
            raise ManagementFailed(str(error)) from error
        return self._renewed(before)

    def _end_what_was_ended_here(self) -> None:
        """Perhaps the management cluster could not be reached: without this, the grant would live on, unseen."""
        why = self._folder.why_ended
        if why in (REVOKED, LAST_SESSION):
            self._kubectl.delete_grant(self._record.key)
        if why:
            raise _GrantOver(why)

    def _end_without_sessions(self) -> None:
        """The command that made the grant, and should have revoked it, may have been killed."""
        with self._folder.exclusive():
            if self._folder.session_nodes():
                return
            self._folder.end(LAST_SESSION)
        self._kubectl.delete_grant(self._record.key)
        raise _GrantOver(LAST_SESSION)

    def _get(self) -> Grant:
        grant = parse_grant(self._kubectl.get_grant(self._record.key.name))
        if grant.key != self._record.key:
            raise NotFound("another grant has its name")
        for end in grant.status.expiration:
            self._end = end
        if why := why_ended(grant, datetime.now(UTC)):
            raise _GrantOver(why)
        return grant

    def _renewed(self, before: Grant) -> Grant:
        """The grant once the controller has answered the heartbeat, with its certificates on this machine."""
        deadline = time.monotonic() + _RENEWAL_SECONDS
        while True:
            grant = self._get()
            answered = grant.status.last_heartbeat != before.status.last_heartbeat
            if is_ready(grant) and (answered or self._written != serials(grant)):
                self._use(grant)
                return grant
            if time.monotonic() > deadline or self._stop.wait(_POLL_SECONDS):
                self._tell(f"no answer to the heartbeat yet; the grant waits for {waits_for(grant)}")
                return grant

    def _use(self, grant: Grant) -> None:
        found = serials(grant)
        if found == self._written:
            return
        access = access_of(grant, self._folder.public_key(), int(datetime.now(UTC).timestamp()))
        with self._folder.exclusive():
            if why := self._folder.why_ended:
                raise _GrantOver(why)  # a command ended it since it was read
            self._folder.write_access(access, self._record)
            if isinstance(self._place, InAgent):
                try:
                    self._place.give(access, datetime.now(UTC).timestamp())
                except NoAgent as error:
                    self._tell(str(error))
        first, self._written = not self._written, found
        left = duration_text(datetime.fromtimestamp(access.valid_before, UTC) - datetime.now(UTC))
        self._tell(f"certificates for {left}")
        if not first:
            self._touch(access)

    def _touch(self, access: AnyAccess) -> None:
        for alias, login in touched(access, self._folder.session_nodes()):
            try:
                if not touch(self._folder.config, alias, login):
                    self._tell(f"{alias}: no login as {login}, so sessions of it are not prolonged")
            except ClientFailed as error:
                self._tell(str(error))

    def _over(self, why: str) -> Over:
        shown = printable(why)
        self._tell(f"the grant has ended: {shown}")
        with contextlib.suppress(BadFolder), self._folder.exclusive():
            self._folder.end(shown)
        if isinstance(self._place, InAgent):
            forget(self._place.agent, blobs_of(self._place.agent, self._place.key.public))
        return Over(shown)

    def _tell(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)


class _GrantOver(Exception):
    """The grant has ended."""


def serials(grant: Grant) -> tuple[int, ...]:
    """Which certificates the status has."""
    return tuple(sorted(one.signed.certificate.serial for one in grant.status.certificates))


def touched(access: AnyAccess, in_use: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Where a connection is opened, and as whom: on the nodes that the grant names, else on those with sessions of
    ours. The gateway prolongs its sessions by itself.

    None if each login needs a person at a FIDO token.
    """
    if needs_touch(access.grant.public_key):
        return ()
    if isinstance(access, ContainerAccess):
        nodes = nodes_in_use(access, tuple(in_use))[:_MAXIMUM_TOUCHED]
        return tuple((access.node_alias(node), str(access.container)) for node in nodes)
    nodes = tuple(one.node for one in access.targets)
    if isinstance(access.grant.target, AllNodesTarget):
        nodes = tuple(node for node in nodes if str(node) in in_use)
    aliases = map(access.alias, nodes[:_MAXIMUM_TOUCHED])
    return tuple(itertools.product(aliases, access.grant.logins))


def forget(agent: SSHAgent, blobs: Iterable[bytes]) -> None:
    """Have the agent forget a key and its certificates, as far as it answers."""
    for blob in blobs:
        with contextlib.suppress(NoAgent):
            agent.remove(blob)


def blobs_of(agent: SSHAgent, key: PublicKey) -> tuple[bytes, ...]:
    """The key, and every certificate for it that the agent has."""
    found = [key.blob]
    with contextlib.suppress(NoAgent):
        for blob in agent.listed():
            with contextlib.suppress(SSHRefused):
                if parse_certificate(blob).certificate.public_key == key:
                    found.append(blob)
    return tuple(found)


def _retry_seconds(failures: int) -> float:
    """Twice as long after each failure, and never the same for all clients of an API server that was away."""
    longest = min(_FIRST_RETRY_SECONDS * 2.0 ** min(failures, 16), _LONGEST_RETRY_SECONDS)
    return longest * (1 + random.random()) / 2  # noqa: S311 - no secret


def _seconds_until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()
