"""Records what the present version writes, from a real run: a controller, the node's program, the embedded API."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from attestors.gcp import wire as gcp_wire
from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, EVIDENCE_VERSION, Purpose, SignerName
from authenticator.model.pair import parse_pair
from authenticator.stored_credential import CLIENT_PAIR_FILE
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_SIGNING_REQUESTS,
    CONFIG_MAPS,
    IDENTITY_RESERVATIONS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.store.controller_key import SECRET_NAME
from signer.testing.certificates import new_cluster_certificate_authority
from signer.testing.fixtures import open_controllers, open_management_cluster, open_workload_clusters
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.aws.fixtures import OPERATOR as AWS_OPERATOR
from tests.integration.aws.fixtures import PROVIDER_ID as AWS_PROVIDER_ID
from tests.integration.aws.fixtures import ROLE, presigned
from tests.integration.aws.fixtures import fields as aws_fields
from tests.integration.fixtures import Harness, keyed_mac, node_of, provider_id
from tests.releases.judging import decision, judge
from tests.releases.recording import Document
from tests.support import aws_documents
from tests.support.aws_documents import ACCOUNT, INSTANCE, REGION
from tests.support.fake_aws import FakeAWS
from tests.support.fake_google import FakeInstance, encode_token, identity_claims, signing_key
from tests.support.node_program import NodeProgram
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

NODE: Final = "node-1"
_ADDRESS: Final = IPv4Address("192.0.2.12")
_CHALLENGE_KEY: Final = bytes(range(32, 64))
_POLICY: Final = {"mode": "Enforce", "bootstrapTokens": {"untraceable": "Allow"}}


def record(folder: Path) -> None:
    """Write a release's set into ``folder``.

    Raises:
        FileExistsError: there is one already: what a release wrote does not change any more.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is recorded already, and a recording is never replaced")
    with tempfile.TemporaryDirectory() as temporary, _harness() as harness:
        made = Path(temporary) / "made"
        (made / "requests").mkdir(parents=True)
        _Recorder(harness, made).record()
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, folder)


@contextmanager
def _harness() -> Iterator[Harness]:
    with (
        open_management_cluster() as management,
        open_workload_clusters(management) as make_cluster,
        open_controllers(management) as start,
    ):
        yield Harness(management, make_cluster, start)


@dataclass
class _Recorder:
    harness: Harness
    folder: Path

    def record(self) -> None:
        """A node joins, gets a serving certificate and renews; then what is stored is read."""
        authority = new_cluster_certificate_authority()
        cluster = self.harness.cluster(policy=_POLICY, api={"authority": authority})
        self.harness.run()
        addresses = [("Hostname", NODE), ("InternalIP", str(_ADDRESS))]
        cluster.add_machine(NODE, provider_id=provider_id(NODE), addresses=addresses)
        node = self._joined_node(cluster)
        self._of_keyed_mac(cluster, node)
        self._of_insecure(cluster)
        self._of_tpm(cluster)
        self._of_aws(cluster)
        self._of_gcp(cluster)
        self._objects(cluster)
        self._write(
            "setting.json",
            {
                "recordedAt": _now().isoformat(),
                "node": NODE,
                "providerID": provider_id(NODE),
                "operator": {name: dict(each.settings) for name, each in keyed_mac().items()},
                "certificateAuthority": {
                    "certificate": authority.certificate.decode("ascii"),
                    "privateKey": authority.private_key.decode("ascii"),
                },
            },
        )

    def _joined_node(self, cluster: WorldCluster) -> SimulatedNode:
        """By the node's program; its files are recorded as they lie there, without the folder's name."""
        with tempfile.TemporaryDirectory() as temporary:
            program = NodeProgram(Path(temporary) / "node", node_of(cluster, NODE))
            program.supply_bootstrap(cluster)
            joined = program.credential()
            joined.certificate()
            target = self.folder / "node"
            target.mkdir()
            text = program.configuration.read_text(encoding="utf-8").replace(str(program.folder), "/node")
            self._write("node/kubelet-authenticator.json", json.loads(text))
            (target / "pki").mkdir()
            for file in sorted(program.store.iterdir()):
                if file.suffix != ".lock":
                    shutil.copyfile(file, target / "pki" / file.name)
            return program.node

    def _of_keyed_mac(self, cluster: WorldCluster, node: SimulatedNode) -> None:
        operator = dict(keyed_mac()["keyed-mac"].settings)
        [first] = cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())
        pair = parse_pair((self.folder / "node" / "pki" / CLIENT_PAIR_FILE).read_text(encoding="ascii"))
        credential = replace(
            cluster.api.connection(),
            client_certificate=pair.certificate.encode("ascii"),
            client_key=pair.key.encode("ascii"),
            bearer_token=None,
        )
        self._request("keyed-mac-client", first, operator)
        renewal = cluster.submit(node.client_request("renewal"), credential)
        assert cluster.wait_until_decided("renewal").reason == "Attested"
        self._request("keyed-mac-renewal", renewal, operator)
        manifest = node.serving_request("serving", dns_names=[NODE], ip_addresses=[_ADDRESS])
        serving = cluster.submit(manifest, credential)
        assert cluster.wait_until_decided("serving").reason == "Attested"
        self._request("keyed-mac-serving", serving, operator)

    def _of_insecure(self, cluster: WorldCluster) -> None:
        node = self._node(cluster, "insecure", provider_id(NODE))
        self._request("insecure-client", self._post(cluster, node, "insecure", {}), {})

    def _of_tpm(self, cluster: WorldCluster) -> None:
        """Of a fake TPM: what it says is what a TPM says, byte for byte."""
        chip = FakeTPM.new(7)
        more = {
            "annotations": {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: chip.fingerprint},
            "challengeKeys": [_CHALLENGE_KEY.hex()],
        }
        operator = {"allowUncertifiedEndorsementKeys": True, "endorsementKeyTemplates": ["ecc-p256"]}
        for purpose in Purpose:
            node = self._node(cluster, "tpm", provider_id(NODE))
            first = self._post(cluster, node, f"tpm-{purpose.value}-first", chip.first(), purpose)
            recording = self._request(f"tpm-{purpose.value}-first", first, operator, **more)
            challenge = asyncio.run(judge(recording))
            answer = chip.answer(getattr(challenge, "challenge", ""), self._binding(node, purpose))
            second = self._post(cluster, node, f"tpm-{purpose.value}", answer, purpose)
            self._request(f"tpm-{purpose.value}", second, operator, **more)

    def _of_aws(self, cluster: WorldCluster) -> None:
        operator = {**AWS_OPERATOR, "checkRoleTrust": False, "describeInstances": False}
        with FakeAWS() as aws:
            session = aws.credentials(INSTANCE, account=ACCOUNT, role_name=ROLE)
            arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{ROLE}/{INSTANCE}"
            result = {"Account": ACCOUNT, "Arn": arn, "UserId": session.user_id}
            cloud = {
                "region": REGION,
                "regionCertificate": base64.b64encode(aws_documents.authority(REGION).der).decode("ascii"),
                "callerIdentity": {
                    "GetCallerIdentityResponse": {
                        "GetCallerIdentityResult": result,
                        "ResponseMetadata": {"RequestId": "recorded"},
                    }
                },
            }
            for purpose in Purpose:
                node = self._node(cluster, "aws", AWS_PROVIDER_ID)
                bound = self._binding(node, purpose).value.hex()
                sent = aws_fields(presigned(session, bound, at=datetime.now(UTC)), binding=bound)
                posted = self._post(cluster, node, f"aws-{purpose.value}", sent, purpose)
                self._request(f"aws-{purpose.value}", posted, operator, cloud=cloud)

    def _of_gcp(self, cluster: WorldCluster) -> None:
        instance, key = FakeInstance(), signing_key(0)
        operator = {"projects": {instance.project: int(instance.project_number)}}
        cloud = {"certificates": {key.key_id: key.certificate_pem}}
        for purpose in Purpose:
            node = self._node(cluster, "gcp", instance.provider_id)
            audience = gcp_wire.audience(self._binding(node, purpose).value)
            token = encode_token(identity_claims(instance, audience, _now()), key)
            fields = {gcp_wire.IDENTITY_TOKEN_FIELD: token}
            posted = self._post(cluster, node, f"gcp-{purpose.value}", fields, purpose)
            self._request(f"gcp-{purpose.value}", posted, operator, cloud=cloud)

    def _node(self, cluster: WorldCluster, provider: str, provider_id: str) -> SimulatedNode:
        return SimulatedNode(NODE, provider_id, cluster.ca_cert_hash, provider)

    def _binding(self, node: SimulatedNode, purpose: Purpose) -> Binding:
        return binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(node.ca_cert_hash),
            signer_name=SignerName(purpose, node.provider),
            subject_public_key_info=node.subject_public_key_info,
        )

    def _post(
        self,
        cluster: WorldCluster,
        node: SimulatedNode,
        name: str,
        fields: Mapping[str, str],
        purpose: Purpose = Purpose.CLIENT,
    ) -> Document:
        evidence = Evidence(EVIDENCE_VERSION, CACertHash(node.ca_cert_hash), MappingProxyType(dict(fields)))
        if purpose is Purpose.CLIENT:
            return cluster.submit_with_token(node.client_request(name, evidence_of=evidence))
        manifest = node.serving_request(name, dns_names=[NODE], evidence_of=evidence)
        return cluster.submit_as_node(manifest, NODE)

    def _request(self, name: str, stored: Document, operator: Mapping[str, Any], **more: Any) -> Document:
        """Record the object as the API server stored it, without what was decided since, and the decision."""
        metadata = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
        recording: Document = {
            "now": _now().isoformat(),
            "operator": dict(operator),
            "certificateSigningRequest": {**stored, "metadata": metadata, "status": {}},
            **more,
        }
        recording["decision"] = decision(asyncio.run(judge(recording)))
        self._write(f"requests/{name}.json", recording)
        return recording

    def _objects(self, cluster: WorldCluster) -> None:
        client = self.harness.management.client
        self.harness.wait_for_condition(cluster, "AutoApprovalRemoved", "True")
        kept = client.wait_for_any(
            CONFIG_MAPS.collection(CONTROLLER_NAMESPACE), lambda item: item["metadata"]["name"].startswith("removed-")
        )
        path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
        self._write(
            "objects.json",
            {
                "policies": [client.get(path)],
                "attestedNodes": client.items(ATTESTED_NODES.collection(cluster.namespace)),
                "identityReservations": client.items(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE)),
                "secrets": [client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))],
                "configMaps": [kept],
            },
        )

    def _write(self, name: str, document: Document) -> None:
        (self.folder / name).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
