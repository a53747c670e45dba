"""One request, one connection: an answer counts only with the one server that gave it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.authority import IssuingSet
from signer.authority.canary_certificate import issue_canary
from signer.kube.canary import Trusted
from signer.kube.connection import ClusterConnection
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.resource_limits import ResourceLimits
from signer.rotation.servers import asking
from signer.rotation.servers.asking import Answered, Asker, NotConnected
from signer.rotation.servers.observation import Accepted
from tests.unit.signer.rotation.servers.support import AUTHORITIES


class _Transport:
    def presented_chain(self) -> tuple[bytes, ...]:
        return (b"leaf",)


@pytest.mark.parametrize(
    ("connections", "expected"),
    [
        (0, NotConnected("no certificate belongs to the answer")),
        (1, Answered((b"leaf",), Accepted())),
        (2, NotConnected("no certificate belongs to the answer")),
    ],
)
async def test_an_answer_needs_its_one_connection(
    monkeypatch: pytest.MonkeyPatch, connections: int, expected: object
) -> None:
    """Nothing repeats the request today. An answer after two connections might come from either server."""

    async def ask(*given: Any, on_connect: Callable[[TlsTransport | _Transport], None], **others: Any) -> Trusted:
        for _ in range(connections):
            on_connect(_Transport())
        return Trusted(serving_chains=True)

    monkeypatch.setattr(asking, "ask_once", ask)
    canary = issue_canary(IssuingSet.of(AUTHORITIES.old), datetime.now(UTC))
    authorities = (AUTHORITIES.old, AUTHORITIES.new)
    endpoint = ClusterConnection("https://127.0.0.1:6443", b"")
    asker = Asker.of(canary, endpoint, authorities, ResourceLimits.unlimited())
    assert await asker.ask_endpoint() == expected


def test_the_kubeconfigs_credentials_are_not_used() -> None:
    canary = issue_canary(IssuingSet.of(AUTHORITIES.old), datetime.now(UTC))
    endpoint = ClusterConnection(
        "https://127.0.0.1:6443", b"no PEM", client_certificate=b"x", client_key=b"y", bearer_token="secret"
    )
    asker = Asker.of(canary, endpoint, (AUTHORITIES.old, AUTHORITIES.new), ResourceLimits.unlimited())
    assert (asker.endpoint.bearer_token, asker.endpoint.client_certificate) == (None, None)
    assert asker.endpoint.certificate_authority.count(b"BEGIN CERTIFICATE") == 2
