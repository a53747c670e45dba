"""The conversation with the metadata service: version 2, patient, and with nobody else."""

from __future__ import annotations

import socket

import pytest

from attestors.aws.node import deadline as timeout
from attestors.aws.node.instance_metadata import MAXIMUM_ANSWER_BYTES, InstanceMetadata, MetadataMissing
from attestors.aws.node.settings import MetadataEndpoint
from attestors.contract import EvidenceUnavailable
from tests.support.fake_instance_metadata import (
    DOCUMENT_PATH,
    TOKEN_PATH,
    Answer,
    FakeInstanceMetadata,
    Hang,
    Reset,
)


def ask(metadata: FakeInstanceMetadata, *paths: str) -> list[bytes]:
    client = InstanceMetadata(MetadataEndpoint("127.0.0.1", metadata.port))
    return [client.get(path) for path in paths]


def refused(metadata: FakeInstanceMetadata, match: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=match):
        ask(metadata, DOCUMENT_PATH)


def test_one_token_for_all_questions(metadata: FakeInstanceMetadata) -> None:
    assert ask(metadata, DOCUMENT_PATH, DOCUMENT_PATH) == 2 * [metadata.pages[DOCUMENT_PATH]]
    assert [(asked.method, asked.path) for asked in metadata.asked] == [
        ("PUT", TOKEN_PATH),
        ("GET", DOCUMENT_PATH),
        ("GET", DOCUMENT_PATH),
    ]
    assert metadata.asked[0].headers["x-aws-ec2-metadata-token-ttl-seconds"] == "60"
    assert {asked.headers["x-aws-ec2-metadata-token"] for asked in metadata.asked[1:]} == metadata.tokens


def test_never_without_a_token(metadata: FakeInstanceMetadata) -> None:
    """Version 1 is not what is left when version 2 fails."""
    for status in (400, 404, 405):
        metadata.instead(TOKEN_PATH, Answer(status))
        refused(metadata, f"answers /latest/api/token with HTTP status {status}$")
    assert metadata.paths() == []


def test_a_token_that_has_run_out(metadata: FakeInstanceMetadata) -> None:
    client = InstanceMetadata(MetadataEndpoint("127.0.0.1", metadata.port))
    client.get(DOCUMENT_PATH)
    metadata.tokens.clear()
    assert client.get(DOCUMENT_PATH) == metadata.pages[DOCUMENT_PATH]


def test_a_token_that_is_never_taken(metadata: FakeInstanceMetadata) -> None:
    metadata.instead(DOCUMENT_PATH, *3 * [Answer(401)])
    refused(metadata, f"answers {DOCUMENT_PATH} with HTTP status 401$")
    assert len(metadata.paths()) == 2


@pytest.mark.parametrize("token", [b"", b"a b", b"a\r\nX-Evil: 1", b"a\n", "é".encode(), b"x" * 1025])
def test_a_token_that_is_none(metadata: FakeInstanceMetadata, token: bytes) -> None:
    metadata.instead(TOKEN_PATH, Answer(200, token))
    refused(metadata, "returns an unusable token$")
    assert metadata.paths() == []


def test_turned_off(metadata: FakeInstanceMetadata) -> None:
    metadata.instead(TOKEN_PATH, Answer(403))
    refused(metadata, "is turned off: enable it for this instance .*--http-endpoint enabled --http-tokens required")


def test_nothing_there(metadata: FakeInstanceMetadata) -> None:
    with pytest.raises(MetadataMissing, match="has no /latest/meta-data/nothing"):
        ask(metadata, "/latest/meta-data/nothing")


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_throttled_for_a_while(metadata: FakeInstanceMetadata, status: int) -> None:
    metadata.instead(TOKEN_PATH, Answer(status))
    metadata.instead(DOCUMENT_PATH, Answer(status), Reset(), Answer(status))
    assert ask(metadata, DOCUMENT_PATH) == [metadata.pages[DOCUMENT_PATH]]
    assert len(metadata.paths()) == 4


def test_throttled_for_ever(metadata: FakeInstanceMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "TIMEOUT_SECONDS", 0.0)
    metadata.instead(DOCUMENT_PATH, Answer(503))
    refused(metadata, f"answers {DOCUMENT_PATH} with HTTP status 503$")
    assert len(metadata.paths()) == 1


def test_broken_off(metadata: FakeInstanceMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "TIMEOUT_SECONDS", 0.0)
    metadata.instead(DOCUMENT_PATH, Reset())
    refused(metadata, r"cannot be reached at 127.0.0.1 port \d+ \(.*\): is this an EC2 instance\?$")


def test_no_answer(metadata: FakeInstanceMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(timeout, "REQUEST_SECONDS", 0.05)
    metadata.instead(TOKEN_PATH, Hang())
    refused(metadata, "no answer. In a container, the hop limit of this instance may be too small: run this program on")


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "TIMEOUT_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    client = InstanceMetadata(MetadataEndpoint("127.0.0.1", port))
    with pytest.raises(EvidenceUnavailable, match=r"\(ConnectionRefusedError\): is this an EC2 instance\?"):
        client.get(DOCUMENT_PATH)


def test_a_service_that_comes_up_late(metadata: FakeInstanceMetadata) -> None:
    metadata.instead(TOKEN_PATH, *5 * [Reset()])
    assert ask(metadata, DOCUMENT_PATH) == [metadata.pages[DOCUMENT_PATH]]


@pytest.mark.parametrize("status", [301, 302, 307])
def test_redirects_are_not_followed(metadata: FakeInstanceMetadata, status: int) -> None:
    with FakeInstanceMetadata() as other:
        metadata.instead(DOCUMENT_PATH, Answer(status, b"", {"Location": other.url + DOCUMENT_PATH}))
        refused(metadata, f"answers {DOCUMENT_PATH} with HTTP status {status}$")
        assert other.asked == []


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_proxies_are_not_used(metadata: FakeInstanceMetadata, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with FakeInstanceMetadata() as proxy:
        monkeypatch.setenv(variable, proxy.url)
        ask(metadata, DOCUMENT_PATH)
        assert proxy.asked == []
    assert metadata.paths() == [DOCUMENT_PATH]


def test_answers_are_bounded(metadata: FakeInstanceMetadata) -> None:
    metadata.pages[DOCUMENT_PATH] = b"x" * MAXIMUM_ANSWER_BYTES
    assert ask(metadata, DOCUMENT_PATH) == [metadata.pages[DOCUMENT_PATH]]
    metadata.pages[DOCUMENT_PATH] += b"x"
    refused(metadata, f"answers {DOCUMENT_PATH} with too many bytes")


@pytest.mark.parametrize("size", [b"-1", b"-5"])
def test_a_chunk_of_a_size_that_is_none_is_not_read(
    metadata: FakeInstanceMetadata, monkeypatch: pytest.MonkeyPatch, size: bytes
) -> None:
    """With -1, everything would be read into memory; with -5, a ValueError would end the program."""
    monkeypatch.setattr(timeout, "TIMEOUT_SECONDS", 0.0)
    poured = size + b"\r\n" + b"x" * 10 * MAXIMUM_ANSWER_BYTES
    metadata.instead(DOCUMENT_PATH, Answer(200, poured, {"Transfer-Encoding": "chunked"}))
    refused(metadata, r"cannot be reached .* \(MalformedSize\)")


def test_patience() -> None:
    assert timeout.REQUEST_SECONDS < timeout.TIMEOUT_SECONDS <= 10
