"""Every RotationRecord that the core can make, and its object, for property tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from hypothesis import strategies as st

from attestors.wire.names import ANNOTATION_PREFIX
from signer.model.cluster import ClusterKey
from signer.model.rotation_waits import MAXIMUM_WAIT, Waits
from signer.rotation.authorities import AuthorityKind, AuthorityReference, NotMade, RotatedAuthority
from signer.rotation.operations import Gate
from signer.rotation.phases import BACK, HOLDING_STEPS, STEPS_OF, Phase, SigningPairs, Step, TakesBack
from signer.rotation.record import Moment, NotYet, RotationRecord, SkippedGate, WorkersRollout, record_spec

SEAL: Final = "v2.seal"

_TIMES: Final = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)).map(
    lambda one: one.replace(microsecond=0, tzinfo=UTC)
)
_WAITS: Final = st.integers(0, int(MAXIMUM_WAIT.total_seconds())).map(lambda seconds: timedelta(seconds=seconds))
_REFERENCES: Final = st.builds(
    AuthorityReference,
    st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
    st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
    _TIMES,
)
_SKIPPED: Final = st.lists(st.builds(SkippedGate, st.sampled_from(Gate), _TIMES), max_size=64).map(tuple)


@st.composite
def _records(draw: st.DrawFn) -> RotationRecord:
    phase = draw(st.sampled_from(Phase))
    step = draw(st.sampled_from(sorted(STEPS_OF[phase], key=lambda one: one.value)))
    held_at: Step | NotYet = NotYet()
    if step is Step.SIGN_BY_OLD:
        held_at = draw(st.builds(NotYet) | st.sampled_from(sorted(HOLDING_STEPS, key=lambda one: one.value)))
    may_lack_new = step is Step.NEW_AUTHORITY or (step in BACK and isinstance(held_at, NotYet))
    new = _REFERENCES | st.builds(NotMade) if may_lack_new else _REFERENCES
    others = draw(st.sets(st.sampled_from([kind for kind in AuthorityKind if kind is not AuthorityKind.CLUSTER])))
    kinds = draw(st.permutations([AuthorityKind.CLUSTER, *sorted(others)]))
    return RotationRecord(
        cluster=ClusterKey("team-a", "production"),
        rotation_id=draw(st.from_regex(r"[a-z2-7]{8}", fullmatch=True)),
        sequence=draw(st.integers(1, 2**63 - 1)),
        phase=phase,
        step=step,
        authorities=tuple(RotatedAuthority(kind, draw(_REFERENCES), draw(new)) for kind in kinds),
        workers_rollout=draw(st.sampled_from(WorkersRollout)),
        takes_back=draw(st.sampled_from(TakesBack)),
        operation=draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)),
        waits=draw(st.builds(Waits, _WAITS, _WAITS, _WAITS)),
        times=MappingProxyType(draw(st.dictionaries(st.sampled_from(Moment), _TIMES))),
        skipped=draw(_SKIPPED),
        held_at=held_at,
        signing_pairs=(
            SigningPairs.SPLIT if step is Step.CONTROLLER_MANAGERS_SIGN else draw(st.sampled_from(SigningPairs))
        ),
    )


RECORDS: Final[st.SearchStrategy[RotationRecord]] = _records()
"""Every field, and every optional one with and without a value."""


def rotation_object(record: RotationRecord) -> dict[str, Any]:
    """The object in which the record is stored."""
    return {
        "apiVersion": f"{ANNOTATION_PREFIX}/v1alpha1",
        "kind": "CertificateAuthorityRotation",
        "metadata": {"namespace": record.cluster.namespace, "name": record.cluster.name, "uid": "u"},
        "spec": {**record_spec(record), "seal": SEAL},
    }
