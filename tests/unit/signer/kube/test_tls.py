from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

import pytest

from signer.kube.connection import ClusterConnection
from signer.kube.tls import TlsMaterialRefused, client_context
from tests.unit.signer.kube.support import Authority, Pair


def _connection(authority: Authority, pair: Pair | None) -> ClusterConnection:
    return ClusterConnection(
        server="https://c1.example",
        certificate_authority=authority.certificate,
        client_certificate=pair.certificate if pair else None,
        client_key=pair.key if pair else None,
    )


def test_the_server_is_verified_and_old_tls_is_not_spoken(authority: Authority, client_pair: Pair) -> None:
    context = client_context(_connection(authority, client_pair))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_server_cannot_renegotiate_without_end(authority: Authority) -> None:
    """HelloRequest (RFC 5246 section 7.4.1.1), which Python's own server cannot send."""
    assert client_context(_connection(authority, None)).options & ssl.OP_NO_RENEGOTIATION


def test_a_server_cannot_choose_slow_parameters(authority: Authority) -> None:
    """Ten thousand bits of its own making for Diffie-Hellman were 0.6 seconds of the event loop."""
    context = client_context(_connection(authority, None))
    exchanges = {cipher["kea"] for cipher in context.get_ciphers()}
    assert exchanges == {"kx-any", "kx-ecdhe"}, "TLS 1.3 has named groups alone"


def test_only_the_given_authority_is_trusted(authority: Authority) -> None:
    assert client_context(_connection(authority, None)).cert_store_stats()["x509"] == 1


def test_the_key_leaves_no_file(
    authority: Authority, client_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    client_context(_connection(authority, client_pair))
    assert list(tmp_path.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) == before


def test_without_memfd_the_file_is_private_and_removed(
    authority: Authority, client_pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, path: str, password: object = None) -> None:
        modes.append(os.stat(path).st_mode & 0o777)
        load(context, path, password=password)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    client_context(_connection(authority, client_pair))
    assert modes == [0o600]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bundle", [b"", b"nothing", b"\xff", b"-----BEGIN CERTIFICATE-----\n"])
def test_an_authority_without_certificates_is_refused(bundle: bytes) -> None:
    with pytest.raises(TlsMaterialRefused, match="authority"):
        client_context(ClusterConnection(server="https://c1.example", certificate_authority=bundle))


def test_half_a_client_certificate_is_refused(authority: Authority, client_pair: Pair) -> None:
    with pytest.raises(TlsMaterialRefused, match="together"):
        client_context(
            ClusterConnection(
                server="https://c1.example",
                certificate_authority=authority.certificate,
                client_certificate=client_pair.certificate,
            )
        )
