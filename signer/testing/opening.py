"""The pytest fixtures as context managers, for test suites without pytest and for fixtures of a wider scope.

::

    with (
        open_management_cluster() as management,
        open_workload_clusters(management) as make_cluster,
        open_controllers(management) as start_controller,
    ):
        cluster = make_cluster("production")

Open them in this order, so that a controller stops before its API servers.

:mod:`signer.testing.fixtures` imports this module in every run of pytest, so it imports heavy modules lazily.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from signer.entry import what_is_missing
from signer.model.program_version import DISTRIBUTION

if TYPE_CHECKING:
    from pathlib import Path

    from signer.controller.run import ControllerOptions
    from signer.kube.connection import ClusterConnection
    from signer.testing.api import EmbeddedAPI
    from signer.testing.certificates import ClusterCertificateAuthority
    from signer.testing.world import ManagementCluster, RunningController, WorldCluster


class MakeWorkloadCluster(Protocol):
    """Type of ``make_workload_cluster``."""

    def __call__(
        self,
        name: str = "workload",
        *,
        namespace: str = "default",
        authority: ClusterCertificateAuthority | None = None,
        **api_options: Any,
    ) -> WorldCluster:
        """A Cluster with its Secrets and its own embedded API; ``api_options`` are passed to ``EmbeddedAPI``."""
        ...


class StartController(Protocol):
    """Type of ``attestation_controller``."""

    def __call__(
        self,
        *,
        options: ControllerOptions | None = None,
        connection: ClusterConnection | None = None,
        **configuration: Any,
    ) -> RunningController:
        """Start a controller; ``configuration`` are the fields of ``signer.configuration.Configuration``. Without
        ``attestors``, it names every attestor that is installed, without settings.

        It acts as an administrator of the management cluster, or as the user of ``connection``.
        """
        ...


def embedded_api(cluster: ManagementCluster | WorldCluster) -> EmbeddedAPI:
    """The embedded API of a cluster, with its ``faults``, its log ``requests`` and its objects.

    Raises:
        TypeError: the cluster has another API server.
    """
    from signer.testing.api import EmbeddedAPI

    if not isinstance(cluster.api, EmbeddedAPI):
        raise TypeError(f"{type(cluster.api).__name__} is not an embedded API")
    return cluster.api


@contextlib.contextmanager
def open_management_cluster(capi_crds: Path | None = None) -> Iterator[ManagementCluster]:
    """What ``management_cluster`` gives; ``capi_crds`` is a folder with Cluster API's own CRDs, else reduced ones.

    Raises:
        ModuleNotFoundError: the controller's libraries are not installed; the message says what to install.
    """
    try:
        from signer.testing.api import EmbeddedAPI
        from signer.testing.world import ManagementCluster
    except ModuleNotFoundError as error:
        missing = what_is_missing(error, f"{DISTRIBUTION}-testing")
        if not missing:
            raise
        raise ModuleNotFoundError(missing, name=error.name) from error

    with EmbeddedAPI() as api, ManagementCluster(api, capi_crds=capi_crds) as management:
        yield management


@contextlib.contextmanager
def open_workload_clusters(management: ManagementCluster) -> Iterator[MakeWorkloadCluster]:
    """The factory of ``make_workload_cluster``: each Cluster has its own embedded API, with kubeadm's grants."""
    from signer.testing.api import EmbeddedAPI
    from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority

    with contextlib.ExitStack() as stack:

        def make(
            name: str = "workload",
            *,
            namespace: str = "default",
            authority: ClusterCertificateAuthority | None = None,
            **api_options: Any,
        ) -> WorldCluster:
            authority = authority or new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
            options = {"seed_kubeadm": True, **api_options}
            api = EmbeddedAPI(ca_certificate=authority.certificate, ca_key=authority.private_key, **options)
            cluster = management.add_cluster(name, stack.enter_context(api), namespace=namespace)
            stack.callback(cluster.close)
            return cluster

        yield make


@contextlib.contextmanager
def open_controllers(management: ManagementCluster) -> Iterator[StartController]:
    """The factory of ``attestation_controller``; all controllers stop at the end of the context."""
    from signer.configuration import Configuration, every_attestor
    from signer.controller.run import ControllerOptions
    from signer.testing.world import CONTROLLER_NAMESPACE, RunningController

    with contextlib.ExitStack() as stack:

        def start(
            *,
            options: ControllerOptions | None = None,
            connection: ClusterConnection | None = None,
            **configuration: Any,
        ) -> RunningController:
            options = options or ControllerOptions()
            named = every_attestor(options.registry.providers)
            chosen = Configuration(**{"namespace": CONTROLLER_NAMESPACE, "attestors": named, **configuration})
            return stack.enter_context(RunningController(connection or management.api.connection(), chosen, options))

        yield start
