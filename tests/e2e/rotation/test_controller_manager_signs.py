"""A real kube-controller-manager with the split flags of a rotation-ready template signs the rotation's canary."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from signer.kube.client import Client
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.bundles import is_issued_by
from signer.rotation.control_plane.readiness import ROTATION_DIRECTORY, required_flags
from signer.rotation.control_plane.template import Component
from signer.rotation.controller_manager import ask_controller_manager
from signer.rotation.facts import CanarySigner, NotObserved
from signer.rotation.phases import SigningPairs
from signer.rotation.secrets import NoPair, Pair, encoded, read_secret
from signer.rotation.signing_secret import signing_data
from tests.support.api_servers import ReplicatedControlPlane, replace_file
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_SERVING_SIGNER,
    condition,
    request_pem,
    signing_request,
    with_conditions,
)
from tests.unit.signer.rotation.servers.support import AUTHORITIES, NEW, OLD

pytestmark = [pytest.mark.real, pytest.mark.slow]
CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def pair(role: Role) -> Pair:
    """The bytes of Secret ``<cluster>-ca``."""
    made: Any = OLD if role is Role.OLD else NEW
    data = {"tls.crt": made.certificate_pem, "tls.key": made.key_pem}
    found = read_secret(AuthorityKind.CLUSTER, {"data": encoded(data)}).pair
    assert not isinstance(found, NoPair)
    return found


class SplitControllerManager:
    """It, with the flags of the template below a folder of its own."""

    def __init__(self, control_plane: ReplicatedControlPlane) -> None:
        self.folder = control_plane.folder / "rotation"
        self.folder.mkdir()
        self.hold(Role.OLD, Role.OLD)
        self.control_plane = control_plane
        self.manager = control_plane.start_controllers(["csrsigning"], split_flags(self.folder))

    def hold(self, client: Role, serving: Role) -> None:
        """What cloud-init writes from Secret ``<cluster>-signing``."""
        for name, content in signing_data(pair(client), pair(serving)).items():
            replace_file(self.folder / name, content)

    def ask(self, seconds: float = 30.0) -> CanarySigner | NotObserved:
        """The canary."""

        async def asked() -> CanarySigner | NotObserved:
            async with Client(self.control_plane.connection()) as client:
                return await ask_controller_manager(
                    client, AUTHORITIES, "abcdefgh", now=datetime.now(UTC), deadline_seconds=seconds
                )

        return asyncio.run(asked())


def split_flags(folder: Path) -> dict[str, object]:
    """The signing flags that a rotation-ready template must have, with the files in ``folder``."""
    return {
        one.name: one.value.replace(ROTATION_DIRECTORY, str(folder))
        for one in required_flags(Component.CONTROLLER_MANAGER, SigningPairs.SPLIT)
        if one.name.startswith("cluster-signing-")
    }


@pytest.fixture(scope="module")
def running() -> Iterator[SplitControllerManager]:
    old, new = (CertificateAuthority.from_pem(one.certificate_pem, one.key_pem) for one in (OLD, NEW))
    try:
        started = ReplicatedControlPlane(old, new, number=1)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        (server,) = started.servers
        server.accept(old, new)
        server.restart()
        yield SplitControllerManager(started)


def serving_certificate(running: SplitControllerManager, name: str) -> bytes:
    """One that kube-controller-manager signs for a kubelet, DER."""
    request = request_pem(f"system:node:{name}", alternative_names=[name])
    usages = ("digital signature", "key encipherment", "server auth")
    body = signing_request(name, request, signer=BUILTIN_SERVING_SIGNER, usages=usages)
    kubelet = running.control_plane.connection(user=f"system:node:{name}", groups=("system:nodes", "system:masters"))
    with RawClient(kubelet) as client:
        client.post(CSRS, body).expect(201)
        created = client.get(f"{CSRS}/{name}").body
        approved = with_conditions(created, condition("Approved"))
        client.put(f"{CSRS}/{name}/approval", approved).expect(200)

        def signed() -> bool:
            return bool(client.get(f"{CSRS}/{name}").body["status"].get("certificate"))

        wait_until(signed, "kube-controller-manager signs it")
        pem = base64.b64decode(client.get(f"{CSRS}/{name}").body["status"]["certificate"])
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def test_clients_by_the_new_ca_and_servers_by_the_old_one(running: SplitControllerManager) -> None:
    """Each Machine reads its pairs at its start; the purposes have different pairs in one process."""
    assert running.ask() is CanarySigner.OLD
    assert is_issued_by(serving_certificate(running, "before"), AUTHORITIES.old.certificate)
    running.hold(Role.NEW, Role.OLD)
    running.manager.restart()
    assert running.ask() is CanarySigner.NEW
    assert is_issued_by(serving_certificate(running, "clients"), AUTHORITIES.old.certificate)
    running.hold(Role.NEW, Role.NEW)
    running.manager.restart()
    assert is_issued_by(serving_certificate(running, "both"), AUTHORITIES.new.certificate)
    with RawClient(running.control_plane.connection()) as client:
        left = [one["metadata"]["name"] for one in client.get(CSRS).body["items"]]
    assert sorted(left) == ["before", "both", "clients"], "no canary is left"


def test_none_that_leads(running: SplitControllerManager) -> None:
    """One that is stopped, or exits at a bundle, signs nothing: the canary has a deadline."""
    running.manager.stop()
    found = running.ask(2.0)
    assert isinstance(found, NotObserved)
    assert "within 2 seconds" in found.message
