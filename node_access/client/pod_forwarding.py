"""``forward`` to a Pod on its node: that sshd forwards no ports, because they would be the node's.

This program listens instead, and runs ssh with the command ``connect PORT`` for each connection. The agent on the node
connects it to that port of the Pod's loopback.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

from node_access.client.errors import ClientFailed
from node_access.client.terminal import say
from node_access.client.words import PodForward

MAXIMUM_CONNECTIONS: Final = 16
"""Further ones wait. A container has 32 sessions on its node, which are not this person's alone."""
_LOOK_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0


def forward_to_pod(
    forwards: Sequence[PodForward], words: Callable[[int], Sequence[str]], why_over: Callable[[], str]
) -> NoReturn:
    """Serve connections until ``why_over`` says something. ``words`` is the command line for a port of the Pod.

    Raises:
        ClientFailed: an address cannot be listened on, ssh cannot be started, or the grant is over.
    """
    if sys.platform == "win32":
        raise ClientFailed("on Windows, ssh takes no connection from this program: use --via gateway")
    running: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for one in forwards:
            for listener in _listeners(one, stack):
                selector.register(listener, selectors.EVENT_READ, one)
        stack.callback(_end, running)
        while not (why := why_over()):
            running[:] = [process for process in running if process.poll() is None]
            if len(running) >= MAXIMUM_CONNECTIONS:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running[0].wait(_LOOK_SECONDS)
                continue
            for key, _ in selector.select(_LOOK_SECONDS)[: MAXIMUM_CONNECTIONS - len(running)]:
                running += _connected(key.fileobj, words(key.data.pod_port))
    raise ClientFailed(f"the grant has ended: {why}")


def _connected(listener: object, words: Sequence[str]) -> list[subprocess.Popen[bytes]]:
    """The ssh that serves the next connection; none if that went away."""
    assert isinstance(listener, socket.socket)
    try:
        connection, _ = listener.accept()
    except OSError:
        return []
    with connection:
        try:
            return [subprocess.Popen(list(words), stdin=connection.fileno(), stdout=connection.fileno())]  # noqa: S603
        except OSError as error:
            raise ClientFailed(f"{words[0]} cannot be started: {error.strerror}") from error


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listeners(wanted: PodForward, stack: contextlib.ExitStack) -> Iterator[socket.socket]:
    """Those of its addresses. Of the two of this machine, one is enough.

    Raises:
        ClientFailed: none can be listened on.
    """
    made, fault = [], ""
    for address in wanted.addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.create_server((address, wanted.port), family=family, backlog=MAXIMUM_CONNECTIONS)
        except OSError as error:
            fault = f"{address} port {wanted.port}: {error.strerror or error}"
            continue
        listener.setblocking(False)
        made.append(stack.enter_context(listener))
    if not made:
        raise ClientFailed(f"{fault}; choose another port")
    say(f"port {wanted.port} of this machine leads to port {wanted.pod_port} of the Pod")
    yield from made
