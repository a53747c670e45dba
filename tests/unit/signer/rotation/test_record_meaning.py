"""What a record may say: its parts agree with each other, and only this controller's seal makes it count."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given

from signer.model.cluster import ClusterKey
from signer.model.seal import Authentic, ControllerKeys, Fault, KeyUse, Seals, Unauthentic, joined
from signer.rotation.authorities import AuthorityKind, Role, RotatedAuthority
from signer.rotation.operations import Gate
from signer.rotation.phases import BACK, FORWARD, STEPS_OF, Phase, SigningPairs, Step
from signer.rotation.record import (
    InvalidRotation,
    Moment,
    RotationRecord,
    RotationSeals,
    SkippedGate,
    StoredRotation,
    parse_rotation,
    record_spec,
)
from tests.unit.signer.rotation.model_world import first_record, reference
from tests.unit.signer.rotation.records import RECORDS, rotation_object
from tests.unit.signer.rotation.test_record import paths

RECORD: Final = replace(
    first_record(),
    step=Step.SERVERS_PRESENT,
    phase=Phase.COMPLETING,
    authorities=tuple(
        RotatedAuthority(kind, reference(Role.OLD, kind), reference(Role.NEW, kind)) for kind in AuthorityKind
    ),
)


def spec(**changes: Any) -> dict[str, Any]:
    """The object of :data:`RECORD` with other fields; None takes one away."""
    manifest = rotation_object(RECORD)
    merged = {**manifest["spec"], **changes}
    return {**manifest, "spec": {key: value for key, value in merged.items() if value is not None}}


def refusal(manifest: dict[str, Any]) -> str:
    with pytest.raises(InvalidRotation) as raised:
        parse_rotation(manifest)
    return str(raised.value)


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("phase", Phase)
def test_phase_and_step_agree(phase: Phase, step: Step) -> None:
    pairs = {"signingPairs": "Split"} if step is Step.CONTROLLER_MANAGERS_SIGN else {}
    manifest = spec(phase=phase.value, step=step.value, **pairs)
    if step in STEPS_OF[phase]:
        claimed = parse_rotation(manifest).claimed
        assert (claimed.phase, claimed.step) == (phase, step)
    else:
        assert "is none of phase" in refusal(manifest)


def test_only_split_pairs_have_a_step_of_their_own() -> None:
    step = Step.CONTROLLER_MANAGERS_SIGN.value
    assert "belongs to split" in refusal(spec(phase=Phase.PREPARING.value, step=step))
    assert parse_rotation(spec(phase=Phase.PREPARING.value, step=step, signingPairs="Split")).claimed.step.value == step


@pytest.mark.parametrize("value", ["OnePair", "split", "", 1])
def test_the_pairs_are_written_only_if_they_are_split(value: object) -> None:
    """Records that are older than the field have one pair, and their seals hold."""
    assert parse_rotation(spec()).claimed.signing_pairs is SigningPairs.ONE_PAIR
    assert "signingPairs" not in record_spec(parse_rotation(spec()).claimed)
    assert "signingPairs is written" in refusal(spec(signingPairs=value))


def test_the_seal_covers_the_pairs() -> None:
    """Who takes the field away, or adds it, changes the plan: so nothing of the record counts."""
    seals = RotationSeals(ControllerKeys(bytes(32)))
    one = parse_rotation(spec()).claimed
    for sealed, other in (
        (one, SigningPairs.SPLIT),
        (replace(one, signing_pairs=SigningPairs.SPLIT), one.signing_pairs),
    ):
        kept = StoredRotation(sealed, seals.seal(sealed), "u", "1")
        assert isinstance(seals.verify(kept), Authentic)
        changed = replace(kept, claimed=replace(sealed, signing_pairs=other))
        assert isinstance(seals.verify(changed), Unauthentic)


def test_every_phase_has_steps_and_every_step_a_phase() -> None:
    assert STEPS_OF.keys() == set(Phase)
    assert set[Step]().union(*STEPS_OF.values()) == set(Step)


@pytest.mark.parametrize("held", Step)
def test_a_rollback_of_clients_returns_only_to_where_the_old_ca_still_is(held: Step) -> None:
    manifest = spec(phase=Phase.ROLLING_BACK.value, step=Step.SIGN_BY_OLD.value, heldAt=held.value)
    if held in (Step.SWITCH, Step.SERVERS_PRESENT, Step.SIGN_SERVING):
        assert parse_rotation(manifest).claimed.held_at is held
    else:
        assert "heldAt is no step" in refusal(manifest)


@pytest.mark.parametrize(
    ("phase", "step"), [(Phase.COMPLETING, Step.SERVERS_PRESENT), (Phase.ROLLING_BACK, Step.RESTORE_OLD)]
)
def test_no_other_step_is_held(phase: Phase, step: Step) -> None:
    assert "heldAt belongs" in refusal(spec(phase=phase.value, step=step.value, heldAt=Step.SWITCH.value))


def without_new(kind: AuthorityKind) -> list[dict[str, Any]]:
    authorities: list[dict[str, Any]] = copy.deepcopy(rotation_object(RECORD)["spec"]["authorities"])
    (one,) = (one for one in authorities if one["kind"] == kind.value)
    del one["new"]
    return authorities


@pytest.mark.parametrize("kind", AuthorityKind)
@pytest.mark.parametrize("step", FORWARD)
def test_a_step_after_the_first_has_every_new_authority(step: Step, kind: AuthorityKind) -> None:
    (phase, *_) = (phase for phase in Phase if step in STEPS_OF[phase])
    pairs = {"signingPairs": "Split"} if step is Step.CONTROLLER_MANAGERS_SIGN else {}
    manifest = spec(phase=phase.value, step=step.value, authorities=without_new(kind), **pairs)
    if step is Step.NEW_AUTHORITY:
        parse_rotation(manifest)
    else:
        assert "a new authority is missing" in refusal(manifest)


@pytest.mark.parametrize("step", BACK)
def test_a_rotation_that_made_nothing_goes_back(step: Step) -> None:
    manifest = spec(phase=Phase.ROLLING_BACK.value, step=step.value, authorities=without_new(AuthorityKind.CLUSTER))
    assert parse_rotation(manifest).claimed.step is step
    manifest["spec"]["heldAt"] = Step.SWITCH.value
    refusal(manifest)


def test_the_clusters_ca_is_always_one_of_them() -> None:
    """Else every decision about this cluster would end in an error."""
    authorities = rotation_object(RECORD)["spec"]["authorities"]
    parse_rotation(spec(authorities=authorities[:1]))
    assert "the cluster's CA is missing" in refusal(spec(authorities=authorities[1:]))


def test_two_authorities_of_one_kind() -> None:
    authorities = rotation_object(RECORD)["spec"]["authorities"]
    other = {**authorities[1], "kind": authorities[0]["kind"]}
    assert "listed twice" in refusal(spec(authorities=[authorities[0], other]))
    assert "no list" in refusal(spec(authorities=[]))
    assert "no list" in refusal(spec(authorities=[*authorities, authorities[0]]))


def test_unknown_fields_at_every_depth() -> None:
    """The API server prunes them; a seal would not cover them."""
    for path in [(), *paths(rotation_object(RECORD)["spec"])]:
        manifest = spec(skippedGates=[{"gate": "overlap", "time": "2026-01-02T03:04:05Z"}])
        value: Any = manifest["spec"]
        for key in path:
            value = value[key]
        if isinstance(value, dict):
            value["unknown"] = "x"
            refusal(manifest)
    manifest = spec(skippedGates=[{"gate": "overlap", "time": "2026-01-02T03:04:05Z", "unknown": "x"}])
    assert "skipped gate" in refusal(manifest)


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05+00:00", "2026-01-02 03:04:05Z", "0"],
)
@pytest.mark.parametrize("moment", Moment)
def test_times_are_whole_seconds_in_utc(moment: Moment, text: str) -> None:
    parse_rotation(spec(**{moment.value: "2026-01-02T03:04:05Z"}))
    refusal(spec(**{moment.value: text}))


def test_a_record_keeps_whole_seconds() -> None:
    """What is sealed is what the object can hold."""
    now = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)
    after = RECORD.next(now, step=Step.SIGN_SERVING, times={Moment.TRUST_WRITTEN: now})
    assert (after.at(Moment.STEP), after.at(Moment.TRUST_WRITTEN)) == (now.replace(microsecond=0),) * 2
    assert parse_rotation(rotation_object(after)).claimed == after
    assert after.sequence == RECORD.sequence + 1


def test_only_another_step_sets_its_time() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert RECORD.next(now, step=RECORD.step).at(Moment.STEP) == RECORD.at(Moment.STEP)
    assert RECORD.next(now, step=Step.SIGN_SERVING).at(Moment.STEP) == now


@pytest.mark.parametrize("part", ["namespace", "name", "uid"])
def test_an_object_has_a_place(part: str) -> None:
    manifest = spec()
    del manifest["metadata"][part]
    refusal(manifest)


# Seals


KEYS: Final = ControllerKeys(b"k" * 32)
SEALS: Final = RotationSeals(KEYS)


def sealed(record: RotationRecord, keys: ControllerKeys = KEYS) -> StoredRotation:
    manifest = rotation_object(record)
    manifest["spec"]["seal"] = RotationSeals(keys).seal(record)
    return parse_rotation(manifest)


@given(RECORDS)
def test_what_was_sealed_is_unsealed(record: RotationRecord) -> None:
    assert SEALS.verify(sealed(record)) == Authentic()


@given(RECORDS, RECORDS)
def test_the_seal_of_another_record_is_wrong(one: RotationRecord, other: RotationRecord) -> None:
    if one != other:
        assert SEALS.verify(replace(sealed(one), claimed=other)) == Unauthentic(Fault.WRONG_SEAL)


def test_a_copy_for_another_cluster_does_not_count() -> None:
    for key in (ClusterKey("tenant", "green"), ClusterKey("other", "blue")):
        stored = sealed(RECORD)
        manifest = rotation_object(RECORD)
        manifest["metadata"].update(namespace=key.namespace, name=key.name)
        manifest["spec"]["seal"] = stored.seal
        assert SEALS.verify(parse_rotation(manifest)) == Unauthentic(Fault.WRONG_SEAL)


def test_an_older_state_with_a_newer_sequence_does_not_count() -> None:
    """The sequence is sealed."""
    older = sealed(RECORD)
    claimed = replace(older.claimed, sequence=older.claimed.sequence + 5)
    assert SEALS.verify(replace(older, claimed=claimed)) == Unauthentic(Fault.WRONG_SEAL)


def test_a_seal_of_another_use_or_key_does_not_count() -> None:
    assert SEALS.verify(sealed(RECORD, ControllerKeys(b"x" * 32))) == Unauthentic(Fault.UNKNOWN_KEY)
    content = joined(RECORD.cluster.namespace, RECORD.cluster.name, "{}")
    pair = replace(sealed(RECORD), seal=Seals(KEYS, KeyUse.ROTATION_PAIR).seal(content))
    assert isinstance(SEALS.verify(pair), Unauthentic)
    assert SEALS.verify(replace(sealed(RECORD), seal="x")) == Unauthentic(Fault.MALFORMED_SEAL)


def test_the_record_answers_about_its_authorities_times_and_gates() -> None:
    assert RECORD.authority(AuthorityKind.ETCD).kind is AuthorityKind.ETCD
    with pytest.raises(LookupError):
        replace(RECORD, authorities=RECORD.authorities[:1]).authority(AuthorityKind.ETCD)
    start, second = RECORD.times[Moment.STARTED], timedelta(seconds=1)
    assert RECORD.has_passed(Moment.STARTED, second, start + second)
    assert not RECORD.has_passed(Moment.STARTED, second, start)
    assert not RECORD.has_passed(Moment.SWITCHED, second, start + second)
    skips = replace(RECORD, skipped=(SkippedGate(Gate.OVERLAP, start),))
    assert skips.skips(Gate.OVERLAP)
    assert not skips.skips(Gate.MACHINES)


@pytest.mark.parametrize("text", ["ABCDEFGH", "abcdefg", "abcdefghi", "abcdefg1", "abcdefg\n", ""])
def test_a_rotation_id_is_part_of_names(text: str) -> None:
    refusal(spec(rotationID=text))


@pytest.mark.parametrize("role", ["old", "new"])
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("digest", "A" * 64),
        ("digest", "a" * 63),
        ("digest", "a" * 64 + "\n"),
        ("publicKeyHash", "a" * 64),
        ("publicKeyHash", "sha256:" + "A" * 64),
        ("publicKeyHash", "sha512:" + "a" * 64),
        ("notAfter", "2026-01-02T03:04:05.5Z"),
    ],
)
def test_a_reference_is_exact(role: str, field: str, text: str) -> None:
    manifest = spec()
    manifest["spec"]["authorities"][0][role][field] = text
    refusal(manifest)
    del manifest["spec"]["authorities"][0][role][field]
    refusal(manifest)


def test_no_field_may_be_missing() -> None:
    optional = {"heldAt", *(moment.value for moment in Moment)}
    for name in rotation_object(RECORD)["spec"].keys() - optional:
        refusal(spec(**{name: None}))
    for name in ("trustAgeSeconds", "overlapSeconds", "openWatchesSeconds"):
        manifest = spec()
        del manifest["spec"]["waits"][name]
        refusal(manifest)
        manifest["spec"]["waits"][name] = True
        refusal(manifest)
    refusal(spec(sequence=True))
    refusal(spec(sequence=1.0))


TAKES: Final[dict[str | int, tuple[Any, ...]]] = {
    "skippedGates": ([],),
    "operation": ("x",),
    "seal": ("x",),
    "sequence": (5,),
    **dict.fromkeys(("trustAgeSeconds", "overlapSeconds", "openWatchesSeconds"), (5,)),
}
"""Values of the test below that are right in their place."""


@pytest.mark.parametrize("wrong", [None, [], "x", 5, {}, [5], ["x"], [[]]], ids=repr)
def test_a_value_of_another_kind_has_the_parsers_own_error(wrong: Any) -> None:
    """At every place, and no error of Python's."""
    whole = spec(skippedGates=[{"gate": "overlap", "time": "2026-01-02T03:04:05Z"}])
    for *above, last in paths(whole["spec"]):
        manifest = copy.deepcopy(whole)
        parent: Any = manifest["spec"]
        for key in above:
            parent = parent[key]
        parent[last] = wrong
        if wrong not in TAKES.get(last, ()):
            refusal(manifest)
