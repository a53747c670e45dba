"""A real kube-apiserver presents a client certificate to the webhook of access, by the files of docs/access.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from signer.access.admission import messages
from signer.controller.access_webhook_clients import parse_client_authorities
from signer.controller.telemetry.metrics import Metrics
from signer.kube.resources import VALIDATING_WEBHOOKS
from tests.documents.markdown import ROOT, blocks
from tests.e2e.test_access_admission import install_webhook, serving
from tests.support.access_requests import BOB, CASES, GROUPS, NAMESPACE
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient
from tests.support.record_access_reviews import prepare
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.real, pytest.mark.slow]

FOLDER: Final = "/etc/kubernetes/admission/"
SERVICE: Final = "node-attestation-access-webhook.node-attestation-system.svc"
NAME: Final = "api-server-for-webhooks"


@pytest.fixture
def control_plane() -> Iterator[ControlPlane]:
    """One of its own: the test restarts its API server."""
    try:
        made = ControlPlane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with made:
        yield made


def write_files(folder: Path, host: str, certificate: tuple[bytes, bytes]) -> Path:
    """The files of the document, for a webhook at ``host``; returns the path of the first."""
    texts = [block.text for block in blocks(ROOT / "docs/access.md") if FOLDER in block.text]
    for text in texts:
        name = text.split(FOLDER, 1)[1].split("\n", 1)[0]
        (folder / name).write_text(text.replace(FOLDER, f"{folder}/").replace(SERVICE, host))
    for name, content in zip(("access-webhook.crt", "access-webhook.key"), certificate, strict=True):
        (folder / name).write_bytes(content)
    (configuration,) = (one for one in folder.glob("*.yaml"))
    assert safe_load(configuration.read_text())["kind"] == "AdmissionConfiguration"
    return configuration


def test_the_api_server_presents_its_certificate(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Before it does, it gets no answer, and so lets no object of access pass."""
    authority, metrics = CertificateAuthority.like_cluster_api(), Metrics()
    clients = parse_client_authorities(authority.certificate_pem, frozenset({NAME}))
    (case,) = (case for case in CASES if case.name == "create-in-foreign-name")
    with RawClient(control_plane.connection()) as admin:
        prepare(control_plane, admin)
        with serving(control_plane, admin, metrics, clients) as port:
            install_webhook(admin, VALIDATING_WEBHOOKS, port)

            def answer() -> Answer:
                with RawClient(control_plane.connection(BOB, GROUPS[BOB])) as bob:
                    return bob.post(case.resource.collection(NAMESPACE), case.manifest, dryRun="All")

            def is_left_alone() -> bool:
                """By a webhook that the API server trusts."""
                said = answer().message
                return "failed calling webhook" in said and "unknown authority" not in said

            wait_until(is_left_alone, "the webhook does not answer the API server without certificate")
            foreign = authority.issue_client("system:node:worker-1", ())
            configuration = write_files(tmp_path, f"localhost:{port}", foreign)
            control_plane.restart(f"--admission-control-config-file={configuration}")
            wait_until(lambda: "not of an admitted name" in answer().message, "another name is not answered")
            write_files(tmp_path, f"localhost:{port}", authority.issue_client(NAME, ()))
            control_plane.restart()
            wait_until(lambda: messages.NOT_YOUR_NAME in answer().message, "the API server is answered")
    assert metrics.access_webhook_requests.labels("/validate", "foreign_client")._value.get() > 0
    assert metrics.access_webhook_requests.labels("/validate", "refused")._value.get() > 0
