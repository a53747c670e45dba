"""What people see of a decision, when names and requesters are whatever a workload API server sends."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from attestors.wire.names import Purpose, SignerName
from signer.controller.announcer import Announcer
from signer.controller.metrics import Metrics
from signer.controller.recorder import Occurrence
from signer.model.cluster import ClusterKey
from signer.model.decision import Approve, Decision, Defer, Deny, Ignore
from signer.model.reasons import Reason
from signer.model.record import JournalEntry
from signer.model.signing_request import Malformed, NotOurs, RequestEnvelope
from tests.unit.signer.controller.support import NOW

HOSTILE = "\x1b[31mhé\n" + "x" * 5000
KEY = ClusterKey("team-a", "one")


@dataclass
class Cluster:
    uid: str = "cluster-uid"


@dataclass
class Version:
    api_version: str = "cluster.x-k8s.io/v1beta2"


@dataclass
class Around:
    """The surroundings as far as the announcer looks at them, and what it told."""

    metrics: Metrics = field(default_factory=Metrics)
    recorded: list[Occurrence] = field(default_factory=list)

    @property
    def recorder(self) -> Any:
        return self

    @property
    def inventory(self) -> Any:
        return self

    clusters = inventory

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
    envelope = RequestEnvelope(
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
    )
    return Malformed(envelope, Reason.MALFORMED_REQUEST, "no block")


def approval(reason: Reason) -> Approve:
    entry = JournalEntry("csr", "uid-1", "", "", "", 1, NOW, NOW + timedelta(hours=1), "", NOW)
    return Approve("n1", reason, "it is so", entry)


def announcer() -> tuple[Announcer, Around]:
    around = Around()
    return Announcer(KEY, around), around  # type: ignore[arg-type]  # a part of Surroundings


def is_readable(text: str) -> bool:
    return 0 < len(text) <= 1024 and text.isascii() and text.isprintable()


@pytest.mark.parametrize(
    "decision", [Deny("MalformedRequest", "no block"), Defer("MachineNotFound", "none"), approval(Reason.ASSERTED)]
)
def test_names_of_others_are_bounded_and_escaped(decision: Decision, caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = announcer()
    with caplog.at_level(logging.INFO):
        announcing.announce(HOSTILE, request(HOSTILE), decision)
    (line,) = caplog.records
    for field_name in ("csr", "requester"):
        assert is_readable(line.__dict__[field_name])
        assert line.__dict__[field_name].startswith("\\x1b[31mh\\xe9\\n")
    (event,) = around.recorded
    assert is_readable(event.message)


def test_an_assertion_names_its_csr(caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = announcer()
    with caplog.at_level(logging.INFO):
        announcing.announce("csr-1", request(), approval(Reason.ASSERTED))
        announcing.announce("csr-2", request(), approval(Reason.ATTESTED))
    assert [(event.type, event.message) for event in around.recorded] == [
        ("Warning", "it is so (CSR csr-1)"),
        ("Normal", "it is so"),
    ]
    assert [(line.__dict__["csr"], line.__dict__["requester"]) for line in caplog.records] == [
        ("csr-1", "system:bootstrap:abcdef"),
        ("csr-2", "system:bootstrap:abcdef"),
    ]


def test_a_deferral_is_told_once_until_its_reason_changes_or_it_is_forgotten() -> None:
    announcing, around = announcer()
    for reason in ("MachineNotFound", "MachineNotFound", "ClusterPaused", "ClusterPaused"):
        announcing.announce("csr", request(), Defer(reason, "wait"))
    assert [event.reason for event in around.recorded] == ["MachineNotFound", "ClusterPaused"]
    announcing.forget("csr")
    announcing.announce("csr", request(), Defer("ClusterPaused", "wait"))
    assert len(around.recorded) == 3


def test_what_does_not_concern_us_is_not_told() -> None:
    announcing, around = announcer()
    announcing.announce("csr", NotOurs(), Deny("MalformedRequest", "no block"))
    announcing.announce("csr", request(), Ignore())
    assert around.recorded == []


def test_a_node_that_renews_is_logged_and_counted_without_an_event(caplog: pytest.LogCaptureFixture) -> None:
    announcing, around = announcer()
    with caplog.at_level(logging.INFO):
        announcing.announce("csr-1", request("system:node:n1"), approval(Reason.ATTESTED))
        announcing.announce("csr-2", request("system:node:n1"), Deny("NodeNameMismatch", "no"))
    assert [event.reason for event in around.recorded] == ["NodeNameMismatch"]
    assert [line.__dict__["csr"] for line in caplog.records] == ["csr-1", "csr-2"]
