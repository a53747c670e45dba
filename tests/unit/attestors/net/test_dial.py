"""One address that is silent keeps nobody from another that answers; what is told is what was answered."""

from __future__ import annotations

import contextlib
import errno
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from attestors.net.dial import dial, most_telling
from tests.support.silent_address import address_of, resolve, silent

NAME = "api.example"
SIX, FOUR = "::1", "127.0.0.1"


@contextlib.contextmanager
def listening(host: str = FOUR) -> Iterator[int]:
    with socket.create_server((host, 0)) as listener:
        yield int(listener.getsockname()[1])


def peer(port: int, seconds: float) -> str:
    with dial(NAME, port, seconds) as connected:
        assert connected.gettimeout() == seconds
        return str(connected.getpeername()[0])


@pytest.fixture(autouse=True)
def everything_is_closed() -> Iterator[None]:
    """A socket that is left open warns when it is collected, and a warning is an error."""
    yield
    gc.collect()


@pytest.mark.parametrize(("dead", "living"), [(SIX, FOUR), (FOUR, "127.0.0.2")], ids=["IPv6", "IPv4"])
def test_a_silent_address_does_not_delay_the_connection(
    monkeypatch: pytest.MonkeyPatch, dead: str, living: str
) -> None:
    resolve(monkeypatch, NAME, dead, living)
    with listening(living) as port, silent(dead, port):
        began = time.monotonic()
        assert peer(port, 30.0) == living
        assert time.monotonic() - began < 15


def test_the_other_family_comes_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred addresses take 25 seconds to try."""
    resolve(monkeypatch, NAME, *[SIX] * 100, FOUR)
    with listening() as port, silent(SIX, port):
        assert peer(port, 10.0) == FOUR


def test_a_refusing_address_causes_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NAME, *[f"127.0.1.{i}" for i in range(1, 100)], FOUR)
    with listening() as port:
        assert peer(port, 10.0) == FOUR


def test_a_family_that_this_machine_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(host: str, port: int, **_: Any) -> list[Any]:
        return [(9999, socket.SOCK_STREAM, 0, "", (SIX, port, 0, 0)), address_of(FOUR, port)]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with listening() as port:
        assert peer(port, 10.0) == FOUR


def test_an_address_without_a_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NAME, "fe80::1", FOUR)  # of which link?
    with listening() as port:
        assert peer(port, 10.0) == FOUR


@pytest.mark.slow  # Linux sends the first packet again after a second
def test_the_first_is_not_given_up_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NAME, FOUR, SIX)
    with silent(FOUR) as (listener, port), silent(SIX, port):
        accepting = threading.Timer(0.4, lambda: listener.accept()[0].close())
        accepting.start()
        assert peer(port, 20.0) == FOUR
        accepting.join()


def test_all_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they take no longer than one."""
    resolve(monkeypatch, NAME, *[SIX, FOUR] * 5)
    with silent(SIX) as (_, port), silent(FOUR, port):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            dial(NAME, port, 0.5)
        assert 0.5 <= time.monotonic() - began < 2


def test_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NAME, FOUR)
    with listening() as port, pytest.raises(TimeoutError):
        dial(NAME, port, 0.0)


@pytest.mark.parametrize("hosts", [(FOUR,), (FOUR, "127.0.0.2"), ("fe80::1", FOUR), (FOUR, "fe80::1")])
def test_all_refuse(monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...]) -> None:
    resolve(monkeypatch, NAME, *hosts)
    with socket.socket() as taken:
        taken.bind((FOUR, 0))
        with pytest.raises(ConnectionRefusedError):
            dial(NAME, taken.getsockname()[1], 10.0)


def test_one_is_silent_and_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server is down, and IPv6 is broken besides: who reads it can mend the first."""
    resolve(monkeypatch, NAME, SIX, FOUR)
    with silent(SIX) as (_, port), pytest.raises(ConnectionRefusedError):
        dial(NAME, port, 0.6)


def test_a_name_without_an_address() -> None:
    with pytest.raises(socket.gaierror):
        dial("nobody.invalid", 1, 1.0)
    with pytest.raises(UnicodeError):
        dial(f"{'a' * 64}.example", 1, 1.0)


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ((errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNREFUSED), errno.ECONNREFUSED),
        ((errno.ENETUNREACH, errno.ETIMEDOUT), errno.ETIMEDOUT),
        ((errno.ENETUNREACH, errno.EHOSTUNREACH), errno.ENETUNREACH),
        ((errno.ECONNRESET, errno.ECONNREFUSED), errno.ECONNRESET),
        ((), errno.ETIMEDOUT),
    ],
)
def test_the_most_specific_error_is_reported(failures: tuple[int, ...], told: int) -> None:
    assert most_telling(failures) == told
