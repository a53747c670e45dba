"""The clients of the webhook of access, as the flags name them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from signer.cli.access_webhook import webhook_clients
from signer.cli.parsers.arguments import add_access
from signer.configuration import InvalidConfiguration
from signer.controller.access_webhook_clients import ANY_CLIENT, CertifiedClients
from tests.support.certificates import CertificateAuthority


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_access(parser)
    return parser.parse_args(["--access-webhook-address=:9444", *arguments])


def test_any_client_unless_the_operator_names_authorities() -> None:
    assert webhook_clients(options()) == ANY_CLIENT


def test_clients_with_certificates_of_a_file(tmp_path: Path) -> None:
    authority = CertificateAuthority.like_cluster_api()
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.certificate_pem)
    found = webhook_clients(options(f"--access-webhook-client-ca={file}", "--access-webhook-client-names=one,two"))
    assert found == CertifiedClients(authority.certificate_pem.decode(), frozenset({"one", "two"}))
    file.write_bytes(authority.certificate_pem * 1000)
    with pytest.raises(InvalidConfiguration, match="--access-webhook-client-ca: the file is too large"):
        webhook_clients(options(f"--access-webhook-client-ca={file}"))
