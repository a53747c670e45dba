"""The client believes one server, tells its answers apart, and ends in bounded time and memory whatever comes."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from authenticator.api import server as api
from authenticator.api.errors import (
    AlreadyExists,
    Busy,
    CallFailed,
    Expired,
    Forbidden,
    NotDone,
    NotFound,
    PerhapsDone,
    Rejected,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from authenticator.api.server import ApiServer, Event
from authenticator.model.cluster import BearerToken, ClientCertificate, Cluster
from signer.testing.api.authorities import Issuer
from tests.support.reset_connection import reset_connection
from tests.support.silent_address import resolve, silent
from tests.unit.authenticator.api.servers import (
    ADDRESS,
    Behaviour,
    Connection,
    answers,
    closed_port,
    reset,
    serving,
)

TOKEN: Final = BearerToken("abcdef.0123456789abcdef")
STORED: Final = {"kind": "CertificateSigningRequest", "metadata": {"name": "n", "uid": "u"}}
PATH: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is over after a moment."""
    monkeypatch.setattr(api, "CALL_SECONDS", 0.1)


def get(behaviour: Behaviour, **options: Any) -> dict[str, Any]:
    """What a GET of a server like that gives."""
    with serving(behaviour, **options) as server:
        return ApiServer(server.cluster(), TOKEN).get("n")


def watch(behaviour: Behaviour, seconds: float = 0.0) -> list[Event]:
    """What a watch at a server like that gives."""
    with serving(behaviour) as server:
        return list(ApiServer(server.cluster(), TOKEN).watch("n", "7", seconds=seconds))


# What is sent, and to whom.


def test_a_request_is_created_and_returned_as_the_server_stored_it() -> None:
    with serving(answers(201, STORED)) as server:
        assert ApiServer(server.cluster(), TOKEN).create({"spec": {"request": "ä"}}) == STORED
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(f"POST {PATH} HTTP/1.1\r\n".encode())
    assert b"\r\nContent-Type: application/json" in head
    assert f"\r\nAuthorization: Bearer {TOKEN.token}".encode() in head
    assert json.loads(body) == {"spec": {"request": "ä"}}


def test_a_request_is_read_by_its_name() -> None:
    with serving(answers(200, STORED)) as server:
        assert ApiServer(server.cluster(), TOKEN).get("n") == STORED
    assert server.requests[0].startswith(f"GET {PATH}/n HTTP/1.1\r\n".encode())
    assert b"Content-Type" not in server.requests[0]


def test_a_prefix_in_the_address_stands_before_the_path() -> None:
    with serving(answers(200, STORED)) as server:
        ApiServer(server.cluster(server=f"https://{ADDRESS}:{server.port}/k8s/clusters/c-1/"), TOKEN).get("n")
    assert server.requests[0].startswith(f"GET /k8s/clusters/c-1{PATH}/n HTTP/1.1\r\n".encode())


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{ADDRESS}:{closed_port()}")
    assert get(answers(200, STORED)) == STORED


def test_a_client_certificate_is_presented_and_no_token() -> None:
    issuer = Issuer.new()
    certificate, key = issuer.client("system:node:n", ["system:nodes"], timedelta(hours=1))
    with serving(answers(200, STORED), issuer=issuer) as server:
        credential = ClientCertificate(certificate.decode(), key.decode())
        assert ApiServer(server.cluster(), credential).get("n") == STORED
    assert server.peers == [x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)]
    assert b"Authorization" not in server.requests[0]


def test_a_token_comes_without_a_client_certificate() -> None:
    with serving(answers(200, STORED)) as server:
        ApiServer(server.cluster(), TOKEN).get("n")
    assert server.peers == [None]


def _pair(key: ec.EllipticCurvePrivateKey | None = None, password: bytes = b"") -> ClientCertificate:
    certificate, own_key = Issuer.new().client("system:node:n", ["system:nodes"], timedelta(hours=1))
    if key is None:
        return ClientCertificate(certificate.decode(), own_key.decode())
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    return ClientCertificate(certificate.decode(), encrypted.decode())


def test_an_encrypted_key_is_refused_without_a_prompt() -> None:
    with serving(answers(200, STORED)) as server, pytest.raises((OSError, ValueError)):
        ApiServer(server.cluster(), _pair(ec.generate_private_key(ec.SECP256R1()), b"secret"))
    assert server.peers == []


def test_a_certificate_beside_the_key_of_another_is_refused() -> None:
    one, other = _pair(), _pair()
    with serving(answers(200, STORED)) as server, pytest.raises(OSError, match="KEY_VALUES_MISMATCH"):
        ApiServer(server.cluster(), ClientCertificate(one.certificate, other.key))


# Who is believed.


def test_a_server_of_another_authority_never_sees_the_token() -> None:
    with serving(answers(200, STORED)) as server:
        cluster = server.cluster(certificate_authority=Issuer.new().certificate_pem.decode())
        with pytest.raises(Untrusted, match="does not belong to this cluster's CA"):
            ApiServer(cluster, TOKEN).create(STORED)
    assert server.requests == []


def test_a_server_of_another_authority_never_sees_a_request_of_a_certificate() -> None:
    with serving(answers(200, STORED)) as server:
        cluster = server.cluster(certificate_authority=Issuer.new().certificate_pem.decode())
        with pytest.raises(Untrusted):
            ApiServer(cluster, _pair()).create(STORED)
    assert server.requests == []


def test_an_authority_that_this_machine_believes_in_otherwise_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(answers(200, STORED)) as server:
        (tmp_path / "ca.pem").write_text(server.authority)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        with pytest.raises(Untrusted):
            ApiServer(server.cluster(certificate_authority=Issuer.new().certificate_pem.decode()), TOKEN).get("n")
    assert server.requests == []


def test_a_server_of_another_name_never_sees_the_token() -> None:
    refused = pytest.raises(Untrusted, match="or to its name")
    with serving(answers(200, STORED), addresses=["192.0.2.7"]) as server, refused:
        ApiServer(server.cluster(), TOKEN).get("n")
    assert server.requests == []


@pytest.mark.parametrize(("days", "what"), [(400, "certificate has expired"), (-400, "certificate is not yet valid")])
def test_a_clock_that_is_wrong_is_asked_for(monkeypatch: pytest.MonkeyPatch, days: int, what: str) -> None:
    """A machine without a clock of its own starts in 1970, and its first question comes before it was told the time."""
    issuer = Issuer.new()
    moment = datetime.now(UTC) - timedelta(days=days)
    monkeypatch.setattr("signer.testing.api.authorities.datetime", SimpleNamespace(now=lambda _: moment))
    refused = pytest.raises(Untrusted, match=f"{what}.*is the clock right")
    with serving(answers(200, STORED), issuer=issuer) as server, refused:
        ApiServer(server.cluster(), TOKEN).get("n")
    assert server.requests == []


def test_the_server_may_have_the_name_that_the_kubeconfig_says() -> None:
    with serving(answers(200, STORED), names=["api.example"], addresses=["192.0.2.7"]) as server:
        assert ApiServer(server.cluster(tls_server_name="api.example"), TOKEN).get("n") == STORED


def test_the_name_that_the_kubeconfig_says_replaces_the_address() -> None:
    with serving(answers(200, STORED)) as server, pytest.raises(Untrusted):
        ApiServer(server.cluster(tls_server_name="other.example"), TOKEN).get("n")
    assert server.requests == []


@pytest.mark.parametrize("changes", [{"server": f"https://{'a' * 64}.example"}, {"tls_server_name": ".example"}])
def test_an_invalid_server_name_is_reported(changes: dict[str, str]) -> None:
    with (
        serving(answers(200, STORED)) as server,
        pytest.raises(Untrusted, match="the host or tls-server-name is not a valid name"),
    ):
        ApiServer(server.cluster(**changes), TOKEN).get("n")


def test_plain_http_is_not_believed() -> None:
    def plain(connection: Connection) -> None:
        connection.socket.recv(65536)
        connection.answer(400, {"message": "Client sent an HTTP request to an HTTPS server."})

    with serving(plain, tls=False) as server, pytest.raises(Untrusted, match="does not speak TLS"):
        ApiServer(server.cluster(), TOKEN).get("n")
    assert server.requests == []


# Who is not there.


def test_a_closed_port_is_unreachable() -> None:
    authority = Issuer.new().certificate_pem.decode()
    with pytest.raises(Unreachable, match="Connection refused"):
        ApiServer(Cluster(f"https://{ADDRESS}:{closed_port()}", authority), TOKEN).get("n")


def test_a_name_that_is_not_found_is_unreachable() -> None:
    authority = Issuer.new().certificate_pem.decode()
    with pytest.raises(Unreachable, match="is unreachable"):
        ApiServer(Cluster("https://nobody.invalid", authority), TOKEN).get("n")


def test_a_server_whose_first_address_is_silent_is_asked_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two families, one is broken: that one does not get a call's time for itself."""
    resolve(monkeypatch, "localhost", "::1", ADDRESS)
    with serving(answers(200, STORED)) as server, silent("::1", server.port):
        cluster = Cluster(f"https://localhost:{server.port}", server.cluster().certificate_authority)
        began = time.monotonic()
        assert ApiServer(cluster, TOKEN, seconds=30.0).get("n") == STORED
        assert time.monotonic() - began < 15


@pytest.mark.usefixtures("soon")
def test_a_server_none_of_whose_addresses_answers_is_unreachable_in_the_time_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve(monkeypatch, "localhost", *["::1", ADDRESS] * 30)
    authority = Issuer.new().certificate_pem.decode()
    with silent("::1") as (_, port), silent(ADDRESS, port):
        began = time.monotonic()
        with pytest.raises(Unreachable, match="does not answer within"):
            ApiServer(Cluster(f"https://localhost:{port}", authority), TOKEN).get("n")
        assert time.monotonic() - began < 3


def test_a_connection_that_is_reset_before_the_handshake_is_unreachable_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(answers(200, STORED)) as server:
        client = reset_connection()
        monkeypatch.setattr(api, "dial", lambda *_: client)
        with pytest.raises(Unreachable, match="reset by peer"):
            ApiServer(server.cluster(), TOKEN).get("n")
    # That it is closed, and not left to the garbage collector, pytest sees: a ResourceWarning is an error.


def test_a_connection_over_which_tls_cannot_be_begun_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrap_socket(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOBUFS, "no buffers")

    with serving(answers(200, STORED)) as server:
        plain = socket.socket()
        monkeypatch.setattr(api, "dial", lambda *_: plain)
        monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_socket)
        with pytest.raises(Unreachable, match="no buffers"):
            ApiServer(server.cluster(), TOKEN).get("n")
    assert plain.fileno() == -1


@pytest.mark.usefixtures("soon")
def test_a_server_that_does_not_finish_the_handshake_is_unreachable() -> None:
    with serving(Connection.stay, tls=False) as server, pytest.raises(Unreachable, match="does not answer within"):
        ApiServer(server.cluster(), TOKEN).get("n")


def test_a_load_balancer_without_servers_is_unreachable_and_not_untrusted() -> None:
    """It accepts connections, and closes them at once: worth another try, so not Untrusted."""

    def close(connection: Connection) -> None:
        connection.socket.recv(65536)

    with serving(close, tls=False) as server, pytest.raises(Unreachable, match="closed the connection"):
        ApiServer(server.cluster(), TOKEN).get("n")


# What it answers.


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, AlreadyExists),
        (410, Expired),
        (422, Rejected),
        (429, Busy),
        (500, PerhapsDone),
        (503, PerhapsDone),
        (504, PerhapsDone),
    ],
)
def test_each_refusal_has_its_kind_and_the_servers_message(status: int, kind: type[CallFailed]) -> None:
    with pytest.raises(kind, match=rf"answered {status}: because") as caught:
        get(answers(status, {"kind": "Status", "message": "because"}))
    assert type(caught.value) is kind
    assert isinstance(caught.value, NotDone) is (status < 500)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        (None, 1.0),
        ("", 1.0),
        ("soon", 1.0),
        ("-5", 1.0),
        ("1e9", 1.0),
        ("nan", 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("86400", 60.0),
        ("9" * 6000, 60.0),
    ],
)
def test_a_busy_server_says_when_to_come_back_within_reason(header: str | None, seconds: float) -> None:
    with pytest.raises(Busy) as caught:
        get(answers(429, {"message": "later"}, {} if header is None else {"Retry-After": header}))
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>log in first</html>", b"[]", b'{"message": 5}', b'{"reason": "none"}', b"[" * 100_000, b"\xff\xfe"],
)
def test_a_refusal_without_a_status_is_still_a_refusal(body: bytes) -> None:
    with pytest.raises(Forbidden, match="answered 403"):
        get(answers(403, body))


def test_the_servers_message_is_bounded_and_printable() -> None:
    with pytest.raises(Forbidden) as caught:
        get(answers(403, {"message": "\x1b[31m\n" + "x" * 10_000}))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with serving(answers(200, STORED)) as elsewhere:
        location = {"Location": f"https://{ADDRESS}:{elsewhere.port}/"}
        with pytest.raises(Rejected, match=f"answered {status}"):
            get(answers(status, b"", location))
    assert elsewhere.peers == []


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"5", b"null", b'"text"', b'{"a":' * 100_000, b"{" + b"9" * 10_000, b'{"a": "\xff"}'],
)
def test_an_answer_that_is_no_json_object_leaves_open_what_was_done(body: bytes) -> None:
    with pytest.raises(PerhapsDone, match="returned an answer that is no"):
        get(answers(200, body))


# What breaks.


def _cut_at_once(connection: Connection) -> None:
    reset(connection)


def _cut_behind_the_request(connection: Connection) -> None:
    connection.read()
    reset(connection)


def _close_behind_the_request(connection: Connection) -> None:
    connection.read()


def _cut_in_the_head(connection: Connection) -> None:
    connection.read()
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    reset(connection)


def _cut_in_the_body(connection: Connection) -> None:
    connection.read()
    connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"metadata": {')


def _cut_in_a_chunk(connection: Connection) -> None:
    connection.read()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{")


def _speak_no_http(connection: Connection) -> None:
    connection.read()
    connection.send(b"\x00\x1b[31m\xff" * 100)


def _bad_chunk_size(connection: Connection) -> None:
    connection.read()
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n")


@pytest.mark.parametrize(
    "behaviour",
    [
        _cut_at_once,
        _cut_behind_the_request,
        _close_behind_the_request,
        _cut_in_the_head,
        _cut_in_the_body,
        _cut_in_a_chunk,
        _speak_no_http,
        _bad_chunk_size,
    ],
    ids=lambda behaviour: behaviour.__name__.strip("_"),
)
def test_a_broken_connection_leaves_open_what_was_done(behaviour: Behaviour) -> None:
    with pytest.raises(PerhapsDone):
        get(behaviour)


# What does not end.


def _too_much(connection: Connection) -> None:
    connection.read()
    connection.send(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"a": "')
    connection.pour(b"x" * 65536)


def _too_large_a_refusal(connection: Connection) -> None:
    connection.read()
    connection.send(b'HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n{"message": "')
    connection.pour(b"x" * 65536)


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(PerhapsDone, match="answered more than"):
        get(_too_much)


def test_a_refusal_without_end_is_a_refusal() -> None:
    with pytest.raises(Forbidden, match="no message"):
        get(_too_large_a_refusal)


_SIZES: Final = [b"-1", b"-5", b"+5", b"0x5", b"1_0", b" 5", b"f" * 20]
"""``int()`` takes them all: -1 is read to the end of the stream, -5 is a ValueError, the last an OverflowError."""


def _sized(status: int, size: bytes) -> Behaviour:
    def behave(connection: Connection) -> None:
        connection.read()
        connection.send(b"HTTP/1.1 %d OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n" % (status, size))
        connection.pour(b"x" * 65536)

    return behave


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize(("status", "call"), [(200, get), (403, get), (200, watch)], ids=["get", "refusal", "watch"])
def test_a_chunk_of_a_size_that_is_none_is_not_read(
    status: int, call: Callable[[Behaviour], object], size: bytes
) -> None:
    with pytest.raises(PerhapsDone, match="broke: MalformedSize"):
        call(_sized(status, size))


def test_a_length_that_is_none_is_not_read_to_the_end() -> None:
    with pytest.raises(PerhapsDone, match="broke: MalformedSize"):
        get(_stream(b"x" * 65536, head=b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"))


def test_an_answer_on_which_the_library_stumbles_leaves_open_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api._Connection, "response_class", http.client.HTTPResponse)
    with pytest.raises(PerhapsDone, match="broke: ValueError"):
        get(_sized(200, b"-5"))


def _stream(data: bytes, pause: float = 0.0, head: bytes = b"") -> Behaviour:
    def behave(connection: Connection) -> None:
        connection.read()
        connection.send(head)
        connection.pour(data, pause=pause)

    return behave


@pytest.mark.parametrize("data", [b"X-More: and more\r\n", b"x" * 65536], ids=["many headers", "one header"])
def test_headers_without_end_are_given_up(data: bytes) -> None:
    with pytest.raises(PerhapsDone):
        get(_stream(data, head=b"HTTP/1.1 200 OK\r\nX-First: "))


_TRICKLE: Final = 0.005
"""Seconds between two bytes: no single read ever takes long."""


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("head", "data"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-First: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["promises", "header", "body", "chunks", "refusal"],
)
def test_an_answer_that_trickles_in_ends_with_the_calls_time(head: bytes, data: bytes) -> None:
    with pytest.raises(PerhapsDone, match="TimeoutError"):
        get(_stream(data, _TRICKLE, head))


@pytest.mark.usefixtures("soon")
def test_a_server_that_never_answers_is_given_up() -> None:
    def hang(connection: Connection) -> None:
        connection.read()
        connection.stay()

    with pytest.raises(PerhapsDone, match="TimeoutError"):
        get(hang)


# Watching.


def _event(type_: str, **content: Any) -> bytes:
    return json.dumps({"type": type_, "object": content}).encode() + b"\n"


def _watch_of(*parts: bytes, end: bool = True, then: Callable[[Connection], None] | None = None) -> Behaviour:
    def behave(connection: Connection) -> None:
        connection.read()
        connection.chunks(*parts)
        if end:
            connection.send(b"0\r\n\r\n")
        if then is not None:
            then(connection)

    return behave


def test_a_watch_gives_each_event_and_ends_when_the_server_ends_it() -> None:
    first, second = _event("ADDED", metadata={"name": "n"}), _event("MODIFIED", status={})
    # Chunks end anywhere, as the server's buffers do.
    whole = first + second
    events = watch(_watch_of(whole[:9], whole[9:]))
    assert events == [Event("ADDED", {"metadata": {"name": "n"}}), Event("MODIFIED", {"status": {}})]


def test_a_watch_asks_for_one_name_from_one_version_on_for_so_long() -> None:
    with serving(_watch_of()) as server:
        assert list(ApiServer(server.cluster(), TOKEN).watch("node-1", "42", seconds=30.9)) == []
    (line, *_) = server.requests[0].split(b"\r\n")
    for part in (b"watch=true", b"fieldSelector=metadata.name%3Dnode-1", b"resourceVersion=42", b"timeoutSeconds=30"):
        assert part in line


def test_a_watch_shows_the_error_that_the_server_tells() -> None:
    (event,) = watch(_watch_of(_event("ERROR", kind="Status", code=410)))
    assert (event.type, event.object["code"]) == ("ERROR", 410)


@pytest.mark.parametrize("status", [401, 403, 410])
def test_a_watch_that_is_refused_is_a_refusal(status: int) -> None:
    with pytest.raises(NotDone, match=f"answered {status}"):
        watch(answers(status, {"message": "no"}))


@pytest.mark.parametrize(
    "line", [b'{"type": "ADDED", "object": [1]}\n', b'{"type": "ADDED"}\n', b'{"type": "ADDED", "object": null}\n']
)
def test_an_event_without_an_object_has_an_empty_one(line: bytes) -> None:
    assert watch(_watch_of(line)) == [Event("ADDED", {})]


@pytest.mark.parametrize("line", [b"<html>\n", b"[]\n", b'{"type": "ADDED", "obj'])
def test_an_event_that_is_no_json_object_ends_the_watch(line: bytes) -> None:
    with pytest.raises(PerhapsDone):
        watch(_watch_of(line))


def test_a_watch_that_breaks_behind_an_event_gives_the_event_first() -> None:
    with serving(_watch_of(_event("ADDED"), b'{"type": "MODI', end=False)) as server:
        events = ApiServer(server.cluster(), TOKEN).watch("n", "7", seconds=5)
        assert next(events) == Event("ADDED", {})
        with pytest.raises(PerhapsDone):
            next(events)


def test_an_event_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MAXIMUM_ANSWER_BYTES", 100_000)
    with pytest.raises(PerhapsDone, match="answered more than"):
        watch(_watch_of(end=False, then=lambda connection: connection.pour(b"1000\r\n" + b"x" * 4096 + b"\r\n")))


@pytest.mark.usefixtures("soon")
def test_a_silent_watch_is_given_up() -> None:
    with pytest.raises(PerhapsDone, match="TimeoutError"):
        watch(_watch_of(end=False, then=Connection.stay))


@pytest.mark.usefixtures("soon")
def test_a_watch_that_chatters_on_behind_its_time_is_given_up() -> None:
    """Each read is quick; only all of them together take too long."""
    line = _event("BOOKMARK")
    chunk = b"%x\r\n%b\r\n" % (len(line), line)
    with pytest.raises(PerhapsDone, match="TimeoutError"):
        watch(_watch_of(end=False, then=lambda connection: connection.pour(chunk, pause=_TRICKLE)))


def intermediate_of(root: Issuer) -> Issuer:
    """A CA that another one vouches for, as a cluster's CA may be."""
    subject = Issuer.new("intermediate")
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject.certificate.subject)
        .issuer_name(root.certificate.subject)
        .public_key(subject.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(subject.certificate.not_valid_before_utc)
        .not_valid_after(subject.certificate.not_valid_after_utc)
    )
    for extension in subject.certificate.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    certificate = builder.sign(root.key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return Issuer.load(certificate, subject.key_pem)


def test_an_intermediate_authority_is_trusted_as_the_kubeconfig_names_it() -> None:
    """Go takes whatever stands in certificate-authority-data for a root, and so does the kubelet."""
    assert get(answers(200, STORED), issuer=intermediate_of(Issuer.new("root"))) == STORED
