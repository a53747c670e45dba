"""The fake Google accepts and refuses requests as documented by Google."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from google.auth import jwt

from tests.support.fake_google import FakeGoogle, FakeInstance, Fault, Service

IDENTITY = "/computeMetadata/v1/instance/service-accounts/default/identity"
FLAVOR = {"Metadata-Flavor": "Google"}


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as running:
        yield running


def fetch(url: str, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(url, headers=headers or {})  # noqa: S310 - the fake's own
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return bytes(answer.read())


def refused(url: str, headers: dict[str, str] | None = None) -> int:
    with pytest.raises(HTTPError) as caught:
        fetch(url, headers)
    caught.value.close()
    return caught.value.code


def test_an_identity_token_verifies_with_the_published_certificates(google: FakeGoogle) -> None:
    node = google.add(FakeInstance())
    token = fetch(f"{google.metadata_of(node)}{IDENTITY}?audience=me&format=full", FLAVOR)
    certificates: dict[str, Any] = json.loads(fetch(google.pem_certificates_url))
    claims = jwt.decode(token, certs=certificates, audience="me")
    assert claims["google"]["compute_engine"]["instance_id"] == node.instance_id
    assert jwt.decode_header(token)["kid"] in {key["kid"] for key in json.loads(fetch(google.jwks_url))["keys"]}


def test_the_standard_format_names_no_instance(google: FakeGoogle) -> None:
    token = fetch(f"{google.metadata_of(FakeInstance())}{IDENTITY}?audience=me", FLAVOR)
    assert "google" not in jwt.decode(token, verify=False)


def test_keys_rotate(google: FakeGoogle) -> None:
    token = google.identity_token(FakeInstance(), "me")
    google.rotate_keys()
    assert jwt.decode(token, certs=json.loads(fetch(google.pem_certificates_url)))
    google.rotate_keys()
    with pytest.raises(ValueError, match="Certificate for key id"):
        jwt.decode(token, certs=json.loads(fetch(google.pem_certificates_url)))


def test_the_metadata_server_requires_its_header(google: FakeGoogle) -> None:
    name = f"{google.metadata_of(FakeInstance())}/computeMetadata/v1/instance/name"
    assert fetch(name, FLAVOR) == b"worker-1"
    assert refused(name) == 403
    assert refused(name, {**FLAVOR, "X-Forwarded-For": "192.0.2.1"}) == 403
    assert refused(name + "s", FLAVOR) == 404
    assert refused(name.replace("instance/name", "instance/service-accounts/default/identity"), FLAVOR) == 400


def test_each_instance_has_its_own_metadata_server(google: FakeGoogle) -> None:
    servers = [google.metadata_of(google.add(FakeInstance(name=name))) for name in ("worker-1", "worker-2")]
    names = [fetch(f"{server}/computeMetadata/v1/instance/name", FLAVOR) for server in servers]
    assert names == [b"worker-1", b"worker-2"]


def test_faults_are_per_service_and_counted(google: FakeGoogle) -> None:
    google.fail(Service.CERTIFICATES, Fault.status(503), times=2)
    assert refused(google.jwks_url) == 503
    assert fetch(f"{google.metadata_of(FakeInstance())}/computeMetadata/v1/instance/name", FLAVOR) == b"worker-1"
    assert refused(google.jwks_url) == 503
    assert fetch(google.jwks_url)
    assert google.counts()[Service.CERTIFICATES] == 3
    google.fail(Service.CERTIFICATES, Fault.throttled())
    assert refused(google.jwks_url) == 429
    google.mend(Service.CERTIFICATES)
    assert fetch(google.jwks_url)


def test_compute_requires_its_own_token(google: FakeGoogle) -> None:
    node = google.add(FakeInstance())
    url = f"{google.compute_url}/projects/{node.project}/zones/{node.zone}/instances/{node.name}"
    assert refused(url) == 401
    assert refused(url, {"Authorization": "Bearer ya29.forged"}) == 401
    good = {"Authorization": f"Bearer {google.accounts.issue('me')}"}
    assert json.loads(fetch(url, good))["id"] == node.instance_id
    assert "metadata" not in json.loads(fetch(f"{url}?fields=id,networkInterfaces(a(b)),name", good))
    assert refused(f"{url}0", good) == 404
    google.delete(node)
    assert refused(url, good) == 404


def test_the_token_endpoint_checks_the_assertion(google: FakeGoogle) -> None:
    for body in (b"grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=a.b.c", b"grant_type=password"):
        request = urllib.request.Request(google.accounts.key_document(google.base_url)["token_uri"], body)  # noqa: S310
        with pytest.raises(HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)  # noqa: S310 - the fake's own
        caught.value.close()
        assert caught.value.code == 400
