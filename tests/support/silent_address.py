"""An address that drops packets, as with broken IPv6, on the loopback interface."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def silent(host: str, port: int = 0) -> Iterator[tuple[socket.socket, int]]:
    """A listener to which connections get no response, and its port.

    Its backlog is full, so that Linux drops the first packet of further connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as first:
        try:
            listener.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            pytest.skip(f"this machine has no IPv6: {error}")
        listener.listen(0)
        first.connect(listener.getsockname())
        yield listener, listener.getsockname()[1]


def address_of(host: str, port: int) -> tuple[Any, ...]:
    """A socket address as from ``getaddrinfo``."""
    family, where = (socket.AF_INET6, (host, port, 0, 0)) if ":" in host else (socket.AF_INET, (host, port))
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where)


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, *hosts: str) -> None:
    """Make ``name`` resolve to these addresses, in this order; other names resolve as usual."""
    look_up: Callable[..., list[Any]] = socket.getaddrinfo

    def found(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        if host == name:
            return [address_of(one, int(port)) for one in hosts]
        return look_up(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)
