"""The watcher sees certificates and detects invalid measurements; on the embedded API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from cryptography.exceptions import InvalidSignature

from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import BlockingClient
from tests.bench.drain import NotIssued, Watcher
from tests.support.certificates import CertificateAuthority
from tests.support.signing_requests import condition, signing_request, with_certificate, with_conditions

COLLECTION = CERTIFICATE_SIGNING_REQUESTS.collection()


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.like_cluster_api()


@pytest.fixture
def client(authority: CertificateAuthority) -> Iterator[BlockingClient]:
    with (
        EmbeddedAPI(ca_certificate=authority.certificate_pem, ca_key=authority.key_pem) as api,
        BlockingClient(api.connection()) as opened,
    ):
        yield opened


@pytest.fixture
def decider() -> Iterator[subprocess.Popen[bytes]]:
    """A process that decides nothing, and ends with its input."""
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def watcher(client: BlockingClient) -> Watcher:
    """A watcher of two existing requests."""
    for name in ("one", "two"):
        client.create(COLLECTION, signing_request(name))
    return Watcher(client._connection, ["one", "two"]).watch()


def decide(client: BlockingClient, name: str, kind: str) -> JsonObject:
    request = client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
    path = CERTIFICATE_SIGNING_REQUESTS.object(name, subresource="approval")
    return client.replace(path, with_conditions(request, condition(kind)))


def issue(client: BlockingClient, name: str, authority: CertificateAuthority) -> None:
    certificate, _ = authority.issue_client("system:node:one", ["system:nodes"])
    path = CERTIFICATE_SIGNING_REQUESTS.object(name, subresource="status")
    client.replace(path, with_certificate(decide(client, name, "Approved"), certificate))


def test_it_waits_for_every_certificate_and_checks_the_issuer(
    client: BlockingClient, watcher: Watcher, decider: subprocess.Popen[bytes], authority: CertificateAuthority
) -> None:
    issue(client, "one", authority)
    issue(client, "two", authority)
    watcher.wait(decider)
    assert list(watcher.seen) == ["one", "two"]
    assert (watcher.first, watcher.last) == (watcher.seen["one"], watcher.seen["two"])
    watcher.check_issued_by(authority.key_pem)
    with pytest.raises(InvalidSignature):
        watcher.check_issued_by(CertificateAuthority.like_cluster_api().key_pem)


def test_a_denied_request_ends_the_measurement(
    client: BlockingClient, watcher: Watcher, decider: subprocess.Popen[bytes], authority: CertificateAuthority
) -> None:
    issue(client, "one", authority)
    decide(client, "two", "Denied")
    with pytest.raises(NotIssued, match="two: Denied, Conformance: tried"):
        watcher.wait(decider)


@pytest.mark.slow
def test_a_deciding_process_that_ends_ends_the_measurement(watcher: Watcher, decider: subprocess.Popen[bytes]) -> None:
    decider.terminate()
    with pytest.raises(NotIssued, match="the deciding process ended with -15"):
        watcher.wait(decider)
