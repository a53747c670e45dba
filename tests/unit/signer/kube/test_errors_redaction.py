"""Messages of API servers are quoted without credentials, and otherwise unchanged."""

from __future__ import annotations

import pytest

from signer.kube.errors import REDACTED, error_for_status, without_credentials


@pytest.mark.parametrize(
    ("said", "repeated"),
    [
        ("cannot store: Authorization: Bearer abc.def~1 sent", "cannot store: Authorization: [redacted] sent"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: [redacted]"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.c2ln is expired", "token [redacted] is expired"),
        ("token abcdef.0123456789abcdef is unknown", "token [redacted] is unknown"),
        ("key\n-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\nis odd", "key\n[redacted]\nis odd"),
        ("key -----BEGIN PRIVATE KEY-----\nMHcC", "key [redacted]"),
        (f"request {'QUJD' * 30} is odd", "request [redacted] is odd"),
    ],
)
def test_credentials_are_not_repeated(said: str, repeated: str) -> None:
    assert without_credentials(said) == repeated


@pytest.mark.parametrize(
    "said",
    [
        'certificatesigningrequests.certificates.k8s.io "csr-abc12" not found',
        'Operation cannot be fulfilled on machines.cluster.x-k8s.io "md-0-x7k2p": the object has been modified',
        'User "system:serviceaccount:node-attestation-system:node-attestation-controller" cannot list resource "csr"',
        f'identityreservations.attestation.cluster.x-k8s.io "identity-{"ab" * 32}" already exists',
        "etcdserver: request timed out",
    ],
)
def test_server_messages_without_credentials_are_unchanged(said: str) -> None:
    assert without_credentials(said) == said


def test_every_error_of_an_api_server_is_without_them() -> None:
    error = error_for_status(500, reason="InternalError", message="sent Bearer abcdef")
    assert "abcdef" not in str(error)
    assert REDACTED in str(error)


def test_tokens_are_ascii() -> None:
    """So that of many beginnings of a token (``eyJ\u00e9-eyJ\u00e9-...``) not each is followed to its end: a
    workload API server whose answers take a second to read would hold up the nodes of all other clusters.
    """
    said = "eyJ" + "\u00e9" * 8 + "." + "\u00e9" * 8
    assert without_credentials(said) == said


def test_only_the_beginning_of_an_endless_text_is_scanned() -> None:
    """A server may send millions of token prefixes: all clusters would wait for the scan."""
    hostile = "no " + "eyJ\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9-" * 400_000
    assert len(without_credentials(hostile)) < 5000


def test_a_credential_across_the_scan_limit_is_redacted() -> None:
    token = "abcdef.0123456789abcdef"
    said = f"{'-----BEGIN A-----' + 'x' * 4040 + '-----END A-----'} sent {token} and more {'.' * 100}"
    assert without_credentials(said) == f"{REDACTED} sent {REDACTED}"
