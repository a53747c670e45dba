"""The schema of NodeAttestationPolicy takes every status that the rotation shows, whole."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from signer.authority.presented import Presented
from signer.crds import CRD_FILES, custom_resource_definitions
from signer.crds.expressions import POLICY_FILE
from signer.rotation.facts import Acceptance, Facts, NotObserved, ServerFacts, ServersFacts
from signer.rotation.operations import Gate
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.record import Moment, RotationRecord, SkippedGate
from signer.rotation.status import rotation_status
from signer.testing.api.crd_schema import prune
from signer.testing.api.crd_structure import structural_schema
from signer.testing.api.crd_validation import validate
from tests.support.yaml_documents import safe_load
from tests.unit.signer.rotation.model_world import START, ModelWorld
from tests.unit.signer.rotation.records import RECORDS
from tests.unit.signer.rotation.situations import (
    HASH,
    NEW,
    NOW,
    OLD,
    facts_at,
    node,
    record_at,
    server,
    with_servers,
)

DEFINITION: Final = safe_load(custom_resource_definitions()[CRD_FILES.index(POLICY_FILE)])
SCHEMA: Final = structural_schema(DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
FACTS: Final = ModelWorld().facts()

_NAMES: Final = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True)
_ANSWERS: Final = st.sampled_from(Acceptance) | st.just(NotObserved("a timeout"))
_SERVERS: Final = st.builds(
    ServersFacts,
    st.lists(st.builds(ServerFacts, _NAMES, st.sampled_from(Presented), _ANSWERS, _ANSWERS), max_size=20).map(tuple),
    st.dictionaries(_NAMES, st.just("refused")).map(MappingProxyType),
    st.just(START),
) | st.just(NotObserved("no Machine"))
_OBSERVED: Final = st.builds(
    lambda servers, unattested: replace(FACTS, servers=servers, unattested=tuple(sorted(unattested))),
    _SERVERS,
    st.sets(_NAMES, max_size=20),
)
"""Facts of a cluster with any servers and nodes."""


def texts(value: Any) -> list[str]:
    """Every text below a value."""
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts(one)]
    return [value] if isinstance(value, str) else []


@given(RECORDS, _OBSERVED | st.none())
def test_the_schema_takes_every_status_whole(record: RotationRecord, facts: Facts | None) -> None:
    status = rotation_status(record, facts)
    policy = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "NodeAttestationPolicy",
        "metadata": {"name": "production", "namespace": "team-a"},
        "spec": {"authorizedAttestors": [{"name": "tpm"}]},
        "status": {"credentials": {"rotation": {"certificateAuthorities": status}}},
    }
    assert [str(one) for one in validate(policy, SCHEMA)] == []
    assert prune(copy.deepcopy(policy), SCHEMA) == []
    assert "" not in texts(status), "API servers of 1.20 treat an empty text as null, and refuse it"


@given(RECORDS)
def test_the_phase_of_the_proposal_is_missing_after_a_rollback_alone(record: RotationRecord) -> None:
    assert ("gepPhase" in rotation_status(record, None)) is (record.phase not in (Phase.ROLLED_BACK, Phase.ABANDONED))


# What people read


def test_a_prepared_rotation() -> None:
    facts = replace(
        facts_at(Step.PREPARED),
        nodes=(node("a", evidence=NEW, client=NEW), node("b", evidence=NEW), node("c", client=NEW), node("d")),
        unattested=("e",),
    )
    record = record_at(Step.PREPARED, skipped=(SkippedGate(Gate.OVERLAP, START),), times={Moment.PREPARED: NOW})
    assert rotation_status(record, facts) == {
        "phase": "Prepared",
        "gepPhase": "Prepare",
        "rotationID": "abcdefgh",
        "step": "Prepared",
        "linkNotAfter": "2026-02-15T00:00:00Z",
        "completeBefore": "2026-02-14T00:00:00Z",
        "rollbackAvailable": "Full",
        "current": {"hash": HASH[OLD], "notAfter": "2035-12-30T00:00:00Z"},
        "next": {"hash": HASH[NEW], "notAfter": "2035-12-30T00:00:00Z"},
        "skippedGates": [{"gate": "overlap", "time": "2026-01-01T00:00:00Z"}],
        "lastInitiationTime": "2026-01-01T00:00:00Z",
        "lastInitiationFinishedTime": "2026-01-04T00:00:00Z",
        "nodes": {"total": 5, "trustNew": 2, "clientByNew": 2, "servingByNew": 0, "lagging": ["b", "c", "d", "e"]},
        "apiServers": [
            {
                "machine": "control-plane-1",
                "presents": Presented.OLD_LINKED.value,
                "acceptsOld": Acceptance.ACCEPTED.value,
                "acceptsNew": Acceptance.ACCEPTED.value,
                "time": "2026-01-04T00:00:00Z",
            }
        ],
    }


def test_before_the_new_ca_is_made_every_node_lags_behind_nothing() -> None:
    facts = replace(facts_at(Step.NEW_AUTHORITY), nodes=(replace(node(), serving=""),))
    status = rotation_status(record_at(Step.NEW_AUTHORITY), facts)
    assert "next" not in status
    assert status["nodes"] == {
        "total": 1, "trustNew": 0, "clientByNew": 0, "servingByNew": 0, "lagging": ["worker-1"],
    }  # fmt: skip


def test_lists_are_bounded() -> None:
    names = [f"n{number:02}" for number in range(30)]
    facts = replace(
        with_servers(facts_at(Step.PREPARED), server(Presented.OLD), unseen=dict.fromkeys(names, "away")),
        nodes=tuple(node(name) for name in names),
    )
    status = rotation_status(record_at(Step.PREPARED), facts)
    assert status["nodes"]["lagging"] == names[:10]
    assert len(status["apiServers"]) == 16
    assert status["apiServers"][1]["presents"] == "Unknown"


def test_what_can_be_taken_back_is_by_the_servers_once_they_were_asked() -> None:
    record = record_at(Step.SERVERS_PRESENT, takes_back=TakesBack.LINKED)
    assert rotation_status(record, None)["rollbackAvailable"] == "Full"
    assert rotation_status(record, facts_at(Step.SERVERS_PRESENT))["rollbackAvailable"] == "ClientsOnly"


def test_a_rotation_that_is_over_shows_no_facts() -> None:
    status = rotation_status(record_at(Step.FORGET, phase=Phase.COMPLETED), facts_at(Step.FORGET))
    assert not {"nodes", "apiServers"} & status.keys()
    assert status["rollbackAvailable"] == "None"
