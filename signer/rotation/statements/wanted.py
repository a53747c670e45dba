"""What agents on nodes are told at each step of a rotation. Pure.

The sequence of a statement is the Unix time since which it holds. It increases over all rotations of a cluster, also
when the record of an earlier one was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from signer.rotation.authorities import AuthorityKind, NotMade
from signer.rotation.desired import NEW_FIRST, NEW_ONLY, OLD_FIRST, OLD_ONLY, Roles
from signer.rotation.phases import Step
from signer.rotation.record import Moment, NotYet, RotationRecord, WorkersRollout


@dataclass(frozen=True, slots=True)
class WantedStatement:
    """The CAs that nodes are to trust, the one that their evidence must name first."""

    trusted: Roles
    sequence: int


@dataclass(frozen=True, slots=True)
class NoStatement:
    """Nodes are told nothing new."""


def wanted_statement(record: RotationRecord) -> WantedStatement | NoStatement:
    """What nodes are told at the record's step; nothing where the owner restarts the workers."""
    began = record.at(Moment.STEP)
    by_owner = record.workers_rollout is WorkersRollout.BY_OWNER
    not_made = isinstance(record.authority(AuthorityKind.CLUSTER).new, NotMade)
    trusted = _trusted(record)
    if record.phase.is_over or by_owner or not_made or isinstance(began, NotYet) or not trusted:
        return NoStatement()
    # A statement with one CA may follow one with both within the same second.
    return WantedStatement(trusted, int(began.timestamp()) + (1 if len(trusted) == 1 else 0))


def _trusted(record: RotationRecord) -> Roles:
    """Empty for no statement."""
    step = record.step
    if record.goes_back:
        if isinstance(record.held_at, Step) or step in (Step.SIGN_BY_OLD, Step.RESTORE_OLD):
            return ()
        return OLD_FIRST if step is Step.NODES_RETURN else OLD_ONLY
    if not step.is_at_least(Step.NODES_TRUST):
        return ()
    return NEW_ONLY if step.is_at_least(Step.DROP_OLD) else NEW_FIRST
