"""The world in which the scene plays."""

from __future__ import annotations

import base64
import contextlib
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from signer.access.creator import PROPAGATION
from signer.configuration import AccessPermission, Configuration, OperatorAttestor, SSHPermission
from signer.controller.run import ControllerOptions
from signer.kube.resources import ACCESS_GRANTS, BASTIONS, NODE_ATTESTATION_POLICIES
from signer.testing.api import EmbeddedAPI
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.demo.access.surroundings import CONTROLLERS, NAMESPACE, PEOPLE, bastion_command, prepare, webhook
from tests.demo.machines import provider_id
from tests.demo.ssh.__main__ import node_program
from tests.support.access_client import Person
from tests.support.access_node import NODE, AccessNode
from tests.support.bastions.local_cloud import LocalCloud, own_address
from tests.support.node_program import NodeProgram
from tests.support.processes import ProgramFailed, Programs, wait_until
from tests.support.remembered_audit import RememberedAudit

CLUSTER: Final = "production"
TIME_TO_LIVE: Final = timedelta(seconds=25)
"""Shorter than any policy of a real controller may say: a minute."""


@dataclass(frozen=True)
class Stage:
    """The node has joined, and nobody has a grant."""

    cluster: WorldCluster
    node: AccessNode
    cloud: LocalCloud
    people: dict[str, Person]
    audit: RememberedAudit
    address: str
    """Of the bastions, the node and the people: they differ by their keys alone."""

    def grants(self) -> list[dict[str, Any]]:
        """All of them."""
        return self.cluster.management.client.items(ACCESS_GRANTS.collection(NAMESPACE))

    def grant_of(self, person: str) -> dict[str, Any]:
        """That person's grant; empty if there is none."""
        return next((one for one in self.grants() if one["spec"]["createdBy"]["username"] == person), {})

    def bastion_uid(self, grant: Mapping[str, Any]) -> str:
        """The UID of a grant's Bastion, which has the grant's name."""
        path = BASTIONS.object(grant["metadata"]["name"], NAMESPACE)
        return str(self.cluster.management.client.get(path)["metadata"]["uid"])


@contextlib.contextmanager
def opened(console: Console) -> Iterator[Stage]:
    """A cluster whose policy allows grants, with a node that has its certificates, and all controllers."""
    master_key = secrets.token_bytes(32)
    settings = {"masterKey": base64.b64encode(master_key).decode("ascii")}
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings=settings)},
        ssh=SSHPermission(frozenset({NAMESPACE})),
        access=AccessPermission(frozenset({NAMESPACE}), bastions=frozenset({"local"})),
    )
    audit = RememberedAudit()
    with contextlib.ExitStack() as stack:
        with console.status("Starting API servers, controllers, and a node with systemd …"):
            address = own_address()
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-attestation-demo-")))
            folder.chmod(0o755)  # sshd's command runs as another user
            cloud = stack.enter_context(LocalCloud())
            management_api = stack.enter_context(EmbeddedAPI())
            workload_api = stack.enter_context(EmbeddedAPI(seed_kubeadm=True))
            management = stack.enter_context(ManagementCluster(management_api))
            prepare(management_api)
            stack.enter_context(webhook(management_api))
            proven = time.time() + PROPAGATION.total_seconds() + 1
            node = stack.enter_context(AccessNode(folder / "node", host=address))
            cluster = management.add_cluster(CLUSTER, workload_api, namespace=NAMESPACE)
            access = {
                "timeToLive": f"{TIME_TO_LIVE.seconds}s",
                "nodePort": node.port,
                "bastion": {"provider": "local"},
            }
            cluster.authorize("keyed-mac", ssh={"access": access})
            cluster.add_machine(NODE, provider_id=provider_id(NODE), addresses=[("InternalIP", address)])
            stack.enter_context(
                RunningController(
                    management_api.connection(CONTROLLERS.grants), configuration, ControllerOptions(audit_log=audit)
                )
            )
            programs = stack.enter_context(Programs("node-access-bastions-demo-"))
            command = bastion_command(
                sys.executable, folder / "bastions", management_api, cloud, address=address, node_port=node.port
            )
            bastions = programs.start("node-access-bastions", command)
            policy = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
            wait_until(lambda: "ssh" in (management.client.get(policy).get("status") or {}), "the SSH authorities")
            program = node_program(cluster, node, folder / "programs", master_key)
            _join(cluster, program)
            bastions.check_running()
            wait_until(lambda: time.time() > proven, "admission counts")
            people = {name: Person(folder / name, management_api, name) for name in PEOPLE}
            for person in people.values():
                stack.callback(person.close)
                person.start_agent()
        stage = Stage(cluster, node, cloud, people, audit, address)
        stack.callback(_tidy, stage)
        yield stage


def _tidy(stage: Stage) -> None:
    """End the grants: heartbeats run in the background until then."""
    for name, person in stage.people.items():
        grant = stage.grant_of(name)
        if grant:
            person.run("grant", "revoke", grant["metadata"]["name"])
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not stage.grants(), "the grants are gone")


def _join(cluster: WorldCluster, program: NodeProgram) -> None:
    program.supply_bootstrap(cluster)
    ran = program.credential()
    if ran.exit_code != 0:
        raise ProgramFailed(f"kubelet-authenticator of {NODE}: {ran.log}")
