"""The base of every integration test: clusters under the keyed-mac attestor, their nodes, and assertions."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Final, Self, cast

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.audit.log import NoAuditLog
from signer.configuration import OperatorAttestor, operator_settings
from signer.controller.run import ControllerOptions
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_SIGNING_REQUESTS,
    EVENTS,
    IDENTITY_RESERVATIONS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.seal import ControllerKeys
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.api import EmbeddedAPI, LoggedRequest
from signer.testing.clients import DEFAULT_WAIT_SECONDS
from signer.testing.fixtures import MakeWorkloadCluster, StartController, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, Verdict, WorldCluster
from tests.support.journal import journal_of
from tests.support.remembered_audit import RememberedAudit, assert_all_replayed

MASTER_KEY: Final = bytes(range(32))
SECRETS_IN_PLAY: Final = (base64.b64encode(MASTER_KEY).decode("ascii"), MASTER_KEY.hex())
CONTROLLER_USER: Final = "attestation-controller"
"""What the controller is called at every API server, to tell its requests from the tests' own."""
MASTERS: Final = ("system:masters",)


def keyed_mac() -> dict[str, OperatorAttestor]:
    """The operator's configuration of the test attestor."""
    return {"keyed-mac": OperatorAttestor(settings={"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")})}


def provider_id(machine: str) -> str:
    """The provider ID of a Machine in these tests."""
    return f"test:///{machine}"


def nodes_clocks_say(now: Callable[[], datetime], monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that the nodes' evidence states, where a test sets the controller's clock."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cast("Self", now().astimezone(tz))

    monkeypatch.setattr("keyed_mac.node.datetime", Clock)


def node_of(cluster: WorldCluster, machine: str, node_name: str | None = None) -> SimulatedNode:
    """The node on that Machine, which holds the Machine's key; ``node_name`` is what it asks for."""
    identifier = provider_id(machine)
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, identifier)).decode("ascii")
    settings = {"provider-id": identifier, "machine-key": machine_key}
    return SimulatedNode(node_name or machine, identifier, cluster.ca_cert_hash, "keyed-mac", settings)


@dataclass
class Harness:
    """A management cluster, workload clusters and controllers, with the controller under a name of its own."""

    management: ManagementCluster
    make_cluster: MakeWorkloadCluster
    start: StartController
    audited: list[tuple[RememberedAudit, ControllerOptions, dict[str, OperatorAttestor]]] = field(default_factory=list)
    """What each of its controllers logged."""
    _joined: int = field(default=0, init=False)

    @property
    def api(self) -> EmbeddedAPI:
        """The management API."""
        return embedded_api(self.management)

    def cluster(
        self,
        name: str = "workload",
        attestors: Iterable[str] = ("keyed-mac",),
        *,
        namespace: str = "default",
        policy: Mapping[str, Any] | None = None,
        api: Mapping[str, Any] | None = None,
    ) -> WorldCluster:
        """A workload cluster with a policy; without any attestor it has none."""
        cluster = self.make_cluster(name, namespace=namespace, **(api or {}))
        kubeconfig = embedded_api(cluster).kubeconfig(name, CONTROLLER_USER, MASTERS)
        cluster.put_secret("kubeconfig", {"value": kubeconfig.encode()})
        authorized = tuple(attestors)
        if authorized:
            cluster.authorize(*authorized, **(policy or {}))
        return cluster

    def run(self, options: ControllerOptions | None = None, **configuration: Any) -> RunningController:
        """Start a controller that knows the test attestor."""
        chosen = {"attestors": keyed_mac(), **configuration}
        options = options or ControllerOptions()
        if isinstance(options.audit_log, NoAuditLog):
            audit = RememberedAudit()
            options = replace(options, audit_log=audit)
            self.audited.append((audit, options, chosen["attestors"]))
        return self.start(options=options, connection=self.api.connection(CONTROLLER_USER, MASTERS), **chosen)

    def assert_audited(self) -> None:
        """Replay every logged decision of its controllers; each must come out the same."""
        for audit, options, attestors in self.audited:
            assert_all_replayed(audit.lines, options.registry, partial(operator_settings, attestors))

    def join(self, cluster: WorldCluster, machine: str = "") -> Verdict:
        """Let a fresh honest node join; it must be decided, and well."""
        self._joined += 1
        name = machine or f"honest-{self._joined}"
        cluster.add_machine(name, provider_id=provider_id(name))
        csr = f"join-{cluster.name}-{name}"
        cluster.submit_with_token(node_of(cluster, name).client_request(csr))
        verdict = cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        return verdict

    def wait_for_event(
        self,
        reason: str,
        name: str,
        kind: str = "Machine",
        namespace: str = "default",
        *,
        part: str = "",
        seconds: float = DEFAULT_WAIT_SECONDS,
    ) -> str:
        """Wait for an Event on that object with ``part`` in its message; returns the message.

        Raises:
            AssertionError: there was none within ``seconds``; tells what was said instead.
        """
        others: list[str] = []

        def fits(event: dict[str, Any]) -> bool:
            about = event["involvedObject"]
            if not (event["reason"] == reason and about["kind"] == kind and about["name"] == name):
                return False
            others.append(event["message"])
            return part in event["message"]

        try:
            message: str = self.management.client.wait_for_any(EVENTS.collection(namespace), fits, seconds)["message"]
        except TimeoutError as error:
            raise AssertionError(f"no Event {reason} on {kind} {name} with {part!r}, but {others}") from error
        return message

    def wait_for_condition(self, cluster: WorldCluster, kind: str, status: str) -> dict[str, Any]:
        """Wait until the cluster's policy shows that condition; returns it."""

        def found(policy: dict[str, Any]) -> list[dict[str, Any]]:
            conditions = (policy.get("status") or {}).get("conditions") or []
            return [item for item in conditions if item["type"] == kind and item["status"] == status]

        path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
        policy = self.management.client.wait_for(path, cluster.name, lambda item: bool(found(item)))
        return found(policy)[0]

    def records(self, cluster: WorldCluster) -> list[dict[str, Any]]:
        """The cluster's AttestedNodes."""
        items = self.management.client.items(ATTESTED_NODES.collection(cluster.namespace))
        return [item for item in items if item["spec"]["clusterName"] == cluster.name]

    def reservations(self) -> list[dict[str, Any]]:
        """All IdentityReservations."""
        return self.management.client.items(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE))


def writes(api: EmbeddedAPI) -> list[LoggedRequest]:
    """What the controller wrote there with success, but Events and conditions of policies; a review writes nothing."""
    return [
        entry
        for entry in api.requests.writes()
        if entry.user == CONTROLLER_USER
        and not entry.path.endswith(("/events", "/selfsubjectaccessreviews"))
        and "nodeattestationpolicies" not in entry.path
    ]


def pending(cluster: WorldCluster, name: str) -> Verdict:
    """A CSR that must not have been decided."""
    verdict = cluster.verdict(name)
    assert (verdict.condition, verdict.certificate) == ("", b""), verdict
    return verdict


def certificate_of(verdict: Verdict) -> x509.Certificate:
    """The certificate, read strictly."""
    return x509.load_pem_x509_certificate(verdict.certificate)


def assert_readable(message: str, *secrets: str) -> None:
    """A message for people: printable, bounded, not empty, and without any secret."""
    assert message
    assert len(message) <= 1024
    assert message.isascii()
    assert message.isprintable()
    for secret in (*SECRETS_IN_PLAY, *secrets):
        assert secret not in message


def assert_one_certificate(harness: Harness, cluster: WorldCluster, machine: str, *csrs: str) -> None:
    """Each CSR has exactly the certificate that the journal allows, once; one reservation pair for the Machine."""
    records = [record for record in harness.records(cluster) if record["spec"]["machineRef"]["name"] == machine]
    assert len(records) == 1, records
    journal = journal_of(records[0]["spec"])
    assert sorted(entry["csrName"] for entry in journal) == sorted(csrs)
    for csr in csrs:
        verdict = cluster.verdict(csr)
        assert verdict.condition == "Approved", verdict
        entry = next(entry for entry in journal if entry["csrName"] == csr)
        assert f"{certificate_of(verdict).serial_number:x}" == entry["serialNumber"]
        if isinstance(cluster.api, EmbeddedAPI):  # which has a log of its requests
            published = cluster.api.requests.writes(f"PUT {CERTIFICATE_SIGNING_REQUESTS.object(csr)}/status")
            assert len(published) <= 1
    pair = [item for item in harness.reservations() if item["spec"]["machineRef"]["name"] == machine]
    assert len(pair) == 2, pair


def keys_of(harness: Harness) -> ControllerKeys:
    """The controller's keys."""
    return parse_controller_keys(harness.management.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)))
