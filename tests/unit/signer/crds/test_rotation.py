"""The rotation's words in the definitions are those of the core."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Any, Final

from hypothesis import given

from signer.authority.presented import Presented
from signer.crds import CRD_FILES, custom_resource_definitions
from signer.rotation.authorities import ROTATION_ID, AuthorityKind
from signer.rotation.facts import Acceptance
from signer.rotation.operations import Gate
from signer.rotation.phases import GEPPhase, Phase, RollbackAvailable, Step, TakesBack
from signer.rotation.record import Moment, RotationRecord, WorkersRollout, record_spec
from tests.support.yaml_documents import safe_load
from tests.unit.signer.rotation.records import RECORDS

_DEFINITIONS: Final = dict(zip(CRD_FILES, map(safe_load, custom_resource_definitions()), strict=True))
MAXIMUM_STATUS_BYTES: Final = 64 * 1024
"""Far below etcd's limit of 1.5 MiB for an object."""


def definition(plural: str) -> dict[str, Any]:
    found: dict[str, Any] = _DEFINITIONS[f"attestation.cluster.x-k8s.io_{plural}.yaml"]
    return found


def schema(plural: str, part: str) -> dict[str, Any]:
    (version,) = definition(plural)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


SPEC: Final = schema("certificateauthorityrotations", "spec")
FIELDS: Final = SPEC["properties"]
STATUS: Final = schema("nodeattestationpolicies", "status")["properties"]["credentials"]["properties"]["rotation"][
    "properties"
]["certificateAuthorities"]["properties"]


def values(kind: type[enum.Enum]) -> list[str]:
    return [one.value for one in kind]


def test_the_words_of_the_record() -> None:
    authority = FIELDS["authorities"]["items"]["properties"]
    assert FIELDS["phase"]["enum"] == values(Phase)
    assert FIELDS["step"]["enum"] == FIELDS["heldAt"]["enum"] == values(Step)
    assert authority["kind"]["enum"] == values(AuthorityKind)
    assert FIELDS["authorities"]["maxItems"] == len(AuthorityKind)
    assert FIELDS["workersRollout"]["enum"] == values(WorkersRollout)
    assert FIELDS["takesBack"]["enum"] == values(TakesBack)
    assert FIELDS["skippedGates"]["items"]["properties"]["gate"]["enum"] == values(Gate)
    assert FIELDS["rotationID"]["pattern"] == f"^{ROTATION_ID.pattern}$"


@given(RECORDS)
def test_exactly_the_fields_that_every_record_has_are_required(record: RotationRecord) -> None:
    optional = {"heldAt", "signingPairs", *values(Moment)}
    assert set(FIELDS) == {*record_spec(record), "seal", *optional}
    assert set(SPEC["required"]) == set(FIELDS) - optional


def test_a_record_is_replaced_as_a_whole() -> None:
    """Server-side apply by another manager cannot change a part of the sealed spec."""
    assert SPEC["x-kubernetes-map-type"] == "atomic"


def test_what_kubectl_shows() -> None:
    (version,) = definition("certificateauthorityrotations")["spec"]["versions"]
    columns = [(one["name"], one.get("priority", 0)) for one in version["additionalPrinterColumns"]]
    assert columns == [("Phase", 0), ("Step", 0), ("Started", 0), ("Sequence", 0), ("Rotation ID", 1)]
    assert "subresources" not in version, "clusterctl move drops a status"


def test_the_words_of_the_policy_s_status() -> None:
    server = STATUS["apiServers"]["items"]["properties"]
    assert STATUS["phase"]["enum"] == values(Phase)
    assert STATUS["step"]["enum"] == values(Step)
    # API servers of 1.20 treat an empty string in a custom resource as null, and refuse it.
    assert STATUS["gepPhase"]["enum"] == [one for one in values(GEPPhase) if one]
    assert STATUS["rollbackAvailable"]["enum"] == values(RollbackAvailable)
    assert STATUS["skippedGates"] == FIELDS["skippedGates"]
    assert STATUS["rotationID"]["pattern"] == FIELDS["rotationID"]["pattern"]
    assert server["presents"]["enum"] == [*values(Presented), "Unknown"]
    assert server["acceptsOld"]["enum"] == server["acceptsNew"]["enum"] == [*values(Acceptance), "Unknown"]


GARDENER: Final = {
    "phase",
    "lastInitiationTime",
    "lastInitiationFinishedTime",
    "lastCompletionTriggeredTime",
    "lastCompletionTime",
    "pendingWorkersRollouts",
}
"""Fields of ``CARotation`` (Gardener ``pkg/apis/core/v1beta1/types_shoot.go``)."""


def test_the_status_has_gardener_s_fields() -> None:
    assert set(STATUS) >= GARDENER
    assert set(STATUS["pendingWorkersRollouts"]["items"]["properties"]) == {"name", "lastInitiationTime"}


def sizes(node: dict[str, Any]) -> Iterable[int]:
    """Maximum characters below a node; fails where there is no bound."""
    match node["type"]:
        case "object":
            for name, inner in node["properties"].items():
                yield len(name) + sum(sizes(inner))
        case "array":
            yield node["maxItems"] * sum(sizes(node["items"]))
        case "string" if "enum" in node:
            yield max(map(len, node["enum"]))
        case "string" if node.get("format") == "date-time":
            yield len("2026-01-02T03:04:05Z")
        case "string" if "maxLength" in node:
            yield node["maxLength"]
        case "string":
            counts = re.findall(r"\{([0-9]+)\}", node["pattern"])
            assert counts
            assert not set("*+") & set(node["pattern"])
            yield sum(map(int, counts)) + len("sha256:")
        case "integer":
            yield 20


def test_record_and_status_are_bounded() -> None:
    assert sum(sizes({"type": "object", "properties": STATUS})) < MAXIMUM_STATUS_BYTES
    assert sum(sizes(SPEC)) < MAXIMUM_STATUS_BYTES
