"""The object of a rotation: its schema takes every record, and the parser refuses what the schema refuses."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from signer.crds import CRD_FILES, custom_resource_definitions
from signer.rotation.record import InvalidRotation, UnreadableRotation, parse_rotation, stored_rotation
from signer.rotation.record import RotationRecord as Record
from signer.testing.api.crd_schema import prune
from signer.testing.api.crd_structure import structural_schema
from signer.testing.api.crd_validation import validate
from tests.unit.signer.rotation.records import RECORDS, SEAL, rotation_object

_FILE: Final = CRD_FILES.index("attestation.cluster.x-k8s.io_certificateauthorityrotations.yaml")
DEFINITION: Final = yaml.safe_load(custom_resource_definitions()[_FILE])
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
        case "twice" if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        case _:
            parent[last] = draw(WRONG)
    return manifest


@given(RECORDS)
def test_the_schema_takes_every_record_whole(record: Record) -> None:
    manifest = rotation_object(record)
    assert refusals(manifest) == []
    assert prune(copy.deepcopy(manifest), SCHEMA) == []


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    stored = parse_rotation(rotation_object(record))
    assert (stored.claimed, stored.seal) == (record, SEAL)


@given(damaged())
def test_what_the_schema_refuses_the_parser_refuses(manifest: dict[str, Any]) -> None:
    if refusals(manifest):
        with pytest.raises(InvalidRotation):
            parse_rotation(manifest)
        assert isinstance(stored_rotation(manifest), UnreadableRotation)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of), max_leaves=5))
def test_whatever_a_spec_is_the_parser_ends_with_one_error(spec: Any) -> None:
    manifest = {"metadata": {"namespace": "team-a", "name": "production", "uid": "u"}, "spec": spec}
    with pytest.raises(InvalidRotation):
        parse_rotation(manifest)
