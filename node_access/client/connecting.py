"""``connect``: ssh's way to a node with several addresses, of which not all may be reachable from here.

The client's configuration names it as ``ProxyCommand`` with ``ProxyUseFdpass`` (ssh_config(5)): it hands a connected
socket to ssh over its standard output, and ends. It tries the addresses in the controller's order, and the next one
when the one before failed or has not answered for a while, as RFC 8305 (section 5) has it. Which machine answers does
not matter for safety: the host certificate has the node's name.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.principals import HostAddress, HostName, parse_host_principal
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.terminal import say
from node_access.client.touching import program
from node_access.client.words import object_name

MAXIMUM_SECONDS: Final = 25.0
"""Less than ``ConnectTimeout`` of the configuration, which does not count while this program runs."""
_DIRECT_PAUSE_SECONDS: Final = 0.3
_STANDARD_OUTPUT: Final = 1
_PORTS: Final = range(1, 65536)


@dataclass(slots=True)
class _Attempt:
    """A connection that may become the one."""

    address: str
    here: socket.socket
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The ssh that goes through the bastion, if any."""

    def give_up(self) -> None:
        self.here.close()
        for child in self.children:
            child.kill()
            child.wait()


def connect(options: argparse.Namespace) -> int:
    """Hand the connection to the ssh that started this program."""
    if options.port not in _PORTS:
        raise WrongUse(f"{options.port} is no port: give a number from 1 to 65535")
    try:
        addresses = [parse_host_principal(one) for one in options.addresses]
    except SSHRefused as error:
        raise WrongUse(error.message) from error
    if options.through:
        alias = object_name(options.through, "a bastion's name")
        attempts = (_through(alias, options.config, address, options.port) for address in addresses)
        found = _first(attempts, options.pause, selectors.EVENT_READ)
    else:
        found = _first(_direct(addresses, options.port), _DIRECT_PAUSE_SECONDS, selectors.EVENT_WRITE)
    found.here.setblocking(True)
    with found.here:
        try:
            with socket.socket(fileno=os.dup(_STANDARD_OUTPUT)) as ssh:
                socket.send_fds(ssh, [b"\0"], [found.here.fileno()])
        except OSError as error:
            raise WrongUse("ssh starts this command, with ProxyUseFdpass") from error
    return 0


def _first(attempts: Iterator[_Attempt], pause: float, event: int) -> _Attempt:
    """The first attempt that gets through. ``event`` is what its socket shows then.

    Raises:
        ClientFailed: none does.
    """
    begun = time.monotonic()
    next_start = begun
    is_more = True
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        running: list[_Attempt] = []
        stack.callback(_give_up, running)
        while is_more or running:
            now = time.monotonic()
            if now > begun + MAXIMUM_SECONDS:
                raise ClientFailed(f"no address of the node answered within {MAXIMUM_SECONDS:.0f} s")
            if is_more and (now >= next_start or not running):
                next_start = now + pause
                started = next(attempts, None)
                is_more = started is not None
                if started is not None:
                    running.append(started)
                    selector.register(started.here, event, started)
                continue
            until = min(begun + MAXIMUM_SECONDS, next_start) if is_more else begun + MAXIMUM_SECONDS
            for key, _ in selector.select(max(0.01, until - now)):
                attempt: _Attempt = key.data
                selector.unregister(attempt.here)
                running.remove(attempt)
                try:
                    _require_connected(attempt, event)
                except OSError as error:
                    attempt.give_up()
                    say(f"{attempt.address}: {error.strerror or error}")
                    continue
                return attempt
    raise ClientFailed("no address of the node can be reached")


def _give_up(attempts: Sequence[_Attempt]) -> None:
    for one in attempts:
        one.give_up()


def _require_connected(attempt: _Attempt, event: int) -> None:
    """
    Raises:
        OSError: it is not.
    """
    if event == selectors.EVENT_READ:
        if not attempt.here.recv(1, socket.MSG_PEEK):
            raise OSError("not reached through the bastion")
        return
    if code := attempt.here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))
    attempt.here.getpeername()


def _direct(addresses: Sequence[HostAddress | HostName], port: int) -> Iterator[_Attempt]:
    for address in addresses:
        try:
            found = socket.getaddrinfo(str(address), port, type=socket.SOCK_STREAM)
        except OSError as error:
            say(f"{address}: {error.strerror or error}")
            continue
        for family, kind, protocol, _, where in found:
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:
                say(f"{address}: {error.strerror}")
                continue
            made.setblocking(False)
            if (code := made.connect_ex(where)) not in (0, errno.EINPROGRESS):
                made.close()
                say(f"{address} port {port}: {os.strerror(code)}")
                continue
            yield _Attempt(f"{address} port {port}", made)


def _through(alias: str, config: str, address: HostAddress | HostName, port: int) -> _Attempt:
    """An ssh to the bastion. The node's first byte, which stays unread, shows that the bastion has reached it."""
    here, there = socket.socketpair()
    words = [program("ssh"), *(("-F", config) if config else ()), "-W", _place(address, port), alias]
    with there:
        try:
            child = subprocess.Popen(words, stdin=there.fileno(), stdout=there.fileno())  # noqa: S603
        except OSError as error:
            here.close()
            raise ClientFailed(f"ssh cannot be started: {error.strerror}") from error
    return _Attempt(f"{address} port {port}", here, [child])


def _place(address: HostAddress | HostName, port: int) -> str:
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"
