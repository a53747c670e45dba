"""The schema of NodeAttestationPolicy takes every status that the rotation shows, whole."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import yaml
from hypothesis import given
from hypothesis import strategies as st

from signer.authority.presented import Presented
from signer.crds import CRD_FILES, custom_resource_definitions
from signer.crds.expressions import POLICY_FILE
from signer.rotation.facts import Acceptance, Facts, NotObserved, ServerFacts, ServersFacts
from signer.rotation.phases import Phase
from signer.rotation.record import RotationRecord
from signer.rotation.status import rotation_status
from signer.testing.api.crd_schema import prune
from signer.testing.api.crd_structure import structural_schema
from signer.testing.api.crd_validation import validate
from tests.unit.signer.rotation.model_world import START, ModelWorld
from tests.unit.signer.rotation.records import RECORDS

DEFINITION: Final = yaml.safe_load(custom_resource_definitions()[CRD_FILES.index(POLICY_FILE)])
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
    assert ("gepPhase" in rotation_status(record, None)) is (record.phase is not Phase.ROLLED_BACK)
