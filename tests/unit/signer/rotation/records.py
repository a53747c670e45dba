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
from signer.rotation.phases import Phase, Step, TakesBack
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
_AUTHORITIES: Final = st.lists(
    st.builds(RotatedAuthority, st.sampled_from(AuthorityKind), _REFERENCES, _REFERENCES | st.builds(NotMade)),
    min_size=1,
    max_size=len(AuthorityKind),
    unique_by=lambda one: one.kind,
).map(tuple)

RECORDS: Final[st.SearchStrategy[RotationRecord]] = st.builds(
    RotationRecord,
    cluster=st.just(ClusterKey("team-a", "production")),
    rotation_id=st.from_regex(r"[a-z2-7]{8}", fullmatch=True),
    sequence=st.integers(1, 2**63 - 1),
    phase=st.sampled_from(Phase),
    step=st.sampled_from(Step),
    authorities=_AUTHORITIES,
    workers_rollout=st.sampled_from(WorkersRollout),
    takes_back=st.sampled_from(TakesBack),
    operation=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256),
    waits=st.builds(Waits, _WAITS, _WAITS, _WAITS),
    times=st.dictionaries(st.sampled_from(Moment), _TIMES).map(MappingProxyType),
    skipped=st.lists(st.builds(SkippedGate, st.sampled_from(Gate), _TIMES), max_size=64).map(tuple),
    held_at=st.builds(NotYet) | st.sampled_from(Step),
)
"""Every field, and every optional one with and without a value."""


def rotation_object(record: RotationRecord) -> dict[str, Any]:
    """The object in which the record is stored."""
    return {
        "apiVersion": f"{ANNOTATION_PREFIX}/v1alpha1",
        "kind": "CertificateAuthorityRotation",
        "metadata": {"namespace": record.cluster.namespace, "name": record.cluster.name, "uid": "u"},
        "spec": {**record_spec(record), "seal": SEAL},
    }
