"""This machine's address: by flag, by a program, by a URL, by question."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node_access.client.addresses import AddressSources, are_within, own_networks
from node_access.client.errors import ClientFailed
from node_access.client.words import network

Finder = Callable[[str], str]


def nobody(question: str) -> str:
    raise ClientFailed("nobody is there")


@pytest.fixture
def finder(tmp_path: Path) -> Finder:
    def made(body: str) -> str:
        program = tmp_path / "finder"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return str(program)

    return made


@pytest.fixture
def url() -> Iterator[Callable[[bytes], str]]:
    content = [b""]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content[0])

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def serve(answer: bytes) -> str:
            content[0] = answer
            return f"http://127.0.0.1:{server.server_port}/"

        yield serve
        server.shutdown()
        thread.join()


def test_flags_come_first(finder: Finder) -> None:
    sources = AddressSources((network("198.51.100.7"),), finder("exit 1"))
    assert own_networks(sources, nobody) == (network("198.51.100.7/32"),)


def test_a_program_prints_one_address_on_each_line(finder: Finder) -> None:
    program = finder("echo 198.51.100.7; echo; echo ' 2001:db8::7 '; echo 198.51.100.7")
    assert list(map(str, own_networks(AddressSources(command=program), nobody))) == [
        "198.51.100.7/32",
        "2001:db8::7/128",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("exit 3", "exit code 3"),
        ("true", "1 to 16 addresses"),
        ("echo 198.51.100.0/24", "no address"),
        ("echo example.com", "no address"),
        ("echo 0.0.0.0", "no connection comes"),
        ("printf '\\033[2J'", "no address"),
        ("yes 198.51.100.7", "more than 4096 bytes"),
        ("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo 198.51.100.$i; done", "not 17"),
    ],
)
def test_a_program_that_prints_something_else(finder: Finder, body: str, message: str) -> None:
    with pytest.raises(ClientFailed, match=message):
        own_networks(AddressSources(command=finder(body)), nobody)


def test_a_program_takes_no_arguments_and_no_shell(finder: Finder, tmp_path: Path) -> None:
    with pytest.raises(ClientFailed, match="takes no arguments"):
        own_networks(AddressSources(command=f"{finder('echo 198.51.100.7')}; touch {tmp_path}/x"), nobody)
    assert not (tmp_path / "x").exists()


def test_a_url_that_the_person_named(url: Callable[[bytes], str]) -> None:
    assert list(map(str, own_networks(AddressSources(url=url(b"198.51.100.7\n")), nobody))) == ["198.51.100.7/32"]
    for answer, message in ((b"<html>", "no address"), (b"198.51.100.7\n" * 400, "more than"), (b"", "not 0")):
        with pytest.raises(ClientFailed, match=message):
            own_networks(AddressSources(url=url(answer)), nobody)
    for other, message in (("file:///etc/hostname", "no URL of the web"), ("http://127.0.0.1:1/", "refused")):
        with pytest.raises(ClientFailed, match=message):
            own_networks(AddressSources(url=other), nobody)


def test_a_person_is_asked_at_last() -> None:
    assert len(own_networks(AddressSources(), lambda question: "198.51.100.7, 2001:db8::/64")) == 2
    with pytest.raises(ClientFailed):
        own_networks(AddressSources(), lambda question: "")
    with pytest.raises(ClientFailed, match="nobody is there"):
        own_networks(AddressSources(), nobody)


def test_what_is_let_in() -> None:
    allowed = (network("198.51.100.0/24"), network("2001:db8::/64"))
    assert are_within((network("198.51.100.7"), network("2001:db8::7")), allowed)
    assert not are_within((network("203.0.113.1"),), allowed)
    assert not are_within((network("198.51.100.7"), network("2001:db9::7")), allowed)
