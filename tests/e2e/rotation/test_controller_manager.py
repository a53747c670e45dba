"""T9: what kube-controller-manager reads when: a rotation relies on it, so a version that differs fails here."""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
from collections.abc import Iterator

import pytest
from cryptography import x509

from tests.support.api_servers import ControllerManager, ReplicatedControlPlane, replace_file
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.processes import ProgramFailed, wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, request_pem, signing_request

pytestmark = [pytest.mark.real, pytest.mark.slow]

SIGNER = "kubernetes.io/kube-apiserver-client"
RELOAD_SECONDS = 150.0
"""It looks at its signing pair once a minute; met between the two files, it looks a second time."""
SIGNED_SECONDS = 5.0
BUNDLE_REFUSED = "expected 1 certificate, found 2"
ROOT_CA = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
minutes = pytest.mark.skipif(
    "NODE_ATTESTATION_ROTATION" not in os.environ, reason="waits for two looks of a minute each: make rotation"
)


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ReplicatedControlPlane]:
    old, new = CertificateAuthority.like_cluster_api(), CertificateAuthority.like_cluster_api()
    try:
        started = ReplicatedControlPlane(old, new, number=1)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


@pytest.fixture
def manager(control_plane: ReplicatedControlPlane) -> Iterator[ControllerManager]:
    try:
        manager = control_plane.start_controllers(["csrsigning", "root-ca-cert-publisher"])
    except MissingPart as missing:
        skip_or_fail(missing)
    yield manager
    manager.stop()


@pytest.fixture
def client(control_plane: ReplicatedControlPlane) -> Iterator[RawClient]:
    with RawClient(control_plane.connection()) as client:
        yield client


_NAMES = (f"canary-{number}" for number in itertools.count())


def approved(client: RawClient) -> str:
    """A new request, which the signer may sign; returns its name."""
    name = next(_NAMES)
    usages = ("digital signature", "client auth")
    body = signing_request(name, request_pem("canary", ()), signer=SIGNER, usages=usages)
    made = client.post(COLLECTION, body).expect(201)
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "canary"}]}
    client.put(f"{COLLECTION}/{name}/approval", made).expect(200)
    return name


def certificate_of(client: RawClient, name: str) -> bytes:
    """PEM; empty as long as it is not signed."""
    status = client.get(f"{COLLECTION}/{name}").expect(200)["status"]
    return base64.b64decode(status.get("certificate", ""))


def signed(client: RawClient) -> bytes:
    """What it signs now, PEM; empty if it signs nothing."""
    name = approved(client)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: bool(certificate_of(client, name)), "the request is signed", SIGNED_SECONDS)
    return certificate_of(client, name)


def is_by(certificate: bytes, authority: CertificateAuthority) -> bool:
    """By its key: both CAs have the same name."""
    if not certificate:
        return False
    parsed = x509.load_pem_x509_certificate(certificate)
    identifier = parsed.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    return identifier.key_identifier == authority.key_identifier


def start_and_end(control_plane: ReplicatedControlPlane, manager: ControllerManager) -> None:
    """Raises ``ProgramFailed`` when it ends. It may answer for a second before."""

    def is_over() -> bool:
        control_plane.check_running()
        return False

    manager.start()
    wait_until(is_over, "it ends")


def log(control_plane: ReplicatedControlPlane) -> str:
    """What it has written."""
    return (control_plane.folder / "kube-controller-manager.log").read_text(errors="replace")


def test_it_does_not_start_with_a_bundle_as_its_signing_certificate(
    control_plane: ReplicatedControlPlane, manager: ControllerManager, client: RawClient
) -> None:
    """Therefore Secret ``<cluster>-ca`` never holds two certificates."""
    wait_until(lambda: is_by(signed(client), control_plane.old), "it signs")
    manager.stop()
    bundle = control_plane.old.certificate_pem + control_plane.new.certificate_pem
    replace_file(manager.folder / "ca.crt", bundle)
    with pytest.raises(ProgramFailed, match="kube-controller-manager ended with 255"):
        start_and_end(control_plane, manager)
    assert BUNDLE_REFUSED in log(control_plane)
    manager.sign_by(control_plane.new)
    manager.start()
    wait_until(lambda: is_by(signed(client), control_plane.new), "it signs")


@minutes
def test_what_a_running_one_reads_again(
    control_plane: ReplicatedControlPlane, manager: ControllerManager, client: RawClient
) -> None:
    """The signing pair, and not the CAs for ``kube-root-ca.crt``. With a bundle it signs nothing, and goes on."""
    old = control_plane.old.certificate_pem.decode()
    wait_until(lambda: client.get(ROOT_CA).body.get("data", {}).get("ca.crt") == old, "the old CA is published")
    wait_until(lambda: is_by(signed(client), control_plane.old), "it signs")
    before = log(control_plane).count(BUNDLE_REFUSED)

    manager.publish(control_plane.new, control_plane.old)
    replace_file(manager.folder / "ca.crt", control_plane.old.certificate_pem + control_plane.new.certificate_pem)
    wait_until(
        lambda: not signed(client) and log(control_plane).count(BUNDLE_REFUSED) > before,
        "it signs nothing any more, and says why",
        RELOAD_SECONDS,
    )

    manager.sign_by(control_plane.new)
    wait_until(lambda: is_by(signed(client), control_plane.new), "it signs with the new pair", RELOAD_SECONDS)
    assert client.get(ROOT_CA).expect(200)["data"]["ca.crt"] == old, "read at the start alone"

    manager.restart()
    both = control_plane.new.certificate_pem.decode() + old
    wait_until(lambda: client.get(ROOT_CA).body["data"]["ca.crt"] == both, "both CAs are published after a restart")
