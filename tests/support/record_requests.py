"""Records requests as a real kube-apiserver stores them: ``python -m tests.support.record_requests FOLDER``.

For ``fixtures/requests``. It needs etcd and kube-apiserver (see ``tests.support.binaries``) and the example attestor
(``pip install --no-deps -e tests/attestor_plugin``). It never overwrites a recording.
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from keyed_mac.keys import derive_machine_key

from attestors.wire import binding
from attestors.wire.binding import CACertHash
from attestors.wire.names import EVIDENCE_VERSION, Purpose, SignerName
from signer.kube.connection import ClusterConnection
from signer.testing.nodes import SimulatedNode
from tests.support.control_plane import ControlPlane
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION

PROVIDER: Final = "keyed-mac"
NODE_NAME: Final = "node-1"
PROVIDER_ID: Final = "example://rack-7/machine-12"


def record(folder: Path) -> list[Path]:
    """Write ``client.json`` and ``serving.json`` into ``folder``; returns their paths.

    Raises:
        FileExistsError: a recording exists.
        MissingPart: etcd or kube-apiserver is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {purpose: folder / f"{purpose.value}.json" for purpose in Purpose}
    for file in files.values():
        if file.exists():
            raise FileExistsError(f"{file} is recorded already, and a recording is never replaced")
    master_key = secrets.token_bytes(32)
    with ControlPlane() as control_plane:
        control_plane.seed_kubeadm()
        for purpose, file in files.items():
            recording = _record(control_plane, purpose, master_key)
            file.write_text(json.dumps(recording, indent=2) + "\n", encoding="utf-8")
    return list(files.values())


def _record(control_plane: ControlPlane, purpose: Purpose, master_key: bytes) -> Mapping[str, Any]:
    authority = control_plane.ca.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    machine_key = derive_machine_key(master_key, PROVIDER_ID)
    node = SimulatedNode(
        node_name=NODE_NAME,
        provider_id=PROVIDER_ID,
        ca_cert_hash=CACertHash.of(authority).text,
        provider=PROVIDER,
        settings={"machine-key": base64.b64encode(machine_key).decode("ascii"), "provider-id": PROVIDER_ID},
        key=ec.generate_private_key(ec.SECP256R1()),
    )
    expected = binding.compute(
        evidence_version=EVIDENCE_VERSION,
        cluster=CACertHash(node.ca_cert_hash),
        signer_name=SignerName(purpose, PROVIDER),
        subject_public_key_info=node.subject_public_key_info,
    )
    return {
        "recordedWith": control_plane.versions()["kube-apiserver"],
        "masterKey": base64.b64encode(master_key).decode("ascii"),
        "clusterCACertificate": control_plane.ca_certificate_pem.decode("ascii"),
        "nodeName": NODE_NAME,
        "providerID": PROVIDER_ID,
        "binding": expected.value.hex(),
        "certificateSigningRequest": _file_and_read(control_plane, purpose, node),
    }


def _file_and_read(control_plane: ControlPlane, purpose: Purpose, node: SimulatedNode) -> Any:
    """The request as an administrator reads it after the node has filed it."""
    name = f"{NODE_NAME}-{purpose.value}"
    requester: ClusterConnection
    if purpose is Purpose.CLIENT:
        request = node.client_request(name)
        requester = control_plane.token_connection(control_plane.bootstrap_token())
    else:
        request = node.serving_request(
            name, dns_names=[f"{NODE_NAME}.example.org"], ip_addresses=[IPv4Address("192.0.2.12")]
        )
        requester = control_plane.connection(f"system:node:{NODE_NAME}", ("system:nodes",))
    with RawClient(requester) as client:
        client.post(COLLECTION, request).expect(201)
    with RawClient(control_plane.connection()) as administrator:
        return administrator.get(f"{COLLECTION}/{name}").expect(200)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.support.record_requests FOLDER")
    for written in record(Path(sys.argv[1])):
        print(written)  # the one line a person waits for
