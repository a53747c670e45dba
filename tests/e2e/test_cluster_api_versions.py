"""A Machine and an instance of a MachinePool join where the management cluster serves v1beta1 only, and v1beta2.

With Cluster API's own CRDs where ``NODE_ATTESTATION_CAPI_CRDS`` names them, else with reduced ones of our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.configuration import Configuration
from signer.kube.connection import ClusterConnection
from signer.kube.resources import EVENTS, Resource
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.integration.endorsement_key_sources import assert_every_certificate_is_permitted
from tests.integration.fixtures import certificate_of, keyed_mac, node_of, provider_id
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import with_client_certificate
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.real, pytest.mark.slow]

GROUP: Final = "cluster.x-k8s.io"
INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
NAMESPACE: Final = "versions"
ADDRESS: Final = "10.1.0.1"


@dataclass(frozen=True)
class VersionedCluster:
    """A Cluster of one API version, and how that version spells Machines and MachinePools."""

    version: str
    cluster: WorldCluster

    def add_machine(self, name: str, *, bootstrap_ready: bool = True) -> None:
        """A Machine with an address, which has its bootstrap data or waits for it."""
        spec = {**self._template(name), "providerID": provider_id(name)}
        self._create("machines", "Machine", name, spec)
        self.set_status("machines", name, {"addresses": [{"type": "InternalIP", "address": ADDRESS}]})
        self.set_bootstrap_ready("machines", name, bootstrap_ready)

    def add_machine_pool(self, name: str, *instances: str) -> None:
        """A MachinePool of these instances, which have no Machines."""
        spec = {
            "clusterName": self.cluster.name,
            "template": {"spec": self._template(name)},
            "providerIDList": [provider_id(instance) for instance in instances],
        }
        self._create("machinepools", "MachinePool", name, spec)
        self.set_bootstrap_ready("machinepools", name, True)

    def set_bootstrap_ready(self, plural: str, name: str, ready: bool) -> None:
        """What the bootstrap provider's data Secret does to the status."""
        if self.version == "v1beta1":
            self.set_status(plural, name, {"bootstrapReady": ready})
        else:
            self.set_status(plural, name, {"initialization": {"bootstrapDataSecretCreated": ready}})

    def set_status(self, plural: str, name: str, status: dict[str, Any]) -> None:
        """Change the status with a merge patch."""
        path = self._resource(plural).object(name, NAMESPACE, subresource="status")
        self.cluster.management.client.patch(path, {"status": status})

    def join(self, machine: str) -> ClusterConnection:
        """Let it join; it must be let in under its own name. Returns what it connects with from then on."""
        csr, node = f"join-{machine}", node_of(self.cluster, machine)
        self.cluster.submit_with_token(node.client_request(csr))
        verdict = self.cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        subject = certificate_of(verdict).subject.rfc4514_string()
        assert subject == f"CN=system:node:{machine},O=system:nodes"
        return with_client_certificate(self.cluster.api.connection(), verdict.certificate, node.key)

    def _template(self, name: str) -> dict[str, Any]:
        return {
            "clusterName": self.cluster.name,
            "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
            "infrastructureRef": infrastructure(self.version, name),
        }

    def _create(self, plural: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        resource = self._resource(plural)
        labels = {"cluster.x-k8s.io/cluster-name": self.cluster.name}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": spec}
        self.cluster.management.client.create(resource.collection(NAMESPACE), body)

    def _resource(self, plural: str) -> Resource:
        return Resource(GROUP, self.version, plural, namespaced=True)


def infrastructure(version: str, name: str) -> dict[str, str]:
    """A reference to an infrastructure object: v1beta1 has an ObjectReference."""
    if version == "v1beta1":
        return {"apiVersion": f"{INFRASTRUCTURE}/v1beta1", "kind": "Test", "name": name, "namespace": NAMESPACE}
    return {"apiGroup": INFRASTRUCTURE, "kind": "Test", "name": name}


def write_crds(folder: Path, version: str) -> None:
    """Cluster API's CRDs as a management cluster of that version has them: the old one knows nothing of v1beta2."""
    found = cluster_api_crds() or Path(str(files("signer.testing").joinpath("crds")))
    for path in found.glob("*.yaml"):
        definition = safe_load(path.read_text(encoding="utf-8"))
        if version == "v1beta1":
            versions = [one for one in definition["spec"]["versions"] if one["name"] == version]
            definition["spec"]["versions"] = [{**one, "served": True, "storage": True} for one in versions]
        (folder / path.name).write_text(yaml.safe_dump(definition), encoding="utf-8")


def add_cluster(management: ManagementCluster, version: str, workload: ControlPlane) -> WorldCluster:
    """A Cluster of that version with its Secrets, and a policy under which pools' instances have names."""
    resource = Resource(GROUP, version, "clusters", namespaced=True)
    management.ensure_namespace(NAMESPACE)
    body = {
        "apiVersion": resource.api_version,
        "kind": "Cluster",
        "metadata": {"name": version, "namespace": NAMESPACE},
        "spec": {
            "controlPlaneEndpoint": {"host": "control-plane.example", "port": 6443},
            "infrastructureRef": infrastructure(version, version),
        },
    }
    management.client.create(resource.collection(NAMESPACE), body)
    cluster = WorldCluster(management, version, NAMESPACE, workload)
    cluster.put_secret("ca", {"tls.crt": workload.ca_certificate_pem, "tls.key": workload.ca_key_pem})
    restrict_in_workload_cluster(cluster, workload)
    cluster.authorize("keyed-mac", nodeNames={"sources": ["ProviderID"]})
    return cluster


@pytest.fixture(scope="module", params=["v1beta1", "v1beta2"])
def versioned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersionedCluster]:
    """A management cluster of that version, which is its own workload cluster, and a controller."""
    version, folder = request.param, tmp_path_factory.mktemp("crds")
    write_crds(folder, version)
    try:
        plane = ControlPlane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with plane, ManagementCluster(plane, capi_crds=folder) as management:
        plane.seed_kubeadm()
        cluster = add_cluster(management, version, plane)
        configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors=keyed_mac())
        with RunningController(as_service_account(plane, NAMESPACE), configuration):
            yield VersionedCluster(version, cluster)
        assert_every_certificate_is_permitted(management, [cluster])
        cluster.close()
        plane.check_running()


def test_the_version_is_what_is_served(versioned: VersionedCluster) -> None:
    with RawClient(versioned.cluster.api.connection()) as client:
        statuses = {name: client.get(f"/apis/{GROUP}/{name}/clusters").status for name in ("v1beta1", "v1beta2")}
    assert statuses == {"v1beta1": 200, "v1beta2": 404 if versioned.version == "v1beta1" else 200}


def test_a_machine_joins_and_serves(versioned: VersionedCluster) -> None:
    versioned.add_machine("machine-1")
    as_the_node, cluster = versioned.join("machine-1"), versioned.cluster
    request = node_of(cluster, "machine-1").serving_request("serving", ip_addresses=[ip_address(ADDRESS)])
    cluster.submit(request, as_the_node)
    verdict = cluster.wait_until_decided("serving")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_a_machine_waits_for_its_bootstrap_data(versioned: VersionedCluster) -> None:
    cluster = versioned.cluster
    versioned.add_machine("machine-2", bootstrap_ready=False)
    cluster.submit_with_token(node_of(cluster, "machine-2").client_request("early"))
    cluster.management.client.wait_for_any(
        EVENTS.collection(NAMESPACE),
        lambda event: event["reason"] == "MachineNotReady" and event["involvedObject"]["name"] == "machine-2",
    )
    assert cluster.verdict("early").condition == ""
    versioned.set_bootstrap_ready("machines", "machine-2", True)
    assert cluster.wait_until_decided("early").condition == "Approved"


def test_an_instance_of_a_machine_pool_joins(versioned: VersionedCluster) -> None:
    versioned.add_machine_pool("pool", "instance-1", "instance-2")
    versioned.join("instance-1")


def test_a_machine_that_nobody_lists_waits(versioned: VersionedCluster) -> None:
    cluster = versioned.cluster
    versioned.add_machine_pool("other-pool", "instance-3")
    cluster.submit_with_token(node_of(cluster, "instance-4").client_request("unlisted"))
    versioned.join("instance-3")
    assert cluster.verdict("unlisted").condition == ""
