"""The bastions of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    CallFailed,
    Deadline,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    IPAddress,
    Network,
    OwnedResources,
    Pending,
    Ready,
    Scope,
    Surroundings,
    host_keys,
    one_line,
)
from node_access.bastions.local.folder import (
    AUTHORITIES,
    CONFIGURATION,
    END,
    HOST_KEY,
    LOG,
    RESTART,
    STATE,
    BastionFolder,
    KeptBy,
    NoState,
    NotKept,
    State,
    locked,
)
from node_access.bastions.sshd import authorized_keys, host_port, sshd_configuration

_POLL_SECONDS: Final = 0.05
_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0
_BANNER: Final = b"SSH-2.0-"
_LOG_TAIL_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Parsed settings."""

    folder: Path
    address: IPAddress
    """Where clients connect to."""
    listen: tuple[IPAddress, ...]
    ports: range
    egress: tuple[Network, ...]
    sshd: str
    program: str = sys.executable


class LocalBastions:
    """See :class:`~node_access.bastions.contract.BastionResources`."""

    def __init__(
        self, settings: LocalSettings, surroundings: Surroundings, *, step: Callable[[str], None] = lambda name: None
    ) -> None:
        """``step`` is called after each change on the machine, with its name; it is for tests of what a kill leaves."""
        self._settings = settings
        self._surroundings = surroundings
        self._step = step

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        """Write what differs, and start sshd where it does not run."""
        if self._surroundings.now() >= bastion.not_after:
            return Broken("the end of the bastion has passed", final=True)
        try:
            with self._locked() as folder:
                own = BastionFolder(folder / bastion.reference.uid)
                own.make()
                self._step("folder")
                state = self._state(own, bastion)
                self._write(own, bastion, state)
                return self._run(own, bastion, state, deadline)
        except _NoPort:
            return Broken(f"no port from {self._settings.ports[0]} to {self._settings.ports[-1]} is free")
        except OSError as error:
            raise CallFailed(one_line(f"{error.strerror}: {error.filename}")) from error

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        """End sshd with its connections, and remove the files."""
        try:
            with self._locked() as folder:
                own = BastionFolder(folder / reference.uid)
                if not self._stop(own, deadline):
                    return Pending("sshd has not ended yet", timedelta(seconds=1))
                self._step("stopped")
                own.remove()
                self._step("removed")
        except OSError as error:
            return Pending(one_line(f"{error.strerror}: {error.filename}"))
        return Gone()

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        """The folders of that owner."""
        root = self._settings.folder / scope.owner
        found: list[OwnedResources] = []
        now = self._surroundings.now().timestamp()
        for path in sorted(one for one in root.iterdir() if one.is_dir()) if root.is_dir() else ():
            own = BastionFolder(path)
            # A folder that the keeper removes meanwhile, or that is no bastion's.
            with contextlib.suppress(NoState, FileNotFoundError):
                age = timedelta(seconds=max(0.0, now - own.made_at()))
                found.append(OwnedResources(own.reference(), age, (f"folder {path.name}", *self._program(own))))
        return tuple(found)

    def _program(self, own: BastionFolder) -> tuple[str, ...]:
        keeper = own.keeper()
        return (f"process {keeper.process}",) if isinstance(keeper, KeptBy) else ()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        folder = self._settings.folder / self._surroundings.scope.owner
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with locked(folder):
            yield folder

    def _state(self, own: BastionFolder, bastion: Bastion) -> State:
        try:
            return own.state()
        except NoState:
            state = State(bastion.reference, self._free_port(own), self._surroundings.now().timestamp())
            own.write(STATE, state.encode())
            self._step(STATE)
            return state

    def _free_port(self, own: BastionFolder) -> int:
        taken: set[int] = set()
        for path in own.path.parent.iterdir():
            with contextlib.suppress(NoState, OSError):
                taken.add(BastionFolder(path).state().port)
        for port in self._settings.ports:
            if port not in taken and all(_is_free(address, port) for address in self._settings.listen):
                return port
        raise _NoPort

    def _write(self, own: BastionFolder, bastion: Bastion, state: State) -> None:
        listen = tuple(host_port(one, state.port) for one in self._settings.listen)
        configuration = sshd_configuration(
            bastion,
            listen=listen,
            host_key=str(own.path / HOST_KEY),
            authorized_keys_file=str(own.path / AUTHORITIES),
        )
        authorities = authorized_keys(bastion, sources=bastion.ingress)
        for name, content, mode in (
            (END, str(bastion.ends_by_itself_at.timestamp()).encode(), 0o644),
            (HOST_KEY, bastion.host_key.private_file(), 0o600),
            (CONFIGURATION, configuration.encode(), 0o644),
            (AUTHORITIES, authorities.encode(), 0o644),
        ):
            before = own.read(name)
            if before and before != content and name != END:
                # Connections that the new file would refuse must not live on, though a kill comes in between.
                own.write(RESTART, b"\n")
                self._step(RESTART)
            own.write(name, content, mode=mode)
            self._step(name)

    def _run(self, own: BastionFolder, bastion: Bastion, state: State, deadline: Deadline) -> Ensured:
        if own.read(RESTART):
            if not self._stop(own, deadline):
                return Pending("sshd has not ended yet", timedelta(seconds=1))
            (own.path / RESTART).unlink(missing_ok=True)
            self._step("restarted")
        if isinstance(own.keeper(), NotKept):
            with (own.path / LOG).open("wb") as log:
                subprocess.run(  # noqa: S603 - the operator's program
                    [self._settings.program, "-m", f"{__package__}.keeper", str(own.path), self._settings.sshd],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=True,
                    timeout=deadline.seconds(),
                )
            self._step("keeper")
        if not self._answers(own, state.port, min(_START_SECONDS, deadline.seconds())):
            tail = own.read(LOG)[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
            return Pending(one_line(f"sshd does not answer: {tail}"), timedelta(seconds=5))
        endpoint = Endpoint(state.port, self._settings.address)
        return Ready(endpoint, host_keys(bastion), self._settings.egress)

    def _answers(self, own: BastionFolder, port: int, seconds: float) -> bool:
        """Whether sshd of this bastion, and no other program, answers on the port."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                address = self._settings.listen[0]
                target = "127.0.0.1" if str(address) == "0.0.0.0" else "::1" if str(address) == "::" else str(address)  # noqa: S104
                with socket.create_connection((target, port), timeout=2.0) as connection:
                    if connection.recv(len(_BANNER)) == _BANNER and isinstance(own.keeper(), KeptBy):
                        return True
            time.sleep(_POLL_SECONDS)
        return False

    def _stop(self, own: BastionFolder, deadline: Deadline) -> bool:
        until = time.monotonic() + min(_STOP_SECONDS, deadline.seconds())
        while isinstance(keeper := own.keeper(), KeptBy):
            if keeper.process > 0:
                # The number is the lock holder's, which is alive at this moment: no other process has it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper.process, signal.SIGTERM)
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True


class _NoPort(Exception):
    """Every port is taken."""


def _is_free(address: IPAddress, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(address), port))
        except OSError:
            return False
    return True
