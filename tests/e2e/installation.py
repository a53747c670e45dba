"""The chart, installed by helm on a real kube-apiserver, with Cluster API, a Cluster and a controller to run."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from signer.testing.world import CONTROLLER_NAMESPACE
from tests.e2e.auto_approval_fixtures import NAMESPACE, AutoApprovalWorld, furnished
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.contained import ContainedController
from tests.support.container_engine import ContainerEngine
from tests.support.control_plane import ControlPlane
from tests.support.deployed import DeployedController, Pod
from tests.support.grants import SERVICE_ACCOUNT, service_account_token
from tests.support.helm import CHART, REGISTRY, find_helm, run_helm
from tests.support.processes import free_port
from tests.support.raw_client import RawClient

RELEASE: Final = "node-attestation"
DEPLOYMENT: Final = "node-attestation-controller"
IN_NAMESPACE: Final = ["--namespace", CONTROLLER_NAMESPACE]


@dataclass(frozen=True)
class Installation:
    """The release, and what is around it."""

    world: AutoApprovalWorld
    values: Mapping[str, Any]
    notes: str
    folder: Path

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm against the management cluster."""
        return run_helm([*arguments, *IN_NAMESPACE], values=values, kubeconfig=self.world.plane.kubeconfig())

    def upgrade(self, **values: Any) -> None:
        """Upgrade the release; these values replace those of the installation."""
        self.helm("upgrade", RELEASE, str(CHART), values={**self.values, **values})

    @contextlib.contextmanager
    def running(self) -> Iterator[DeployedController]:
        """The Deployment's container."""
        folder = self.folder / secrets.token_hex(4)
        folder.mkdir()
        with DeployedController(self.world.plane, CONTROLLER_NAMESPACE, DEPLOYMENT, folder) as controller:
            yield controller

    @contextlib.contextmanager
    def contained(self, engine: ContainerEngine, image: str) -> Iterator[ContainedController]:
        """The Deployment's container in that image."""
        folder = self.folder / secrets.token_hex(4)
        folder.mkdir()
        plane = self.world.plane
        controller = ContainedController(plane, CONTROLLER_NAMESPACE, DEPLOYMENT, folder, engine=engine, image=image)
        with controller:
            yield controller

    def pod(self) -> Pod:
        """The Deployment's Pod."""
        return Pod(self.world.plane, CONTROLLER_NAMESPACE, DEPLOYMENT)

    def exists(self, path: str) -> bool:
        """Whether there is an object of that path."""
        with RawClient(self.world.plane.connection()) as administrator:
            return administrator.get(path).status == 200


@contextlib.contextmanager
def installation(name: str, folder: Path) -> Iterator[Installation]:
    """Helm installs first; Cluster API and its Clusters come later. Where a part is missing, the test is skipped."""
    try:
        find_helm()
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    master_key = secrets.token_bytes(32)
    settings = {"masterKey": base64.b64encode(master_key).decode("ascii")}
    values = {
        "image": {"registry": REGISTRY},
        "config": {"attestors": {"keyed-mac": {"namespaces": [NAMESPACE], "settings": settings}}},
        "rbac": {"secretNamespaces": [NAMESPACE]},
        "health": {"port": free_port()},
        "helmTest": {"enabled": True},
        "diagnostics": {"port": free_port()},
    }
    with ControlPlane() as plane:
        with RawClient(plane.connection()) as administrator:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            administrator.post("/api/v1/namespaces", namespace).expect(201)
        install = ["install", RELEASE, str(CHART), *IN_NAMESPACE, "--create-namespace"]
        notes = run_helm(install, values=values, kubeconfig=plane.kubeconfig())
        access = plane.token_connection(service_account_token(plane, CONTROLLER_NAMESPACE, SERVICE_ACCOUNT))
        with furnished(plane, name, master_key, access) as world:
            yield Installation(world, values, notes, folder)
        plane.check_running()
