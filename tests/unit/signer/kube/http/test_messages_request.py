"""The wire format of requests: no part of a request can begin another."""

from __future__ import annotations

import pytest

from signer.kube.http.messages import Origin, RequestWriter

ORIGIN = Origin("api.example", 6443, "")


@pytest.mark.parametrize(
    ("server", "origin", "authority"),
    [
        ("https://api.example", Origin("api.example", 443, ""), "api.example"),
        ("https://api.example:443/", Origin("api.example", 443, ""), "api.example"),
        ("https://API.example:6443/k8s/clusters/c1/", Origin("api.example", 6443, "/k8s/clusters/c1"), None),
        ("https://api.example/X", Origin("api.example", 443, "/X"), "api.example"),
        ("https://[fd00::1]:6443", Origin("fd00::1", 6443, ""), "[fd00::1]:6443"),
        ("https://[fd00::1]", Origin("fd00::1", 443, ""), "[fd00::1]"),
    ],
)
def test_accepted_origins(server: str, origin: Origin, authority: str | None) -> None:
    assert Origin.of(server) == origin
    assert origin.authority == authority or (authority is None and origin.authority == "api.example:6443")


@pytest.mark.parametrize(
    "server",
    [
        "http://api.example",
        "api.example:6443",
        "https://",
        "https://user@api.example",
        "https://api.example?a=b",
        "https://api.example#a",
        "https://api.example:99999",
        "https://api.example:port",
        "https://api.example:0",
        "https://api.example?",
        "https://[fd00::1",
        "https://api .example",
        "https://api.exa\nmple",
        "https://api.example/a b",
        "https://bücher.example",
        "",
    ],
)
def test_refused_origins(server: str) -> None:
    with pytest.raises(ValueError, match=r"^an API server is reached by https only, as https://host\[:port\]"):
        Origin.of(server)


def test_a_request_without_a_body() -> None:
    writer = RequestWriter(Origin("api.example", 6443, "/k8s"), [("Accept", "application/json")])
    assert writer.write("GET", "/api/v1/pods?limit=1", {}, None) == (
        b"GET /k8s/api/v1/pods?limit=1 HTTP/1.1\r\nHost: api.example:6443\r\nAccept: application/json\r\n\r\n"
    )


@pytest.mark.parametrize("body", [b"", b'{"a":"\xc3\xa4\r\n\r\n\0"}'])
def test_a_request_with_a_body(body: bytes) -> None:
    written = RequestWriter(ORIGIN, ()).write("POST", "/api", {"Content-Type": "application/json"}, body)
    assert (
        written
        == (
            b"POST /api HTTP/1.1\r\nHost: api.example:6443\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        + body
    )


@pytest.mark.parametrize(
    "end", ["\r\n", "\n", "\r", "\0", "\r\nX-Remote-User: admin", "\r\n\r\nGET / HTTP/1.1\r\n\r\n"]
)
@pytest.mark.parametrize("part", ["method", "target", "field", "name", "common", "prefix", "host"])
def test_no_part_ends_the_request(part: str, end: str) -> None:
    values = {each: "x" + (end if each == part else "") for each in ("method", "field", "name", "common", "host")}
    target, prefix = ("/" + (end if part == each else "") for each in ("target", "prefix"))
    writer = RequestWriter(Origin(values["host"], 443, prefix), [("X", values["common"])])
    with pytest.raises(ValueError, match="would end it"):
        writer.write(values["method"], target, {values["name"]: values["field"]}, None)


@pytest.mark.parametrize(("method", "target"), [("GET /x HTTP/1.1 ", "/"), ("GET", "/x HTTP/1.1"), ("GET ", "/")])
def test_no_part_begins_another(method: str, target: str) -> None:
    with pytest.raises(ValueError, match="would end it"):
        RequestWriter(ORIGIN, ()).write(method, target, {}, None)


def test_non_ascii_parts_are_not_written() -> None:
    with pytest.raises(ValueError, match="ascii"):
        RequestWriter(ORIGIN, ()).write("GET", "/ä", {}, None)
