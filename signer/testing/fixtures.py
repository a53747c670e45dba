"""pytest fixtures for authors of attestors: a management cluster, workload clusters and the controller.

pytest finds them in the installed distribution. Everything runs in this process, on the embedded API, over HTTPS::

    def test_a_machine_joins(workload_cluster, make_node, attestation_controller):
        workload_cluster.authorize("my-attestor")
        workload_cluster.add_machine("machine-1", provider_id="cloud:///1")
        attestation_controller(attestors={"my-attestor": OperatorAttestor(settings={...})})
        node = make_node("machine-1", "cloud:///1", "my-attestor", {"some-setting": "..."})
        workload_cluster.submit_with_token(node.client_request("csr-1"))
        assert workload_cluster.wait_until_decided("csr-1").reason == "Attested"

=================================== ====================================================================
``management_cluster``              :class:`~signer.testing.world.ManagementCluster`, with all CRDs
``workload_cluster``                one :class:`~signer.testing.world.WorldCluster`, named ``workload``
``make_workload_cluster``           more of them
``attestation_controller``          starts a controller, which stops at the end of the test
``make_machine``                    creates a Machine with its provider ID
``make_node``                       a :class:`~signer.testing.nodes.SimulatedNode` of the workload cluster
``make_signing_request``            a CertificateSigningRequest manifest with any bytes
``cluster_certificate_authority``   a CA like Cluster API's
``make_cluster_certificate_authority`` more of them, with any kind of key
=================================== ====================================================================

:func:`embedded_api` returns the API server of a cluster, for fault injection and its log of requests. The functions
``open_…`` are the same as context managers, for fixtures of a wider scope; :mod:`signer.testing.opening` has them
without pytest.

pytest imports this module in every run where the distribution is installed, so it imports heavy modules lazily.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pytest

from signer.testing.opening import MakeWorkloadCluster as MakeWorkloadCluster
from signer.testing.opening import StartController as StartController
from signer.testing.opening import embedded_api as embedded_api
from signer.testing.opening import open_controllers as open_controllers
from signer.testing.opening import open_management_cluster as open_management_cluster
from signer.testing.opening import open_workload_clusters as open_workload_clusters

if TYPE_CHECKING:
    from signer.kube.client import JsonObject
    from signer.testing.certificates import ClusterCertificateAuthority, EncryptionAlgorithm
    from signer.testing.nodes import SimulatedNode
    from signer.testing.world import ManagementCluster, WorldCluster


class MakeCertificateAuthority(Protocol):
    """Type of ``make_cluster_certificate_authority``."""

    def __call__(self, algorithm: EncryptionAlgorithm | None = None) -> ClusterCertificateAuthority:
        """A CA with a key of that algorithm; by default ECDSA P-256, which is the fastest to make."""
        ...


class MakeMachine(Protocol):
    """Type of ``make_machine``."""

    def __call__(
        self,
        name: str,
        provider_id: str | None = None,
        *,
        addresses: Iterable[tuple[str, str]] = (),
        cluster: WorldCluster | None = None,
    ) -> JsonObject:
        """A Machine of ``cluster``, by default ``workload_cluster``, with provider ID ``test:///<name>``."""
        ...


class MakeNode(Protocol):
    """Type of ``make_node``."""

    def __call__(
        self,
        node_name: str,
        provider_id: str,
        provider: str,
        settings: Mapping[str, str] | None = None,
        *,
        cluster: WorldCluster | None = None,
    ) -> SimulatedNode:
        """A node of ``cluster``, by default ``workload_cluster``; ``settings`` go to the attestor's agent plugin."""
        ...


class MakeSigningRequest(Protocol):
    """Type of ``make_signing_request``."""

    def __call__(
        self,
        name: str,
        request_bytes: bytes,
        signer_name: str,
        usages: Sequence[str] | None = None,
        expiration_seconds: int | None = None,
    ) -> JsonObject:
        """A manifest with these bytes as ``spec.request``; the usages are a kubelet client's by default."""
        ...


def _new_authority(algorithm: EncryptionAlgorithm | None = None) -> ClusterCertificateAuthority:
    from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority

    return new_cluster_certificate_authority(algorithm or EncryptionAlgorithm.ECDSA_P256)


@pytest.fixture
def make_cluster_certificate_authority() -> MakeCertificateAuthority:
    """Factory of CAs like Cluster API's, including serial number 0."""
    return _new_authority


@pytest.fixture
def cluster_certificate_authority(
    make_cluster_certificate_authority: MakeCertificateAuthority,
) -> ClusterCertificateAuthority:
    """The CA of ``workload_cluster``."""
    return make_cluster_certificate_authority()


@pytest.fixture
def management_cluster() -> Iterator[ManagementCluster]:
    """A management cluster on an embedded API, with all CRDs and the controller's namespace."""
    with open_management_cluster() as management:
        yield management


@pytest.fixture
def make_workload_cluster(management_cluster: ManagementCluster) -> Iterator[MakeWorkloadCluster]:
    """Factory of workload clusters, each with its own embedded API and kubeadm's grants."""
    with open_workload_clusters(management_cluster) as make:
        yield make


@pytest.fixture
def workload_cluster(
    make_workload_cluster: MakeWorkloadCluster, cluster_certificate_authority: ClusterCertificateAuthority
) -> WorldCluster:
    """The workload cluster ``default/workload``, without a policy: call its ``authorize``."""
    return make_workload_cluster(authority=cluster_certificate_authority)


@pytest.fixture
def make_machine(request: pytest.FixtureRequest) -> MakeMachine:
    """Factory of Machines; without addresses, a Machine's node has the Machine's name."""

    def make(
        name: str,
        provider_id: str | None = None,
        *,
        addresses: Iterable[tuple[str, str]] = (),
        cluster: WorldCluster | None = None,
    ) -> JsonObject:
        owner = cluster or _workload_cluster(request)
        identifier = f"test:///{name}" if provider_id is None else provider_id
        return owner.add_machine(name, provider_id=identifier, addresses=addresses)

    return make


@pytest.fixture
def make_node(request: pytest.FixtureRequest) -> MakeNode:
    """Factory of simulated nodes, which make keys, evidence and requests with the attestor's own agent plugin."""
    from signer.testing.nodes import SimulatedNode

    def make(
        node_name: str,
        provider_id: str,
        provider: str,
        settings: Mapping[str, str] | None = None,
        *,
        cluster: WorldCluster | None = None,
    ) -> SimulatedNode:
        owner = cluster or _workload_cluster(request)
        return SimulatedNode(node_name, provider_id, owner.ca_cert_hash, provider, settings or {})

    return make


@pytest.fixture
def make_signing_request() -> MakeSigningRequest:
    """Factory of CertificateSigningRequest manifests with any bytes, such as malformed requests."""
    from signer.testing.nodes import CLIENT_USAGES, signing_request

    def make(
        name: str,
        request_bytes: bytes,
        signer_name: str,
        usages: Sequence[str] | None = None,
        expiration_seconds: int | None = None,
    ) -> JsonObject:
        chosen = CLIENT_USAGES if usages is None else usages
        return signing_request(name, request_bytes, signer_name, chosen, expiration_seconds)

    return make


@pytest.fixture
def attestation_controller(
    management_cluster: ManagementCluster,
    make_workload_cluster: MakeWorkloadCluster,
) -> Iterator[StartController]:
    """Starts controllers of ``management_cluster``; they stop at the end of the test, before the API servers do."""
    del make_workload_cluster  # requested only so that it is torn down later
    with open_controllers(management_cluster) as start:
        yield start


def _workload_cluster(request: pytest.FixtureRequest) -> WorldCluster:
    """``workload_cluster``, created only if no other cluster is given."""
    cluster: WorldCluster = request.getfixturevalue("workload_cluster")
    return cluster
