"""Reports of decisions, with names and requesters that a hostile API server controls."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from attestors.wire import pem
from attestors.wire.names import CERTIFICATE_REQUEST_LABEL, Purpose, SignerName
from signer.controller.requests.reporter import MESSAGES_PER_REASON, REPORT_AGAIN_SECONDS, Reporter
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.recorder import Occurrence, Subject
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Approve, ApproveOnly, Challenge, Decision, Defer, Deny, Ignore, LeftAlone
from signer.model.documentation import DOCUMENTATION_URL
from signer.model.explain_command import NoControllerDeployment
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import JournalEntry
from signer.model.record_object import record_spec
from signer.model.seal import ControllerKeys, RecordSeals
from signer.model.signing_request import (
    AttestedCSRHeader,
    BuiltinServingRequest,
    Malformed,
    NoCredentialNamed,
    NotOurs,
    Parsed,
    parse_signing_request,
)
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer import builders
from tests.unit.signer.controller.support import NOW

HOSTILE = "\x1b[31mhé\n" + "x" * 5000
KEY = ClusterKey("team-a", "one")


@dataclass
class Cluster:
    uid: str = "cluster-uid"
    deleting: bool = False


@dataclass
class Version:
    api_version: str = "cluster.x-k8s.io/v1beta2"


@dataclass
class Around:
    """A reporter's dependencies and its reports."""

    metrics: Metrics = field(default_factory=Metrics)
    recorded: list[Occurrence] = field(default_factory=list)
    passed: float = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def now(self) -> datetime:
        return builders.NOW

    @property
    def recorder(self) -> Any:
        return self

    @property
    def caches(self) -> Any:
        return self

    clusters = caches

    @property
    def version(self) -> Any:
        return Versions()

    def get(self, namespace: str, name: str) -> Cluster:
        assert (namespace, name) == (KEY.namespace, KEY.name)
        return Cluster()

    def record(self, occurrence: Occurrence) -> None:
        self.recorded.append(occurrence)


@dataclass
class Versions:
    clusters: Version = field(default_factory=Version)


def request(username: str = "system:bootstrap:abcdef") -> Malformed:
    header = AttestedCSRHeader(
        name="csr",
        uid="uid-1",
        resource_version="1",
        signer=SignerName(Purpose.CLIENT, "keyed-mac"),
        username=username,
        groups=frozenset(),
        usages=(),
        expiration_seconds=None,
        created="",
        conditions=frozenset(),
        spec_digest="",
        credential=NoCredentialNamed(),
        approval_seal="",
    )
    return Malformed(header, Reason.MALFORMED_REQUEST, "no block")


def approval(reason: Reason) -> Approve:
    entry = JournalEntry("", "csr", "uid-1", "", "", "", 1, NOW, NOW + timedelta(hours=1), "", "", "", "", NOW, NOW)
    return Approve("n1", reason, "it is so", entry, b"")


def reporter_over(around: Any, *listeners: Any, key: ClusterKey = KEY) -> Reporter:
    return Reporter(
        key,
        caches=around.caches,
        recorder=around.recorder,
        metrics=around.metrics,
        now=around.now,
        monotonic=around.monotonic,
        runs_in=NoControllerDeployment(),
        listeners=listeners,
    )


def reporter() -> tuple[Reporter, Around]:
    around = Around()
    return reporter_over(around), around


def is_readable(text: str) -> bool:
    return 0 < len(text) <= 1024 and text.isascii() and text.isprintable()


@pytest.mark.parametrize(
    "decision", [Deny("MalformedRequest", "no block"), Defer("MachineNotFound", "none"), approval(Reason.ASSERTED)]
)
def test_foreign_names_are_bounded_and_escaped(decision: Decision, caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = reporter()
    with caplog.at_level(logging.INFO):
        announcing.report(HOSTILE, request(HOSTILE), decision)
    (line,) = caplog.records
    for field_name in ("csr", "requester"):
        assert is_readable(line.__dict__[field_name])
        assert line.__dict__[field_name].startswith("\\x1b[31mh\\xe9\\n")
    (event,) = around.recorded
    assert is_readable(event.message)


def test_an_assertion_names_its_csr(caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = reporter()
    with caplog.at_level(logging.INFO):
        announcing.report("csr-1", request(), approval(Reason.ASSERTED))
        announcing.report("csr-2", request(), approval(Reason.ATTESTED))
    assert [(event.type, event.message) for event in around.recorded] == [
        ("Warning", "it is so (CSR csr-1)"),
        ("Normal", "it is so"),
    ]
    assert [(line.__dict__["csr"], line.__dict__["requester"]) for line in caplog.records] == [
        ("csr-1", "system:bootstrap:abcdef"),
        ("csr-2", "system:bootstrap:abcdef"),
    ]


def test_a_deferral_is_reported_once_until_its_reason_changes_or_it_is_forgotten() -> None:
    announcing, around = reporter()
    for reason in ("MachineNotFound", "MachineNotFound", "ClusterPaused", "ClusterPaused"):
        announcing.report("csr", request(), Defer(reason, "wait"))
    assert [event.reason for event in around.recorded] == ["MachineNotFound", "ClusterPaused"]
    announcing.forget("csr")
    announcing.report("csr", request(), Defer("ClusterPaused", "wait"))
    assert len(around.recorded) == 3


def test_changed_messages_are_reported_up_to_a_bound() -> None:
    """A hostile API server's error may differ each time."""
    announcing, around = reporter()
    for message in ["one", "one", "two", *(f"answer {number}" for number in range(100))]:
        announcing.report("csr", request(), Defer("EndorsementKeyUnknown", message))
    listener = [event.message for event in around.recorded]
    assert listener == ["one", "two", *(f"answer {number}" for number in range(MESSAGES_PER_REASON - 2))]
    announcing.report("csr", request(), Defer("ClusterPaused", "wait"))
    announcing.report("csr", request(), Defer("EndorsementKeyUnknown", "one"))
    assert len(around.recorded) == MESSAGES_PER_REASON + 2


def test_a_lasting_deferral_is_reported_again_before_its_event_expires() -> None:
    announcing, around = reporter()
    reports = 12
    for _ in range(reports):
        announcing.report("csr", request(), Defer("MachineNotFound", "wait"))
        around.passed += REPORT_AGAIN_SECONDS / 4
    assert len(around.recorded) == reports // 4
    # kube-apiserver's --event-ttl
    assert timedelta(hours=1).total_seconds() > REPORT_AGAIN_SECONDS


def test_varying_messages_are_not_reported_more_often() -> None:
    announcing, around = reporter()
    for number in range(MESSAGES_PER_REASON + 50):
        announcing.report("csr", request(), Defer("EndorsementKeyUnknown", f"answer {number}"))
    around.passed += REPORT_AGAIN_SECONDS
    for number in range(50):
        announcing.report("csr", request(), Defer("EndorsementKeyUnknown", f"late answer {number}"))
    assert [event.message for event in around.recorded[MESSAGES_PER_REASON:]] == ["late answer 0"]


def test_a_request_left_alone_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = reporter()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            announcing.report("csr", request(), LeftAlone(Deny("NoRecord", "not attested")))
            around.passed += 2 * REPORT_AGAIN_SECONDS
    assert len(caplog.records) == 1


def test_irrelevant_requests_are_not_reported() -> None:
    announcing, around = reporter()
    announcing.report("csr", NotOurs(), Deny("MalformedRequest", "no block"))
    announcing.report("csr", request(), Ignore())
    assert around.recorded == []


def test_a_node_that_renews_is_logged_and_counted_without_an_event(caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = reporter()
    with caplog.at_level(logging.INFO):
        announcing.report("csr-1", request("system:node:n1"), approval(Reason.ATTESTED))
        announcing.report("csr-2", request("system:node:n1"), Deny("NodeNameMismatch", "no"))
    assert [event.reason for event in around.recorded] == ["NodeNameMismatch"]
    assert [line.__dict__["csr"] for line in caplog.records] == ["csr-1", "csr-2"]


def test_a_challenge_is_reported_for_a_join_and_not_for_a_renewal() -> None:
    announcing, around = reporter()
    announcing.report("csr-1", request("system:node:n1"), Challenge("prove it"))
    assert around.recorded == []
    announcing.report("csr-2", request(), Challenge("prove it"))
    assert [event.reason for event in around.recorded] == ["ChallengeIssued"]


def dns(name: str) -> bytes:
    return builders.tlv(0x82, name.encode())


class Listener:
    """A listener for decisions about Machines."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, str]] = []

    def decided(self, machine: MachineView, decision: Decision, hint: str) -> None:
        assert hint.startswith(" (CSR ")
        self.decisions.append((machine.name, type(decision).__name__))


class Fleet:
    """A reporter over real caches of the cluster that the requests of ``builders`` are for."""

    def __init__(self) -> None:
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
        self.caches = Caches(version, own_namespace="system", floors=NO_FLOORS)
        metadata = {"namespace": builders.CLUSTER.namespace, "name": builders.CLUSTER.name, "uid": "c-1"}
        self.caches.clusters.replaced([{"metadata": metadata}])
        self.listener = Listener()
        self.recorded: list[Occurrence] = []
        self.passed = 0.0
        around = SimpleNamespace(
            metrics=Metrics(),
            caches=self.caches,
            recorder=self,
            now=lambda: builders.NOW,
            monotonic=lambda: self.passed,
        )
        self._reporter = reporter_over(around, self.listener, key=builders.CLUSTER)

    def record(self, occurrence: Occurrence) -> None:
        self.recorded.append(occurrence)

    def machine(
        self, name: str, provider_id: str = "", *, cluster: str = builders.CLUSTER.name, **metadata: Any
    ) -> None:
        spec = {"clusterName": cluster, "providerID": provider_id}
        namespace = builders.CLUSTER.namespace
        self.caches.machines.applied(
            {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}", **metadata}, "spec": spec}
        )

    def pool(self, name: str, *provider_ids: str) -> None:
        spec = {"clusterName": builders.CLUSTER.name, "providerIDList": list(provider_ids)}
        metadata = {"namespace": builders.CLUSTER.namespace, "name": name, "uid": f"uid-{name}"}
        self.caches.machine_pools.applied({"metadata": metadata, "spec": spec})

    def report(self, decision: Decision, parsed: Parsed | None = None) -> Occurrence:
        self._reporter.report("csr", parsed or builders.signing_request(), decision)
        return self.recorded[-1]


DENIED = Deny("NodeNameMismatch", "no")


async def test_the_event_is_on_the_machine_that_the_request_claims() -> None:
    fleet = Fleet()
    fleet.machine("claimed", builders.PROVIDER_ID)
    event = fleet.report(DENIED)
    assert event.subject == Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-a", "claimed", "uid-claimed")
    assert event.message == "no"
    assert event.hint == (
        " (CSR csr: node-attestation-controller explain csr --cluster team-a/prod; "
        f"see {DOCUMENTATION_URL}/troubleshooting/#nodenamemismatch)"
    )
    assert fleet.listener.decisions == [("claimed", "Deny")]


@pytest.mark.parametrize("whole_cluster", [False, True])
async def test_each_renewal_of_a_machine_that_is_being_deleted_has_an_event(whole_cluster: bool) -> None:
    fleet = Fleet()
    going = {"deletionTimestamp": "2026-03-01T12:00:00Z"}
    renewal = builders.signing_request(builders.manifest(requester=builders.AS_NODE))
    fleet.machine("claimed", builders.PROVIDER_ID, **({} if whole_cluster else going))
    if whole_cluster:
        metadata = {"namespace": builders.CLUSTER.namespace, "name": builders.CLUSTER.name, "uid": "c-1", **going}
        fleet.caches.clusters.replaced([{"metadata": metadata}])
    assert fleet.report(approval(Reason.ATTESTED), renewal).subject.name == "claimed"
    fleet.report(approval(Reason.ATTESTED), renewal)
    fleet.report(Challenge("prove it"), renewal)
    assert [event.reason for event in fleet.recorded] == ["Attested", "Attested"]
    fleet.machine("claimed", builders.PROVIDER_ID)
    fleet.caches.clusters.replaced([{"metadata": {"namespace": "team-a", "name": "prod", "uid": "c-1"}}])
    fleet.report(approval(Reason.ATTESTED), renewal)
    assert len(fleet.recorded) == 2


async def test_the_event_of_a_pool_instance_names_the_instance() -> None:
    fleet = Fleet()
    fleet.pool("pool", builders.PROVIDER_ID, "test:///other")
    event = fleet.report(DENIED)
    assert (event.subject.kind, event.subject.name) == ("MachinePool", "pool")
    assert event.message == f"{builders.PROVIDER_ID}: no"


async def test_a_machine_without_a_provider_id_yet_is_found_by_its_name() -> None:
    fleet = Fleet()
    fleet.machine(builders.NODE)
    assert fleet.report(Defer("MachineNotFound", "none yet")).subject.name == builders.NODE
    assert fleet.listener.decisions == [(builders.NODE, "Defer")]


async def test_repeats_are_not_passed_to_listeners() -> None:
    """A newer request of the Machine may have been denied since, which its condition shows."""
    fleet = Fleet()
    fleet.machine("claimed", builders.PROVIDER_ID)
    for _ in range(3):
        fleet.report(Defer("MachineNotReady", "its bootstrap data is not ready"))
        fleet.passed += REPORT_AGAIN_SECONDS
    assert (len(fleet.recorded), fleet.listener.decisions) == (3, [("claimed", "Defer")])


async def test_a_deferral_is_reported_again_once_its_machine_is_known() -> None:
    """A node may post its request before its Machine has a provider ID; a lasting problem must still be reported."""
    fleet = Fleet()
    deferred = Defer("ManagementClusterUnreachable", "503", timedelta(seconds=1))
    assert fleet.report(deferred).subject.kind == "Cluster"
    fleet.machine("claimed", builders.PROVIDER_ID)
    for _ in range(2):
        assert fleet.report(deferred).subject.name == "claimed"
    assert (len(fleet.recorded), fleet.listener.decisions) == (2, [("claimed", "Defer")])


async def test_a_machine_of_that_name_with_another_provider_id_does_not_match() -> None:
    fleet = Fleet()
    fleet.machine(builders.NODE, "test:///another")
    assert fleet.report(Defer("MachineNotFound", "none yet")).subject.kind == "Cluster"
    assert fleet.listener.decisions == []


async def test_a_near_miss_is_reported_on_the_nearest_machine_without_a_decision_about_it() -> None:
    """The Machine's owner sees what differs; the claim is not of this Machine, so its condition stays."""
    fleet = Fleet()
    fleet.machine("near", builders.PROVIDER_ID.replace("eu-west-1a", "eu-west-1b"))
    assert fleet.report(Defer("MachineNotFound", "none yet")).subject.name == "near"
    assert fleet.report(Defer("ClusterPaused", "paused")).subject.kind == "Cluster"
    assert fleet.listener.decisions == []
    fleet.machine("as-near", builders.PROVIDER_ID.replace("eu-west-1a", "eu-west-1c"))
    assert fleet.report(Defer("MachineNotFound", "none at all yet")).subject.kind == "Cluster"


async def test_a_near_miss_of_a_pool_instance_names_the_instance() -> None:
    fleet = Fleet()
    near = builders.PROVIDER_ID.replace("eu-west-1a", "eu-west-1b")
    fleet.pool("pool", near)
    event = fleet.report(Defer("MachineNotFound", "none yet"))
    assert (event.subject.kind, event.subject.name) == ("MachinePool", "pool")
    assert event.message == f"{near}: none yet"


async def test_a_machine_of_that_name_of_another_cluster_does_not_match() -> None:
    fleet = Fleet()
    fleet.machine(builders.NODE, cluster="beside")
    assert fleet.report(Defer("MachineNotFound", "none yet")).subject.kind == "Cluster"
    assert fleet.listener.decisions == []


async def test_an_ambiguous_claim_is_reported_on_the_cluster() -> None:
    fleet = Fleet()
    fleet.machine("one", builders.PROVIDER_ID)
    fleet.machine("two", builders.PROVIDER_ID)
    assert fleet.report(Defer("MachineAmbiguous", "two of them")).subject.kind == "Cluster"
    assert fleet.listener.decisions == []


async def test_serving_requests_do_not_affect_the_machine_condition() -> None:
    fleet = Fleet()
    fleet.machine("claimed", builders.PROVIDER_ID)
    serving = builders.signing_request(builders.serving_manifest(dns(builders.NODE)))
    assert fleet.report(Deny("InvalidSubjectAlternativeNames", "no"), serving).subject.name == "claimed"
    assert fleet.listener.decisions == []


def builtin_request() -> BuiltinServingRequest:
    der = builders.pkcs10(extensions=[builders.alternative_names(dns(builders.NODE))])
    content = pem.encode(pem.Block(CERTIFICATE_REQUEST_LABEL, der))
    manifest = builders.manifest(content, signer_name="kubernetes.io/kubelet-serving", requester=builders.AS_NODE)
    parsed = parse_signing_request(manifest, builders.PROVIDERS)
    assert isinstance(parsed, BuiltinServingRequest), parsed
    return parsed


async def test_a_builtin_request_is_reported_on_the_machine_of_the_nodes_record() -> None:
    fleet = Fleet()
    view = builders.machine_view()
    fleet.machine(view.name, builders.PROVIDER_ID)
    assert fleet.report(Deny("ForeignCredential", "no"), builtin_request()).subject.kind == "Cluster"
    keys = ControllerKeys(bytes(32))
    fleet.caches.authentic.use_keys(keys)
    assert fleet.report(Deny("ForeignCredential", "no"), builtin_request()).subject.kind == "Cluster"
    record = builders.record(view)
    record = replace(record, seal=RecordSeals(keys).seal(record))
    metadata = {"namespace": "team-a", "name": record.name, "uid": "r-1", "resourceVersion": "1"}
    fleet.caches.records.applied({"metadata": metadata, "spec": {**record_spec(record), "seal": record.seal}})
    assert fleet.report(Deny("ForeignCredential", "no"), builtin_request()).subject.name == view.name
    assert fleet.listener.decisions == []


async def test_an_approval_of_a_builtin_request_is_routine() -> None:
    fleet = Fleet()
    fleet.report(DENIED)
    fleet.report(ApproveOnly(builders.NODE, Reason.ATTESTED, "attested"), builtin_request())
    assert [event.reason for event in fleet.recorded] == ["NodeNameMismatch"]


@pytest.mark.parametrize(
    ("reason", "level"),
    [(Reason.WORKLOAD_GRANT_MISSING, logging.WARNING), (Reason.WORKLOAD_CLUSTER_UNREACHABLE, logging.INFO)],
)
def test_a_missing_grant_is_a_warning(caplog: pytest.LogCaptureFixture, reason: Reason, level: int) -> None:
    """It is logged once: the request is decided again and again meanwhile."""
    announcing, _ = reporter()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            announcing.report("csr", request(), Defer(reason, "403 Forbidden"))
    assert [record.levelno for record in caplog.records] == [level]
