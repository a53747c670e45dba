"""The demo's cloud instances, on a fake AWS and a fake Google, which sign and verify as the real ones do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from signer.configuration import OperatorAttestor
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.demo.machines import Attempt
from tests.demo.programs import ask_with_program
from tests.support.fake_aws import EC2Instance, FakeAccount
from tests.support.fake_google import FakeGoogle, FakeInstance

PROJECT: Final = "production-project"
_PROJECT_NUMBER: Final = 730000000001
_BUILD_ROLE: Final = "build-agents"


class CastOnEC2:
    """Two instances with the allowed role, and one with another role; each is a Machine."""

    def __init__(self, cluster: WorldCluster, account: FakeAccount, folder: Path) -> None:
        self._cluster = cluster
        self._account = account
        self._folder = folder
        self._numbers = itertools.count()
        self._web_1, self._web_2, self._build_1 = account.launch(), account.launch(), account.launch(role=_BUILD_ROLE)
        for name, instance in (("web-1", self._web_1), ("web-2", self._web_2), ("build-1", self._build_1)):
            cluster.add_machine(name, provider_id=instance.provider_id, addresses=instance.addresses)

    def attempts(self) -> list[Attempt]:
        """The three attempts, in order."""
        return [
            Attempt(
                "web-1",
                self._web_1.node_name,
                "It presents its instance identity document, which EC2 signed, and a request to STS. The instance's "
                "credentials sign the request to STS for this CSR only. The controller verifies both with STS, IAM and "
                "EC2.",
                lambda: self._ask(self._web_1),
                "Approved",
                "Attested",
            ),
            Attempt(
                "web-2",
                self._web_1.node_name,
                "It presents a copy of web-1's document, and signs the request to STS with web-2's credentials.",
                lambda: self._ask(self._web_1.but(session=self._web_2.session)),
                "Denied",
                "CallerIsAnotherInstance",
            ),
            Attempt(
                "build-1",
                self._build_1.node_name,
                f"It proves its identity, but the operator does not allow its role, {_BUILD_ROLE}.",
                lambda: self._ask(self._build_1),
                "Denied",
                "RoleNotAllowed",
            ),
        ]

    def _ask(self, instance: EC2Instance) -> str:
        settings = self._account.metadata_of(instance)
        known = self._cluster.ca_cert_hash
        node = SimulatedNode(instance.node_name, instance.provider_id, known, "aws", settings)
        return ask_with_program(self._cluster, node, self._folder / f"aws-{next(self._numbers)}")


def google_attestor(google: FakeGoogle, folder: Path) -> OperatorAttestor:
    """The operator's settings, which allow the instances of one project."""
    return OperatorAttestor(
        settings={
            "projects": {PROJECT: _PROJECT_NUMBER},
            "checkInstance": True,
            "credentialsFile": google.write_account_key(folder),
            "computeEndpoint": google.compute_url,
        }
    )


class CastAtGoogle:
    """An instance of the operator's project, which is a Machine, and one of an attacker's project."""

    def __init__(self, cluster: WorldCluster, google: FakeGoogle, folder: Path) -> None:
        self._cluster = cluster
        self._google = google
        self._folder = folder
        created = datetime.now(UTC) - timedelta(hours=1)
        self._vm_1 = google.add(
            FakeInstance(name="vm-1", project=PROJECT, project_number=str(_PROJECT_NUMBER), created=created)
        )
        self._foreign = google.add(
            replace(self._vm_1, project="attackers-project", project_number="730000000666", instance_id="4712")
        )
        cluster.add_machine("vm-1", provider_id=self._vm_1.provider_id)

    def attempts(self) -> list[Attempt]:
        """The two attempts, in order."""
        return [
            Attempt(
                "vm-1",
                "vm-1",
                "It presents an identity token, which Google signed for this CSR only. The controller verifies the "
                "token and reads the instance from Compute Engine.",
                lambda: self._ask(self._vm_1),
                "Approved",
                "Attested",
            ),
            Attempt(
                "attackers-vm-1",
                "vm-1",
                "It runs in the attacker's own project, is also called vm-1, and claims to be the operator's vm-1.",
                lambda: self._ask(self._foreign),
                "Denied",
                "ProjectNotAllowed",
            ),
        ]

    def _ask(self, instance: FakeInstance) -> str:
        settings = {"metadata-endpoint": self._google.metadata_of(instance)}
        known = self._cluster.ca_cert_hash
        node = SimulatedNode("vm-1", self._vm_1.provider_id, known, "gcp", settings)
        return ask_with_program(self._cluster, node, self._folder / f"gcp-{instance.project}")
