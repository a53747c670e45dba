"""The table of kubeconfigs before a judge: the real kubectl, which reads them with the client-go of a kubelet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from signer.testing.api import EmbeddedAPI
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubeconfig_forms import Form, Forms
from tests.support.kubectl import find_kubectl

pytestmark = pytest.mark.slow


def test_client_go_reads_what_the_table_says(tmp_path: Path) -> None:
    try:
        kubectl = find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)

    def is_read(form: Form) -> bool:
        path = tmp_path / "kubeconfig"
        path.write_bytes(form.text)
        flags = [f"--kubeconfig={path}", f"--cache-dir={tmp_path / 'cache'}", "--request-timeout=10s"]
        environment = {"PATH": "", "HOME": str(tmp_path)}
        done = subprocess.run(
            [kubectl, *flags, "get", "--raw=/version"], capture_output=True, check=False, timeout=60, env=environment
        )
        return done.returncode == 0

    with EmbeddedAPI() as api:
        token = api.token_connection(api.bootstrap_token()).bearer_token
        assert token is not None
        forms = Forms(api.server, api.ca_certificate_pem, token).all()
        wrong = [form.name for form in forms if is_read(form) is not form.client_go]
    assert wrong == []


def test_what_client_go_does_not_read_is_read_for_a_reason() -> None:
    """Whatever else client-go refuses, the node and the controller refuse too."""
    forms = Forms(
        "https://127.0.0.1:6443", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "t"
    ).all()
    more = {form.name for form in forms if not form.client_go and "" in (form.node, form.controller)}
    assert more == {
        "CA file and data",  # client-go calls it ambiguous; inline data wins
        "token with a line end",  # client-go would put it into a header
    }
