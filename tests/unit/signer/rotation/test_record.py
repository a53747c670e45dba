"""The object of a rotation: its schema takes every record, and the parser refuses what the schema refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.crds import CRD_FILES, custom_resource_definitions
from signer.model.cluster import ClusterKey
from signer.rotation.authorities import AuthorityKind, NotMade, Role, RotatedAuthority
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.record import (
    InvalidRotation,
    RotationRecord,
    UnreadableRotation,
    WorkersRollout,
    parse_rotation,
    record_spec,
    stored_rotation,
)
from signer.testing.api.crd_schema import prune
from signer.testing.api.crd_structure import structural_schema
from signer.testing.api.crd_validation import validate
from tests.support.yaml_documents import safe_load
from tests.unit.signer.rotation.model_world import reference
from tests.unit.signer.rotation.records import RECORDS, SEAL, rotation_object

_FILE: Final = CRD_FILES.index("attestation.cluster.x-k8s.io_certificateauthorityrotations.yaml")
DEFINITION: Final = safe_load(custom_resource_definitions()[_FILE])
SCHEMA: Final = structural_schema(DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"])

Path = tuple[str | int, ...]
WRONG: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, "", "x", "x" * 300, "2026-01-02", -1, 0, 2**63, 1.5, True, [], ["x"], [{}], [[]], {}, {"x": "x"}]
)


def refusals(manifest: dict[str, Any]) -> list[str]:
    """What the API server says of it."""
    return [str(one) for one in validate(manifest, SCHEMA)]


def paths(value: Any, above: Path = ()) -> Iterator[Path]:
    """Every field and item."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        yield from paths(inner, (*above, key))


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """The object of a record, with one field that is missing or wrong, or one item that is there twice."""
    manifest = rotation_object(draw(RECORDS))
    *above, last = draw(st.sampled_from(list(paths(manifest["spec"]))))
    parent: Any = manifest["spec"]
    for key in above:
        parent = parent[key]
    match draw(st.sampled_from(["missing", "wrong", "twice"])):
        case "missing":
            del parent[last]
        case "twice" if isinstance(last, int):
            parent.append(copy.deepcopy(parent[last]))
        case _:
            parent[last] = draw(WRONG)
    return manifest


@given(RECORDS)
def test_the_schema_takes_every_record_whole(record: RotationRecord) -> None:
    manifest = rotation_object(record)
    assert refusals(manifest) == []
    assert prune(copy.deepcopy(manifest), SCHEMA) == []


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: RotationRecord) -> None:
    stored = parse_rotation(rotation_object(record))
    assert (stored.claimed, stored.seal) == (record, SEAL)


@given(damaged())
def test_what_the_schema_refuses_the_parser_refuses(manifest: dict[str, Any]) -> None:
    if refusals(manifest):
        with pytest.raises(InvalidRotation):
            parse_rotation(manifest)
        assert isinstance(stored_rotation(manifest), UnreadableRotation)


SMALLEST: Final = RotationRecord(
    cluster=ClusterKey("team-a", "production"),
    rotation_id="abcdef27",
    sequence=1,
    phase=Phase.PREPARING,
    step=Step.NEW_AUTHORITY,
    authorities=(RotatedAuthority(AuthorityKind.CLUSTER, reference(Role.OLD), NotMade()),),
    workers_rollout=WorkersRollout.BY_CONTROLLER,
    takes_back=TakesBack.LINKED,
    operation="u/1",
)
SKIPPED: Final = {"gate": "overlap", "time": "2026-03-01T12:00:00Z"}


@pytest.mark.parametrize(
    ("field", "last", "first_refused"),
    [
        ("sequence", 2**63 - 1, 2**63),
        ("sequence", 1, 0),
        ("operation", "x" * 256, "x" * 257),
        ("operation", "x", ""),
        ("seal", "x" * 128, "x" * 129),
        ("skippedGates", [SKIPPED] * 64, [SKIPPED] * 65),
        *(
            ("waits", {**record_spec(SMALLEST)["waits"], name: last}, {**record_spec(SMALLEST)["waits"], name: refused})
            for name in ("trustAgeSeconds", "overlapSeconds", "openWatchesSeconds")
            for last, refused in ((7_776_000, 7_776_001), (0, -1))
        ),
    ],
)
def test_schema_and_parser_have_the_same_bounds(field: str, last: Any, first_refused: Any) -> None:
    manifest = rotation_object(SMALLEST)
    manifest["spec"][field] = last
    assert refusals(manifest) == []
    assert parse_rotation(manifest).seal == manifest["spec"]["seal"]
    manifest["spec"][field] = first_refused
    assert refusals(manifest) != []
    with pytest.raises(InvalidRotation):
        parse_rotation(manifest)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of), max_leaves=5))
def test_whatever_a_spec_is_the_parser_ends_with_one_error(spec: Any) -> None:
    manifest = {"metadata": {"namespace": "team-a", "name": "production", "uid": "u"}, "spec": spec}
    with pytest.raises(InvalidRotation):
        parse_rotation(manifest)
