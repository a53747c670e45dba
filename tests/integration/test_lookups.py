"""An attestor's lookups in the management cluster, through the running controller, and their limits."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from attestors.contract import Document, NotThere
from signer.kube.resources import CONFIG_MAPS, MACHINES_V1BETA2, SECRETS
from signer.testing.api import LoggedRequest
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, pending, provider_id
from tests.integration.reporting import Reporting
from tests.support.infra_cluster import INFRASTRUCTURE, SIGNER_FIELD, add_infra_cluster, add_infra_machine
from tests.support.processes import wait_until

OURS = {"attestation.cluster.x-k8s.io/tpm-endorsement-key": "sha256:ab"}
INFRA_MACHINE = "infrastructure"
CONFIG_MAP, SECRET = "ConfigMap/inventory", "Secret/inventory"
HIDDEN = "what nobody may see"


@pytest.fixture
def reporting(harness: Harness) -> Reporting:
    return Reporting(harness)


@pytest.fixture
def cluster(reporting: Reporting) -> WorldCluster:
    return reporting.cluster()


def add_document(cluster: WorldCluster, namespace: str = "default", text: str = "sha256:ab") -> None:
    """A ConfigMap and a Secret called inventory."""
    client = cluster.management.client
    body = {"apiVersion": "v1", "metadata": {"name": "inventory"}}
    client.create(CONFIG_MAPS.collection(namespace), {**body, "kind": "ConfigMap", "data": {"m1": text}})
    encoded = base64.b64encode(text.encode()).decode()
    client.create(SECRETS.collection(namespace), {**body, "kind": "Secret", "data": {"m1": encoded}})


def found(reporting: Reporting, cluster: WorldCluster, *wanted: str, csr: str = "join") -> tuple[Any, ...]:
    """What the look-ups of the node on Machine m1 give."""
    cluster.submit_with_token(reporting.node(cluster, "m1", look_up=" ".join(wanted)).client_request(csr))
    return reporting.of(cluster, csr).answers


def asked(reporting: Reporting, part: str) -> list[LoggedRequest]:
    """What the controller asked the management cluster for, by a part of the path."""
    calls = reporting.harness.api.requests.matching()
    return [call for call in calls if call.user == CONTROLLER_USER and part in call.path]


def test_existing_documents_and_annotations(reporting: Reporting, cluster: WorldCluster) -> None:
    add_infra_cluster(cluster, SIGNER_FIELD)
    machine = cluster.add_machine("m1", provider_id=provider_id("m1"))
    add_infra_machine(cluster, machine, **OURS, **{"example.com/note": HIDDEN})
    add_document(cluster)
    reporting.run()
    annotations, config_map, secret = found(reporting, cluster, INFRA_MACHINE, CONFIG_MAP, SECRET)
    assert annotations == OURS
    for document in (config_map, secret):
        assert isinstance(document, Document)
        assert document.texts == {"m1": "sha256:ab"}


def test_missing_documents_and_annotations(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    reporting.run()
    assert found(reporting, cluster, INFRA_MACHINE, CONFIG_MAP, SECRET, "ConfigMap/no_name") == (
        NotThere("Test default/m1-infra, or its definition, does not exist"),
        NotThere("ConfigMap default/inventory does not exist"),
        NotThere("Secret default/inventory does not exist"),
        NotThere("what is to be looked up is no name that a ConfigMap can have"),
    )


def test_missing_grants(reporting: Reporting, cluster: WorldCluster) -> None:
    add_infra_cluster(cluster, SIGNER_FIELD)
    machine = cluster.add_machine("m1", provider_id=provider_id("m1"))
    add_infra_machine(cluster, machine, **OURS)
    add_document(cluster)
    for pattern in ("GET */configmaps/*", "GET */tests/*"):
        reporting.harness.api.faults.inject(pattern, status=403, times=None)
    reporting.run()
    annotations, config_map = found(reporting, cluster, INFRA_MACHINE, CONFIG_MAP)
    assert isinstance(annotations, NotThere)
    assert "a grant to get its definition or infrastructure.cluster.x-k8s.io is missing" in annotations.cause
    assert isinstance(config_map, NotThere)
    assert "the grant to get configmaps in default is missing" in config_map.cause


@pytest.mark.slow
def test_a_fault_of_the_api_server_makes_the_request_wait(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    add_document(cluster, text=HIDDEN)
    reporting.harness.api.faults.inject("GET */configmaps/inventory", status=503, times=None)
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1", look_up=CONFIG_MAP).client_request("join"))
    message = reporting.harness.wait_for_event("ManagementClusterUnreachable", "m1")
    assert HIDDEN not in message
    pending(cluster, "join")
    assert reporting.reports == []
    reporting.harness.api.faults.clear()
    (document,) = reporting.of(cluster, "join").answers
    assert isinstance(document, Document)
    assert document.texts == {"m1": HIDDEN}


def test_an_inframachine_of_another_machine_is_not_trusted(reporting: Reporting, cluster: WorldCluster) -> None:
    """A tenant lets its Machine name an object of another one."""
    add_infra_cluster(cluster, SIGNER_FIELD)
    other = cluster.add_machine("m2", provider_id=provider_id("m2"))
    add_infra_machine(cluster, other, **OURS)
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    reference = {"infrastructureRef": {"name": "m2-infra", "kind": "Test", "apiGroup": INFRASTRUCTURE.group}}
    cluster.patch_machine("m1", {"spec": reference})
    reporting.run()
    assert found(reporting, cluster, INFRA_MACHINE) == (
        NotThere("Test default/m2-infra is not owned by Machine default/m1, which names it"),
    )


def test_an_inframachine_of_the_former_machine_is_not_trusted(reporting: Reporting, cluster: WorldCluster) -> None:
    add_infra_cluster(cluster, SIGNER_FIELD)
    former = cluster.add_machine("m1", provider_id=provider_id("m1"))
    former["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    add_infra_machine(cluster, former, **OURS)
    reporting.run()
    (answer,) = found(reporting, cluster, INFRA_MACHINE)
    assert isinstance(answer, NotThere)


def test_objects_outside_the_infrastructure_group_are_not_read(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    reference = {"infrastructureRef": {"name": "m1-infra", "kind": "Secret", "apiGroup": "example.com"}}
    cluster.patch_machine("m1", {"spec": reference})
    reporting.run()
    (answer,) = found(reporting, cluster, INFRA_MACHINE)
    assert isinstance(answer, NotThere)
    assert asked(reporting, "m1-infra") == []
    assert asked(reporting, "example.com") == []


def test_another_namespace_is_out_of_reach(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.management.ensure_namespace("elsewhere")
    add_document(cluster, "elsewhere", HIDDEN)
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    reporting.run()
    names = ("inventory", "../../elsewhere/configmaps/inventory", "..%2Felsewhere", "elsewhere/inventory")
    answers = found(reporting, cluster, *(f"ConfigMap/{name}" for name in names))
    assert all(isinstance(answer, NotThere) for answer in answers)
    assert [call.path for call in asked(reporting, "elsewhere")] == []


def test_a_machine_of_another_cluster_is_not_read(reporting: Reporting, cluster: WorldCluster) -> None:
    """Of the same namespace and provider ID: it is not the claimed one, and no attestor is asked."""
    other = reporting.cluster("other")
    add_infra_cluster(other, SIGNER_FIELD)
    add_infra_machine(other, other.add_machine("m1", provider_id=provider_id("m1")), **OURS)
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1", look_up=INFRA_MACHINE).client_request("join"))
    reporting.harness.wait_for_event("MachineNotFound", "workload", kind="Cluster")
    assert reporting.reports == []
    assert asked(reporting, "m1-infra") == []


@pytest.mark.slow
def test_a_change_is_seen(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    add_document(cluster)
    reporting.run()
    node = reporting.node(cluster, "m1", look_up=CONFIG_MAP)  # copies of one request: no further certificates
    numbers = itertools.count()

    def seen() -> Mapping[str, str]:
        name = f"join-{next(numbers)}"
        cluster.submit_with_token(node.client_request(name))
        (document,) = reporting.of(cluster, name).answers
        assert isinstance(document, Document)
        return document.texts

    assert seen() == {"m1": "sha256:ab"}
    path = CONFIG_MAPS.object("inventory", "default")
    cluster.management.client.patch(path, {"data": {"m1": "sha256:cd"}})
    wait_until(lambda: seen() == {"m1": "sha256:cd"}, "the change is seen")


def test_an_inframachine_of_a_deleted_machine_is_not_read(reporting: Reporting, cluster: WorldCluster) -> None:
    add_infra_cluster(cluster, SIGNER_FIELD)
    add_infra_machine(cluster, cluster.add_machine("m1", provider_id=provider_id("m1")), **OURS)
    cluster.management.client.delete(MACHINES_V1BETA2.object("m1", "default"))
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1", look_up=INFRA_MACHINE).client_request("join"))
    reporting.harness.wait_for_event("MachineNotFound", "workload", kind="Cluster")
    assert asked(reporting, "m1-infra") == []
