"""What the playground has: two control planes, a Cluster, machines with software TPMs, and a thief."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.nodes import SimulatedNode
from signer.testing.world import ManagementCluster, WorldCluster
from tests.e2e.auto_approval_fixtures import builtin_client_request
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.kubectl import find_kubectl
from tests.support.node_program import NodeProgram
from tests.support.software_tpm import SoftwareTPM, find_tpm_library

CLUSTER: Final = "production"
WORKERS: Final = ("worker-1", "worker-2")
THIEF: Final = "thief"
"""A machine with a genuine TPM and a bootstrap token, which says that it is the first worker."""
THEFTS: Final = ("theft-1", "theft-2")
"""Requests of a stock kubelet in the first worker's name, for the holder of a bootstrap token."""
ENVIRONMENT: Final = "environment"
_TOKEN_LIFETIME: Final = timedelta(hours=12)
_WAITS_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Playground:
    """What runs, and the folder with the files that a person needs."""

    folder: Path
    management: ControlPlane
    workload: ControlPlane

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` if a program has ended by itself."""
        self.management.check_running()
        self.workload.check_running()


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Playground]:
    """Start everything, and write the files into the new ``folder``, which is removed at the end.

    Raises:
        FileExistsError: there is something of that name.
        MissingPart: a real part is not installed.
    """
    if folder.exists():
        raise FileExistsError(folder)
    find_tpm_library()
    kubectl = find_kubectl()
    with contextlib.ExitStack() as stack:
        management = stack.enter_context(ControlPlane())
        workload = stack.enter_context(ControlPlane())
        workload.seed_kubeadm()
        workload.start_controllers()
        world = stack.enter_context(ManagementCluster(management, capi_crds=cluster_api_crds(), without_ours=True))
        cluster = world.add_cluster(CLUSTER, workload)
        folder.mkdir(mode=0o700, parents=True)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "management.kubeconfig").write_text(management.kubeconfig("management"))
        (folder / "workload.kubeconfig").write_text(workload.kubeconfig(CLUSTER))
        chips = _machines(stack, cluster, workload, folder)
        _controller_configuration(folder, chips[0])
        _thefts(workload, folder)
        _environment(folder, kubectl)
        yield Playground(folder, management, workload)


def provider_id(machine: str) -> str:
    """As an infrastructure provider would give it."""
    return f"metal://{machine}"


def _machines(
    stack: contextlib.ExitStack, cluster: WorldCluster, workload: ControlPlane, folder: Path
) -> list[SoftwareTPM]:
    """The workers with their Machines, and the thief; all have TPMs of one maker."""
    first = stack.enter_context(SoftwareTPM())
    others = [stack.enter_context(SoftwareTPM(same_authority_as=first)) for _ in range(len(WORKERS))]
    chips = [first, *others]
    for number, (name, chip) in enumerate(zip((*WORKERS, THIEF), chips, strict=True), start=1):
        claimed = WORKERS[0] if name == THIEF else name
        settings = {"tcti": chip.tcti, "provider-id": provider_id(claimed)}
        node = SimulatedNode(claimed, provider_id(claimed), cluster.ca_cert_hash, "tpm", settings)
        program = NodeProgram(folder / name, node, timeout=_WAITS_SECONDS)
        program.supply_bootstrap(cluster, workload.bootstrap_token(_TOKEN_LIFETIME))
        if name != THIEF:
            addresses = [("Hostname", name), ("InternalIP", f"192.0.2.{number}")]
            cluster.add_machine(name, provider_id=provider_id(name), addresses=addresses)
    return chips


def _controller_configuration(folder: Path, chip: SoftwareTPM) -> None:
    settings = {}
    for setting, name, content in (
        ("endorsementRootsFolder", "roots", chip.root_certificate),
        ("endorsementIntermediatesFolder", "intermediates", chip.issuer_certificate),
    ):
        (folder / name).mkdir()
        (folder / name / "maker.pem").write_bytes(content)
        settings[setting] = str(folder / name)
    configuration = {"attestors": {"tpm": {"namespaces": ["default"], "settings": settings}}}
    (folder / "controller.yaml").write_text(yaml.safe_dump(configuration))


def _thefts(workload: ControlPlane, folder: Path) -> None:
    token = workload.bootstrap_token(_TOKEN_LIFETIME)
    (folder / "stolen-token.kubeconfig").write_text(kubeconfig_of(workload.token_connection(token), CLUSTER))
    for name in THEFTS:
        request = builtin_client_request(name, WORKERS[0], ec.generate_private_key(ec.SECP256R1()))
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(request))


def _environment(folder: Path, kubectl: Path) -> None:
    """A file for the shell: this project's programs, kubectl, and the management cluster."""
    path = ":".join(dict.fromkeys([str(Path(sys.executable).parent), str(kubectl.parent)]))
    lines = [
        f"export PATH={shlex.quote(path)}:$PATH",
        f"export KUBECONFIG={shlex.quote(str(folder / 'management.kubeconfig'))}",
        f"export NODE_ATTESTATION_CONFIG={shlex.quote(str(folder / 'controller.yaml'))}",
        f"export PLAYGROUND={shlex.quote(str(folder))}",
    ]
    (folder / ENVIRONMENT).write_text("\n".join([*lines, ""]))
