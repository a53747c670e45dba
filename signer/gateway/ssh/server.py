"""One SSH connection: the login, its end, and what it asks for."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import asyncssh

from attestors.wire.ssh.container_names import ContainerAddress, Pod, parse_container_address
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import PublicKey, parse_public_key
from signer.gateway.clusters import Clusters
from signer.gateway.commands import GatewayIdentity, SessionMark, end_command
from signer.gateway.limits import Connections, Limits, Place, TooMany, counted_address
from signer.gateway.metrics import GatewayMetrics
from signer.gateway.opening import Closed, Opening
from signer.gateway.openings import Address, Openings, Refused, require_source
from signer.gateway.person import PersonAPI
from signer.gateway.resolver import Resolver, RunningContainer
from signer.gateway.running import run_to_its_end
from signer.gateway.ssh.bounds import bound_connection
from signer.gateway.ssh.forwarding import open_port, require_pod_itself
from signer.gateway.ssh.session import EXIT_FAILED, Session, SessionChannel
from signer.gateway.streams import InvalidCommand
from signer.gateway.tools_starting import tools_container
from signer.kube.errors import ApiError
from signer.model.decision import printable
from signer.model.tools_image import ToolsImage

_LOG = logging.getLogger(__name__)
WARNINGS: Final = (timedelta(minutes=10), timedelta(minutes=2))
"""Before the end, the terminals of a connection are told."""
DISCONNECT_SECONDS: Final = 2.0
"""For clients to read why their sessions have ended."""
MAXIMUM_ENTERED: Final = 64
"""The last containers that a connection entered, whose processes it can signal. Workloads have new pods at times."""
SIGNALS_SECONDS: Final = 60.0
END_SECONDS: Final = 30.0
"""For the signal that ends a connection's processes."""
_ENDED: Final = "the access grant has ended"
_EXPIRED: Final = "the access grant has expired"
_STOPPING: Final = "the gateway stops; connect again"


@dataclass(frozen=True, slots=True)
class Parts:
    """What connections share."""

    openings: Openings
    clusters: Clusters
    resolver: Resolver
    metrics: GatewayMetrics
    now: Callable[[], datetime]
    limits: Limits
    connections: Connections
    identity: GatewayIdentity
    live: set[GatewayConnection] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """What goes on after a connection."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that is not lost."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


@dataclass(frozen=True, slots=True)
class _NotLoggedIn:
    """Nobody, yet."""


@dataclass(frozen=True, slots=True)
class _LoggedIn:
    opening: Opening
    address: ContainerAddress


_State: TypeAlias = _NotLoggedIn | _LoggedIn


class GatewayConnection(asyncssh.SSHServer):
    """Implements asyncssh's callbacks, and :class:`~signer.gateway.ssh.session.Entered`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._state: _State = _NotLoggedIn()
        self.mark = SessionMark.of_connection("", parts.identity)
        self.reads = asyncio.Event()
        self._user = ""
        self._key: PublicKey | None = None
        """The first one that a grant names. No other one counts on this connection, so a signature is always by it."""
        self._attempts = 0
        self._signals: deque[float] = deque()
        self._places: set[object] = set()
        """One for each channel, from the request to open it until it is closed."""
        self._source: Address | None = None
        self._place: Place | None = None
        self._channels: set[asyncio.Task[None]] = set()
        self._sessions: set[SessionChannel] = set()
        self._entered: dict[str, tuple[Opening, RunningContainer]] = {}
        self.with_shell: RunningContainer | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._stop_listening: Callable[[], None] = _nothing
        self._is_ending = False
        self._why = "nothing is open"

    # The connection

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Count it."""
        self._conn = conn
        self.reads = bound_connection(conn)
        self._parts.live.add(self)
        peer = conn.get_extra_info("peername")
        text = str(peer[0]).partition("%")[0] if peer else ""
        try:
            self._source = ipaddress.ip_address(text)
            self._place = self._parts.connections.opened(counted_address(self._source))
        except (ValueError, TooMany):
            self._parts.metrics.login("TooMany")
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Everything of the connection ends with it."""
        del exc
        self._parts.live.discard(self)
        self._stop_listening()
        for timer in self._timers:
            timer.cancel()
        for task in tuple(self._channels):
            task.cancel()
        if self._place is not None:
            self._place.closed()
        if isinstance(self._state, _LoggedIn):
            self._parts.metrics.sessions.dec()
            self._log("logout", self._state.opening)
            self._parts.start(self._signal_all(self._end_mark(), "KILL"))

    # The login

    def begin_auth(self, username: str) -> bool:
        """A login always takes a key."""
        del username
        self._count_attempt()
        return True

    def public_key_auth_supported(self) -> bool:
        """Nothing else is: a certificate's principals are read from the grant alone."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether to ask for a signature. Which container it opens is looked up when the signature has been checked."""
        del username
        self._count_attempt()
        try:
            offered = parse_public_key(key.public_data)
        except SSHRefused:
            return False
        if self._key is None and self._parts.openings.knows(offered):
            self._key = offered
        return self._key == offered

    def _count_attempt(self) -> None:
        self._attempts += 1
        if self._attempts > self._parts.limits.attempts_per_login:
            self._is_ending = True
            self._parts.metrics.login("TooManyAttempts")
            message = "too many keys: name one with ssh -i, and set IdentitiesOnly=yes"
            raise asyncssh.DisconnectError(asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, message)

    def auth_completed(self) -> None:
        """The client has the key: enter, or say why not."""
        try:
            self._enter()
        except (Refused, Closed) as error:
            self._refuse(error.reason, error.message)
        except SSHRefused as refused:
            self._refuse("AddressInvalid", refused.message)
        except TooMany as error:
            self._refuse("TooMany", str(error))

    def _enter(self) -> None:
        if self._key is None or self._source is None or self._place is None:
            raise TypeError("asyncssh has logged in a client without a key or a place")
        self._user = str(self._conn.get_extra_info("username"))  # that of the signature
        address = parse_container_address(self._user)
        opening = self._parts.openings.find(self._key, address, self._source)
        self._place.logged_in()
        self._state = _LoggedIn(opening, address)
        self.mark = SessionMark.of_connection(opening.uid, self._parts.identity)
        self._stop_listening = self._parts.openings.listen(opening.uid, self._changed)
        self._set_timers(opening)
        self._parts.metrics.login("Admitted")
        self._parts.metrics.sessions.inc()
        self._log("login", opening)

    def _refuse(self, reason: str, message: str) -> None:
        self._parts.metrics.login(reason)
        _LOG.info("login refused", extra={"reason": str(reason), "detail": message, "address": str(self._source)})
        self._end(message)

    # The end

    def _changed(self) -> None:
        """The grant or the Cluster's connection is another one now."""
        if not isinstance(self._state, _LoggedIn) or self._is_ending:
            return
        try:
            opening = self._parts.openings.again(self._state.opening)
            require_source(opening, self._known_source())
        except Closed:
            self._end(_ENDED)
            return
        except Refused as refused:
            self._end(refused.message)
            return
        self._state = _LoggedIn(opening, self._state.address)
        self._set_timers(opening)

    def _known_source(self) -> Address:
        if self._source is None:
            raise TypeError("a client without an address has logged in")
        return self._source

    def _set_timers(self, opening: Opening) -> None:
        for timer in self._timers:
            timer.cancel()
        loop, left = asyncio.get_running_loop(), (opening.ends - self._parts.now()).total_seconds()
        self._timers = [loop.call_later(max(0.0, left), self._end, _EXPIRED)]
        for before in WARNINGS:
            if left > before.total_seconds():
                self._timers.append(loop.call_later(left - before.total_seconds(), self._warn, before))

    def _warn(self, before: timedelta) -> None:
        minutes = int(before.total_seconds() // 60)
        for channel in (one for one in tuple(self._sessions) if one.asked.terminal):
            channel.say(f"access ends in {minutes} minutes")

    def _end(self, message: str) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        self._parts.metrics.ends.inc()
        for task in tuple(self._channels):
            task.cancel()
        for channel in tuple(self._sessions):
            channel.say(message)
            channel.exit(EXIT_FAILED)
        self._why = message
        if not self._sessions:
            self._conn.disconnect(asyncssh.DISC_BY_APPLICATION, message)
            return
        # asyncssh drops what is still to be sent, a message behind output among it: sessions close first.
        loop = asyncio.get_running_loop()
        loop.call_later(DISCONNECT_SECONDS, self._conn.disconnect, asyncssh.DISC_BY_APPLICATION, message)

    def stop(self) -> None:
        """The gateway stops."""
        self._end(_STOPPING)

    async def signal(self, name: str) -> None:
        """See Entered."""
        now = asyncio.get_running_loop().time()
        while self._signals and self._signals[0] <= now - SIGNALS_SECONDS:
            self._signals.popleft()
        if len(self._signals) < self._parts.limits.signals_per_minute:
            self._signals.append(now)
            await self._signal_all(self.mark, name)

    def _end_mark(self) -> SessionMark:
        """With the grant ends what any gateway has left of it in these containers, one that was killed among them."""
        opening = self._logged_in().opening
        try:
            self._parts.openings.again(opening)
        except Closed:
            return SessionMark.of_grant(opening.uid)
        return self.mark

    async def _signal_all(self, mark: SessionMark, name: str) -> None:
        for opening, container in tuple(self._entered.values()):
            await self._signal_in(opening, container, mark, name)

    async def _signal_in(self, opening: Opening, container: RunningContainer, mark: SessionMark, name: str) -> None:
        try:
            async with asyncio.timeout(END_SECONDS), self._parts.clusters.api(opening) as api:
                await run_to_its_end(api, container, end_command(mark, name))
        except (ApiError, Closed, InvalidCommand, TimeoutError, ValueError) as error:
            self._parts.metrics.signals_failed.inc()
            _LOG.warning(
                "cannot signal the processes of a connection",
                extra={
                    "cluster": str(opening.cluster),
                    "namespace": container.namespace,
                    "object": container.pod,
                    "error": printable(str(error)),
                },
            )

    # What it asks for

    def session_requested(self) -> SessionChannel:
        """A shell, a command, or SFTP."""
        state = self._require_room()
        gone = self._take_place()
        is_workload = not isinstance(state.address.of, Pod)

        def run(channel: SessionChannel) -> None:
            self._sessions.add(channel)
            channel.stream.when_gone(lambda: self._sessions.discard(channel))
            self._start(Session(self, channel, names_pod=is_workload).run())

        session = SessionChannel(run, reads=self.reads, has_terminal=state.opening.has_terminal)
        session.stream.when_gone(gone)
        return session

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        """A port of the pod."""
        del orig_host, orig_port
        self._require_room()
        require_pod_itself(dest_host, dest_port)
        return open_port(self, dest_port, self._start, self._take_place())

    def _require_room(self) -> _LoggedIn:
        if not isinstance(self._state, _LoggedIn) or self._is_ending:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, self._why)
        if len(self._places) >= self._parts.limits.channels_per_connection:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "the connection has too many channels")
        return self._state

    def _take_place(self) -> Callable[[], None]:
        """A place for a channel; returns what gives it back."""
        place = object()
        self._places.add(place)
        return lambda: self._places.discard(place)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._channels.add(task)
        task.add_done_callback(self._channels.discard)

    # For sessions

    def opening(self) -> Opening:
        """What is open now for a new session. Raises Closed."""
        return self._parts.openings.require_admitted(self._logged_in().opening)

    def api(self) -> PersonAPI:
        """The workload cluster in the person's name. Raises Closed."""
        return self._parts.clusters.api(self.opening())

    async def container(self) -> RunningContainer:
        """The container that the login means now. Raises NotResolved, ApiError or Closed."""
        opening, address = self.opening(), self._logged_in().address
        async with self._parts.clusters.api(opening) as api:
            found = await self._parts.resolver.resolve(api, opening.container, address)
        self._note_entered(found.uid, opening, found)
        return found

    def has_tools(self) -> bool:
        """See Entered."""
        opening = self.opening()
        return isinstance(self._parts.openings.connection_of(opening.cluster).tools, ToolsImage)

    async def tools(self, target: RunningContainer) -> RunningContainer:
        """See Entered."""
        opening = self.opening()
        tools = self._parts.openings.connection_of(opening.cluster).tools
        async with self._parts.clusters.api(opening) as api:
            found = await tools_container(api, target, opening.uid, tools)
        self._note_entered(f"{found.uid}/{found.container}", opening, found)
        return found

    def _note_entered(self, name: str, opening: Opening, container: RunningContainer) -> None:
        """Its processes can be signalled; of too many, those of the last ones."""
        self._entered.pop(name, None)
        self._entered[name] = (opening, container)
        if len(self._entered) > MAXIMUM_ENTERED:
            del self._entered[next(iter(self._entered))]

    def _logged_in(self) -> _LoggedIn:
        if not isinstance(self._state, _LoggedIn):
            raise TypeError("a channel was opened before the login")
        return self._state

    def _log(self, what: str, opening: Opening) -> None:
        _LOG.info(
            what,
            extra={
                "cluster": str(opening.cluster),
                "keyID": opening.key_id,
                "namespace": opening.container.namespace,
                "object": self._user,
                "address": str(self._source),
            },
        )


def _nothing() -> None:
    pass


__all__ = ["GatewayConnection", "Parts"]
