"""Connects to a port of a Pod's loopback: a child enters the Pod's network, and hands the socket back.

A thread would do, but a process that has entered a namespace once must never serve anybody else.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

from node_access.containers import kernel
from node_access.containers.finding import NotOpen, Running, shares_network_with_node

_ADDRESSES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_SECONDS: Final = 10.0


class NotConnected(Exception):
    """Nothing listens there."""


def connect(running: Running, port: int) -> socket.socket:
    """A connected socket.

    Raises:
        NotOpen: the Pod has the node's own network, or has ended.
        NotConnected: nothing listens there.
    """
    if shares_network_with_node(running):
        raise NotOpen("the Pod shares the node's network (hostNetwork): connections there are not supported")
    try:
        namespace = os.open(f"/proc/{running.process_id}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise NotOpen("the container has ended") from None
    try:
        running.require_same()  # so the namespace is that of the process that was judged
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            child = os.fork()
            if child == 0:
                _connect_in(namespace, port, theirs)
            theirs.close()
            answer, descriptors, _, _ = socket.recv_fds(ours, 64, 1)
            os.waitpid(child, 0)
    finally:
        os.close(namespace)
    if not descriptors:
        raise NotConnected(f"port {port}: {answer.decode('ascii', 'replace') or 'no connection'}")
    return socket.socket(fileno=descriptors[0])


def _connect_in(namespace: int, port: int, answers: socket.socket) -> None:
    """In the child: it never returns."""
    answer, connected = b"no connection", None
    with contextlib.suppress(BaseException):
        kernel.enter_network(namespace)
        for family, address in _ADDRESSES:
            attempt = socket.socket(family, socket.SOCK_STREAM)
            attempt.settimeout(_SECONDS)
            try:
                attempt.connect((address, port))
            except OSError as error:
                answer = (error.strerror or "timed out").encode("ascii", "replace")
                continue
            attempt.settimeout(None)
            connected = attempt
            break
    with contextlib.suppress(BaseException):
        if connected is not None:
            socket.send_fds(answers, [b"connected"], [connected.fileno()])
        else:
            answers.send(answer[:64])
    os._exit(0)
