"""The table of kubeconfigs, as the node and the controller read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from authenticator.model.kubeconfig import UnusableKubeconfig, parse_bootstrap
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.support.kubeconfig_forms import READ, Form, Forms

TOKEN = "abcdef.0123456789abcdef"
FORMS = Forms(
    "https://127.0.0.1:6443",
    new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).certificate,
    TOKEN,
)


def no_file(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def of_node(text: bytes) -> tuple[str, bytes, str]:
    bootstrap = parse_bootstrap(text, no_file)
    return bootstrap.cluster.server, bootstrap.cluster.certificate_authority.encode(), bootstrap.digest


def of_controller(text: bytes) -> tuple[str, bytes, str | None]:
    connection = parse_kubeconfig(text)
    return connection.server, connection.certificate_authority, connection.bearer_token


def read_or_refused(text: bytes, read: Callable[[bytes], tuple[str, bytes, str | None]], expected: str) -> None:
    if expected == READ:
        server, authorities, token = read(text)
        assert (server, token) == (read(FORMS.plain())[0], read(FORMS.plain())[2])
        assert authorities.replace(FORMS.certificate_authority, b"") == b""
        return
    with pytest.raises((UnusableKubeconfig, KubeconfigRefused), match=expected) as refused:
        read(text)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("form", FORMS.all(), ids=lambda form: form.name)
def test_the_node(form: Form) -> None:
    read_or_refused(form.text, of_node, form.node)


@pytest.mark.parametrize("form", FORMS.all(), ids=lambda form: form.name)
def test_the_controller(form: Form) -> None:
    read_or_refused(form.text, of_controller, form.controller)


def test_every_form_has_a_name() -> None:
    names = [form.name for form in FORMS.all()]
    assert len(set(names)) == len(names) > 80
