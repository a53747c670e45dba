"""Version negotiation: what is not supported is denied with the versions that are; the node files again in one of them.

Every recorded request of a released format passes every check that is made of a request.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.contract import AttestorDescription, Freshness, Security
from attestors.registry import Registry
from attestors.wire import pem
from attestors.wire.names import ENTRY_POINT_GROUP, SUPPORTED_VERSIONS_ANNOTATION, Purpose, SignerName
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.controller.run import ControllerOptions
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.signing_request import SigningRequest, parse_signing_request
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS, run_checks
from signer.testing.api import LoggedRequest
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, node_of, provider_id
from tests.integration.requests import blocks_of, manifest_of
from tests.unit.signer import builders

RECORDINGS: Final = sorted((Path(__file__).parents[2] / "fixtures" / "requests").glob("*/*.json"))


class NewerAttestor:
    """keyed-mac as it may be one day: it no longer reads the first version."""

    description = AttestorDescription("keyed-mac", Security.SECURE, ("v2", "v3"), Freshness.TIMESTAMP)

    def server_plugin(self, settings: object) -> Any:
        """Never asked: the version is looked at before."""
        return self

    def agent_plugin(self, settings: object) -> Any:
        """Never asked: the nodes of these tests are older."""
        raise NotImplementedError


newer = NewerAttestor()


def of_version(node: SimulatedNode, name: str, version: str) -> dict[str, Any]:
    """A request whose evidence says that it is of that version."""
    csr, provider, data = blocks_of(node)
    content = pem.split(data, maximum_bytes=len(data), maximum_blocks=1)[0].content
    changed = content.replace(b'"version":"v1"', f'"version":"{version}"'.encode())
    assert changed != content
    return manifest_of(name, csr + provider + pem.encode(pem.Block("KUBELET AUTHENTICATOR ATTESTATION DATA", changed)))


def written(cluster: WorldCluster, name: str) -> list[LoggedRequest]:
    """What the controller wrote to that CSR."""
    entries = embedded_api(cluster).requests.writes(f"* {CERTIFICATE_SIGNING_REQUESTS.object(name)}*")
    return [entry for entry in entries if entry.user == CONTROLLER_USER]


def test_a_version_that_is_not_supported_is_denied_with_those_that_are(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    node, token = node_of(cluster, "m"), cluster.api.bootstrap_token()
    cluster.submit_with_token(of_version(node, "too-new", "v9"), token)
    denied = cluster.wait_until_decided("too-new")
    assert (denied.condition, denied.reason, denied.certificate) == ("Denied", "UnsupportedVersion", b"")
    # In the same write, so that no reader sees the denial without the way out of it.
    (write,) = written(cluster, "too-new")
    assert write.path == f"{CERTIFICATE_SIGNING_REQUESTS.object('too-new')}/approval"

    with cluster.client(cluster.api.token_connection(token)) as as_the_node:
        seen = as_the_node.get(CERTIFICATE_SIGNING_REQUESTS.object("too-new"))
    assert seen["metadata"]["annotations"][SUPPORTED_VERSIONS_ANNOTATION] == "v1"

    cluster.submit_with_token(node.client_request("in-v1"), token)
    approved = cluster.wait_until_decided("in-v1")
    assert (approved.condition, approved.reason) == ("Approved", "Attested")


def test_the_requesters_message_is_replaced(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    manifest = of_version(node_of(cluster, "m"), "liar", "v9")
    manifest["metadata"]["annotations"] = {SUPPORTED_VERSIONS_ANNOTATION: "v9,v10", "other": "kept"}
    cluster.submit_with_token(manifest)
    denied = cluster.wait_until_decided("liar")
    assert denied.reason == "UnsupportedVersion"
    assert denied.annotations == {SUPPORTED_VERSIONS_ANNOTATION: "v1", "other": "kept"}


def test_a_format_that_an_attestor_no_longer_supports(harness: Harness) -> None:
    """The CSR header is still parsed; only the attestor no longer knows the content."""
    cluster = harness.cluster()
    cluster.add_machine("old", provider_id=provider_id("old"))
    entry_point = EntryPoint("keyed-mac", f"{__name__}:newer", ENTRY_POINT_GROUP)
    harness.run(ControllerOptions(registry=Registry([entry_point])))
    cluster.submit_with_token(node_of(cluster, "old").client_request("old-1"))
    denied = cluster.wait_until_decided("old-1")
    assert (denied.condition, denied.reason) == ("Denied", "UnsupportedVersion")
    assert denied.annotations[SUPPORTED_VERSIONS_ANNOTATION] == "v2,v3"
    assert harness.records(cluster) == []
    assert harness.reservations() == []


def test_another_provider_does_not_bypass_it(harness: Harness) -> None:
    """A refused version does not lead to an attestor with weaker proof."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    cluster.submit_with_token(of_version(node_of(cluster, "m"), "too-new", "v9"))
    assert cluster.wait_until_decided("too-new").reason == "UnsupportedVersion"
    insecure = SimulatedNode("m", provider_id("m"), cluster.ca_cert_hash, "insecure")
    cluster.submit_with_token(insecure.client_request("fallen-back"))
    assert cluster.wait_until_decided("fallen-back").reason == "AttestorNotAuthorized"


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_recorded_request_passes_every_check_of_a_request(file: Path) -> None:
    recording = json.loads(file.read_text(encoding="utf-8"))
    parsed = parse_signing_request(recording["certificateSigningRequest"], frozenset({"keyed-mac"}))
    assert isinstance(parsed, SigningRequest)
    (block,) = pem.split(recording["clusterCACertificate"].encode(), maximum_bytes=65536, maximum_blocks=1)
    facts = builders.request_facts(
        parsed,
        attestor=Registry().load("keyed-mac").description,
        policy=builders.policy(authorizedAttestors=[{"name": "keyed-mac"}]),
        ca_cert_hashes=frozenset({parse_ca_certificate(block.content).public_key_hash}),
    )
    run_checks((*CLUSTER_CHECKS, *REQUEST_CHECKS), facts)
    assert str(parsed.header.signer) == str(SignerName(Purpose(file.stem), "keyed-mac"))
