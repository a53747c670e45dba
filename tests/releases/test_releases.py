"""What every released version wrote keeps working: requests, objects, controllers over its store, nodes."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from attestors.wire import pem, request
from attestors.wire.binding import BindingMismatch
from attestors.wire.names import Purpose
from authenticator.configuration import Given, configure
from authenticator.model.certificate import check_pair, is_of_node
from authenticator.model.plan import Use, next_step
from authenticator.store.store import Store
from authenticator.stored_credential import read_stored
from signer.kube.resources import (
    ATTESTED_NODES,
    CONFIG_MAPS,
    IDENTITY_RESERVATIONS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    Resource,
)
from signer.model.floors import NO_FLOOR
from signer.model.policy import parse_policy
from signer.model.record import AttestedNode
from signer.model.record_object import parse_record, record_spec
from signer.model.reservation import ReservationSeals, parse_reservation
from signer.model.saved_bindings import parse_owner, parse_saved, sealed_lineage
from signer.model.seal import Authentic, ControllerKeys, KeyUse, RecordSeals, Seals
from signer.store.controller_key import parse_controller_keys
from signer.testing.certificates import ClusterCertificateAuthority
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness, node_of
from tests.releases.judging import decision, judge
from tests.releases.recorder import record
from tests.releases.recording import Document, Release, form_of, releases
from tests.support.journal import journal_of
from tests.support.node_program import PROGRAM

RELEASES = releases()
EVERY_RELEASE = {
    "aws-client", "aws-serving", "gcp-client", "gcp-serving", "insecure-client", "keyed-mac-client",
    "keyed-mac-renewal", "keyed-mac-serving", "tpm-client", "tpm-client-first", "tpm-serving", "tpm-serving-first",
}  # fmt: skip

each_release = pytest.mark.parametrize("release", [pytest.param(release, id=release.version) for release in RELEASES])
each_request = pytest.mark.parametrize(
    ("release", "name"),
    [
        pytest.param(release, name, id=f"{release.version}-{name}")
        for release in RELEASES
        for name in release.requests()
    ],
)


def test_there_is_one() -> None:
    assert RELEASES


@each_release
def test_it_recorded_requests_of_every_attestor(release: Release) -> None:
    assert set(release.requests()) >= EVERY_RELEASE


# Requests


@each_request
async def test_a_request_is_decided_as_it_was(release: Release, name: str) -> None:
    recording = release.requests()[name]
    assert decision(await judge(recording)) == recording["decision"]


each_bound_request = pytest.mark.parametrize(
    ("release", "name"),
    [
        pytest.param(release, name, id=f"{release.version}-{name}")
        for release in RELEASES
        for name, recording in release.requests().items()
        if "binding" in recording["decision"]
    ],
)


@each_bound_request
async def test_a_request_for_another_signer_would_not_be(release: Release, name: str) -> None:
    """The test above would see it if the binding were computed in another way, or did not count."""
    recording = release.requests()[name]
    recording["certificateSigningRequest"]["spec"]["signerName"] = _other_signer(
        recording["certificateSigningRequest"]["spec"]["signerName"]
    )
    with pytest.raises(BindingMismatch):
        await judge(recording)


def _other_signer(name: str) -> str:
    client, serving = "kube-apiserver-client-kubelet-", "kubelet-serving-"
    return name.replace(client, serving) if client in name else name.replace(serving, client)


# Objects


@each_release
def test_its_objects_are_read_and_written_again_say_the_same(release: Release) -> None:
    for manifest in release.objects("policies"):
        assert [each.provider for each in parse_policy(manifest, NO_FLOOR).authorized_attestors] == ["keyed-mac"]
    for manifest in release.objects("attestedNodes"):
        record = parse_record(manifest)
        assert parse_record({**manifest, "spec": {**record_spec(record), "seal": record.seal}}) == record
    for manifest in release.objects("identityReservations"):
        found = parse_reservation(manifest)
        again = ReservationSeals(ControllerKeys(bytes(32))).spec(found.side, found.pair, found.basis)
        assert manifest["spec"] == {**again, "seal": found.seal}
    for manifest in release.objects("configMaps"):
        assert parse_owner(manifest).name == "workload"
        assert parse_saved(manifest).lineages


@each_release
def test_its_records_are_authentic_under_its_key(release: Release) -> None:
    keys = parse_controller_keys(release.objects("secrets")[0])
    seals = RecordSeals(keys)
    for manifest in release.objects("attestedNodes"):
        assert isinstance(seals.unseal(parse_record(manifest)), AttestedNode)
    for saved in map(parse_saved, release.objects("configMaps")):
        for field, lineage in saved.lineages.items():
            content = partial(sealed_lineage, saved.cluster, field, lineage)
            assert Seals(keys, KeyUse.REMOVED_BINDINGS).verify(lineage.seal, content) == Authentic()


@pytest.mark.slow
@each_release
def test_a_controller_over_its_store_renews_its_node(release: Release, harness: Harness) -> None:
    setting = release.setting
    cluster = _restored(release, harness)
    before = journal_of(release.objects("attestedNodes")[0]["spec"])
    harness.run()
    node = node_of(cluster, setting["node"])
    cluster.submit_as_node(node.client_request("renewal-after-upgrade"), setting["node"])
    verdict = cluster.wait_until_decided("renewal-after-upgrade")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    [kept] = harness.records(cluster)
    after = journal_of(kept["spec"])
    assert after[: len(before)] == before  # it went on with the record, and began no new one
    assert after[-1]["csrName"] == "renewal-after-upgrade"
    assert kept["spec"]["firstAttestationTime"] == before[0]["decidedTime"]
    names = {item["metadata"]["name"] for item in release.objects("identityReservations")}
    assert {item["metadata"]["name"] for item in harness.reservations()} == names


def _restored(release: Release, harness: Harness) -> WorldCluster:
    """The management cluster as after an upgrade; the objects are made anew, as after ``clusterctl move``."""
    pem = release.setting["certificateAuthority"]
    authority = ClusterCertificateAuthority(pem["certificate"].encode(), pem["privateKey"].encode())
    cluster = harness.cluster(attestors=(), api={"authority": authority})
    node = release.setting["node"]
    cluster.add_machine(node, provider_id=release.setting["providerID"], addresses=[("Hostname", node)])
    for kind, resource, namespace in (
        ("secrets", SECRETS, CONTROLLER_NAMESPACE),
        ("configMaps", CONFIG_MAPS, CONTROLLER_NAMESPACE),
        ("identityReservations", IDENTITY_RESERVATIONS, CONTROLLER_NAMESPACE),
        ("attestedNodes", ATTESTED_NODES, cluster.namespace),
        ("policies", NODE_ATTESTATION_POLICIES, cluster.namespace),
    ):
        for manifest in release.objects(kind):
            _create(harness, resource, namespace, manifest)
    return cluster


def _create(harness: Harness, resource: Resource, namespace: str, manifest: Document) -> None:
    given = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")
    body = {**_without(manifest, "status"), "metadata": _without(manifest["metadata"], *given)}
    harness.management.client.create(resource.collection(namespace), body)


# Nodes


@pytest.fixture
def node_folder(release: Release, tmp_path: Path) -> Path:
    """The node's files, where nobody else may write."""
    folder = tmp_path / "node"
    shutil.copytree(release.node, folder)
    file = folder / "kubelet-authenticator.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"/node', f'"{folder}'), encoding="utf-8")
    (folder / "pki").chmod(0o755)
    for stored in (folder / "pki").iterdir():
        stored.chmod(0o600)
    return folder


@each_release
def test_a_node_goes_on_with_its_store(release: Release, node_folder: Path) -> None:
    configuration = configure(Given(config=str(node_folder / "kubelet-authenticator.json")), {})
    store = Store(configuration.store)
    store.open()
    pair, known = store.pair(Purpose.CLIENT), store.known_cluster()
    assert pair is not None
    assert known is not None
    check_pair(pair)
    assert is_of_node(pair, release.setting["node"])
    assert read_stored(str(configuration.store)).encode() == pair.encode()
    recorded = int(datetime.fromisoformat(release.setting["recordedAt"]).timestamp())
    assert store.attempt(Purpose.CLIENT).pending is None
    step = next_step(pair, store.bootstrap(), store.attempt(Purpose.CLIENT), renews=True, now=recorded)
    assert isinstance(step, Use)


@pytest.mark.slow
@each_release
def test_the_program_shows_what_is_stored(release: Release, node_folder: Path) -> None:
    command = [str(PROGRAM), "status", "--config", str(node_folder / "kubelet-authenticator.json"), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert f"system:node:{release.setting['node']}" in json.dumps(json.loads(done.stdout))


# The present version


@pytest.mark.slow
def test_what_is_written_has_the_form_of_the_newest_release(tmp_path: Path) -> None:
    """If it has not, record the new form: ``python -m tests.releases record VERSION``."""
    record(tmp_path / "0.0.0")
    now, newest = Release(tmp_path / "0.0.0"), RELEASES[-1]
    assert _forms(now) == _forms(newest)
    for name, recording in now.requests().items():
        assert _written(recording) == _written(newest.requests()[name]), name


def _forms(release: Release) -> dict[str, Any]:
    """Of all but the requests. Status is not kept (``clusterctl move`` drops it), and a key names the cluster."""
    forms: dict[str, Any] = {"pairs": sorted(file.name for file in release.folder.rglob("*.pem"))}
    for file in sorted(release.folder.rglob("*.json")):
        if file.parent.name != "requests":
            text = re.sub(r'"lineage-[0-9a-f]{40}":', '"lineage":', file.read_text(encoding="utf-8"))
            forms[str(file.relative_to(release.folder))] = form_of(json.loads(text))
    for policy in forms["objects.json"]["policies"]:
        policy.pop("status", None)
    return forms


def _written(recording: Document) -> Any:
    """What a node wrote: the blocks' labels, the form of the evidence, the signer and the extensions."""
    spec = recording["certificateSigningRequest"]["spec"]
    sent = base64.b64decode(spec["request"])
    blocks = request.decode(sent)
    csr = x509.load_der_x509_csr(blocks.certificate_request)
    return (
        [block.label for block in pem.split(sent, maximum_bytes=len(sent), maximum_blocks=9)],
        form_of(json.loads(blocks.evidence)),
        json.loads(blocks.evidence)["version"],
        spec["signerName"],
        spec["usages"],
        [extension.oid.dotted_string for extension in csr.extensions],
        recording["decision"]["kind"],
    )


def test_a_release_is_never_replaced() -> None:
    with pytest.raises(FileExistsError, match="never replaced"):
        record(RELEASES[0].folder)


def _without(document: Document, *names: str) -> Document:
    return {key: value for key, value in document.items() if key not in names}
