"""What is known about one grant at one moment: everything that its next move depends on. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from signer.access.creator import Lock
from signer.access.lifetimes import Lifetime
from signer.access.parts import BastionState, Publication, TargetsAnswer
from signer.access.record import GrantRecord, StoredRecord
from signer.access.right_answers import RightAnswer
from signer.kube.clocks import ClockAnswer, ClocksAgree
from signer.model.access import (
    AccessApproval,
    AccessGrant,
    BastionChoice,
    CreatorNotStated,
    InvalidAccessGrant,
    ObjectMetadata,
    StatedCreator,
)
from signer.model.access.grant import FINALIZER


@dataclass(frozen=True, slots=True)
class ClusterHere:
    """The Cluster exists and is served."""


@dataclass(frozen=True, slots=True)
class ClusterPaused:
    """It may be moving, and two management clusters must not issue at once."""


@dataclass(frozen=True, slots=True)
class ClusterOver:
    """There is no such Cluster, or it is being deleted."""

    message: str


ClusterState: TypeAlias = ClusterHere | ClusterPaused | ClusterOver


@dataclass(frozen=True, slots=True)
class GrantRules:
    """What policy and operator allow this grant."""

    certificate_duration: timedelta
    required_approvals: int
    bastion: BastionChoice
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The policy's, for the bastion's provider."""


@dataclass(frozen=True, slots=True)
class GrantsNotAllowed:
    """The policy or the operator allows no grants here. Living ones end, until they are allowed again."""

    message: str


@dataclass(frozen=True, slots=True)
class GrantForbidden:
    """Grants are allowed, but not this one as it is. Nothing is issued for it."""

    message: str


@dataclass(frozen=True, slots=True)
class RulesUnknown:
    """There is no readable policy now."""

    message: str


RulesAnswer: TypeAlias = GrantRules | GrantsNotAllowed | GrantForbidden | RulesUnknown


@dataclass(frozen=True, slots=True)
class ApprovalsUnknown:
    """The controller keeps no approvals of the namespace, because it has too many."""

    message: str


class Keepalive(enum.Enum):
    """GEP-0015's heartbeat, an annotation that the controller removes."""

    NONE = enum.auto()
    ASKED = enum.auto()
    """The annotation is there."""
    TAKEN = enum.auto()
    """This process has removed it, and it counts."""


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """What this process remembers of the last authentic record: what its key ids are made of survives its loss, and an
    older one that is put back is told from it.
    """

    sequence: int = 0
    """0: none was seen."""
    cluster: str = ""
    creator: StatedCreator = field(default_factory=CreatorNotStated)

    @classmethod
    def of(cls, record: GrantRecord) -> KnownRecord:
        """Without the creator's groups, which are in no key id."""
        return cls(record.sequence, record.cluster, replace(record.creator, groups=frozenset()))


@dataclass(frozen=True, slots=True)
class Facts:
    """One look at a grant."""

    now: datetime
    metadata: ObjectMetadata
    grant: AccessGrant | InvalidAccessGrant
    record: StoredRecord
    is_key_wait_over: bool
    """A record whose key is unknown has waited long enough for a newer controller key."""
    cluster: ClusterState
    rules: RulesAnswer
    lifetime: Lifetime
    lock: Lock
    right: RightAnswer
    """The creator's: of the sealed one, else of the stated one."""
    approvals: tuple[AccessApproval, ...] | ApprovalsUnknown
    """Those that are about this grant (:func:`signer.access.approvals.candidates`)."""
    approvers: Mapping[str, RightAnswer]
    """By UID of the approval, whether its creator may approve."""
    targets: TargetsAnswer
    bastion: BastionState
    is_bastion_current: bool
    """Its spec is what it should be."""
    is_bastion_deleting: bool
    authority: str
    """Fingerprint of the user authority that signs; empty while there is none."""
    publication: Publication
    """Of the key id of the sealed epoch."""
    keepalive: Keepalive
    clocks: ClockAnswer
    """Whether ``now`` is the API server's time, too."""
    asks_suspension: bool = False
    """``spec.suspend`` is true, also of an object that is otherwise invalid."""
    stated_cluster: str = ""
    """Also of an object that is otherwise invalid; empty if it names none that there could be."""
    stated_creator: StatedCreator = field(default_factory=CreatorNotStated)
    """Also of an object that is otherwise invalid."""
    known: KnownRecord = field(default_factory=KnownRecord)

    @property
    def has_finalizer(self) -> bool:
        """Whether the object waits for the controller before it goes."""
        return FINALIZER in self.metadata.finalizers

    @property
    def time_counts(self) -> bool:
        """Whether anything may end by time alone."""
        return isinstance(self.clocks, ClocksAgree)

    @property
    def known_approvals(self) -> tuple[AccessApproval, ...]:
        """The approvals; none while they are not known."""
        return () if isinstance(self.approvals, ApprovalsUnknown) else self.approvals

    def may_be_accepted(self, record: GrantRecord) -> bool:
        """Whether a node may still accept a certificate of the record."""
        return record.may_be_accepted(self.now, self.clocks)


__all__ = [
    "ApprovalsUnknown",
    "ClusterHere",
    "ClusterOver",
    "ClusterPaused",
    "ClusterState",
    "Facts",
    "GrantForbidden",
    "GrantRules",
    "GrantsNotAllowed",
    "Keepalive",
    "RulesAnswer",
    "RulesUnknown",
]
