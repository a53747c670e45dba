from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pytest

from signer.access.containers.credential import (
    MINIMUM_RENEWAL_SECONDS,
    Credential,
    render_kubeconfig,
    request_credential,
)
from signer.kube.connection import ClusterConnection
from signer.kube.errors import UnexpectedAnswer
from signer.kube.kubeconfig import parse_kubeconfig
from signer.model.fields import format_time
from signer.testing.certificates import new_cluster_certificate_authority

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


class Answers:
    """An API server that answers so."""

    def __init__(self, status: Any) -> None:
        self.status = status
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        return {"status": self.status}


def given(lifetime: timedelta, random: Random | None = None) -> Credential:
    status = {"token": "abc.def", "expirationTimestamp": format_time(NOW + lifetime)}
    return asyncio.run(request_credential(Answers(status), "uid", NOW, random or Random(0)))


def test_a_day_is_asked_for() -> None:
    answers = Answers({"token": "abc", "expirationTimestamp": format_time(NOW + 24 * HOUR)})
    credential = asyncio.run(request_credential(answers, "uid", NOW, Random(0)))
    ((path, body),) = answers.asked
    assert path == "/api/v1/namespaces/node-access/serviceaccounts/node-access-gateway/token"
    assert body["spec"] == {"expirationSeconds": 86400}, "the API server itself is the audience"
    assert (credential.token, credential.account_uid, credential.expires) == ("abc", "uid", NOW + 24 * HOUR)


def test_it_is_renewed_at_half_of_its_life_and_not_in_step() -> None:
    renewals = {given(24 * HOUR, Random(seed)).renewed - NOW for seed in range(50)}
    assert len(renewals) == 50
    assert 12 * HOUR * 0.8 <= min(renewals) <= max(renewals) <= 12 * HOUR


def test_a_shorter_token_is_renewed_earlier() -> None:
    assert given(HOUR).renewed - NOW <= HOUR / 2


def test_a_longer_token_is_renewed_as_one_of_a_day() -> None:
    """A hostile API server does not stop the renewals."""
    assert given(timedelta(days=36500)).renewed - NOW <= 12 * HOUR


@pytest.mark.parametrize("lifetime", [timedelta(seconds=1), timedelta(0), -HOUR])
def test_a_token_that_ends_at_once_is_not_asked_for_all_the_time(lifetime: timedelta) -> None:
    assert (given(lifetime).renewed - NOW).total_seconds() == MINIMUM_RENEWAL_SECONDS


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        {},
        {"token": "abc"},
        {"token": "abc", "expirationTimestamp": "tomorrow"},
        {"token": "abc", "expirationTimestamp": 7},
        {"token": "", "expirationTimestamp": "2026-01-02T00:00:00Z"},
        {"token": 7, "expirationTimestamp": "2026-01-02T00:00:00Z"},
        {"token": "a b", "expirationTimestamp": "2026-01-02T00:00:00Z"},
        {"token": "a\r\nImpersonate-Group: system:masters", "expirationTimestamp": "2026-01-02T00:00:00Z"},
        {"token": "a" * 16385, "expirationTimestamp": "2026-01-02T00:00:00Z"},
    ],
)
def test_an_answer_without_a_token_is_no_credential(status: Any) -> None:
    with pytest.raises(UnexpectedAnswer) as refused:
        asyncio.run(request_credential(Answers(status), "uid", NOW, Random(0)))
    assert "Impersonate" not in str(refused.value)


@pytest.mark.parametrize("server_name", [None, "kubernetes.default.svc"])
def test_the_kubeconfig_is_one_that_the_gateway_takes(server_name: str | None) -> None:
    bundle = new_cluster_certificate_authority().certificate
    server = ClusterConnection("https://10.0.0.1:6443", bundle, server_name, b"c", b"k", "controller-token")
    credential = Credential("abc.def", "uid", NOW, NOW)
    text = render_kubeconfig(server, credential)
    read = parse_kubeconfig(text)
    assert (read.server, read.tls_server_name, read.bearer_token) == (server.server, server_name, "abc.def")
    assert read.certificate_authority.split() == bundle.split()
    assert read.client_certificate is None
    assert b"controller-token" not in text
    assert "abc.def" not in repr(credential)
