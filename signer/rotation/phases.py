"""The phases and steps of a rotation, in their order.

The phases are those of Gardener's ``status.credentials.rotation.certificateAuthorities``, and two for the way back.
GEP-0018 has three; :func:`gep_phase` derives them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class Phase(enum.Enum):
    """Where a rotation is, as the policy's status shows it."""

    PREPARING = "Preparing"
    PREPARING_WITHOUT_WORKERS_ROLLOUT = "PreparingWithoutWorkersRollout"
    WAITING_FOR_WORKERS_ROLLOUT = "WaitingForWorkersRollout"
    """Everything but the workers is prepared, and the owner replaces or restarts them."""
    PREPARED = "Prepared"
    """A person exchanges credentials and then completes the rotation."""
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    ABANDONED = "Abandoned"
    """A person took over: everything stays as it was, and Secret ``<cluster>-ca`` decides which CA signs."""

    @property
    def is_over(self) -> bool:
        """Whether another rotation may start."""
        return self in (Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABANDONED)


class GEPPhase(enum.Enum):
    """``phase`` of GEP-0018."""

    NONE = ""
    PREPARE = "Prepare"
    FINALIZE = "Finalize"
    COMPLETED = "Completed"


def gep_phase(phase: Phase) -> GEPPhase:
    """The phase of GEP-0018 in which the rotation is. It knows no way back."""
    match phase:
        case Phase.COMPLETING:
            return GEPPhase.FINALIZE
        case Phase.COMPLETED:
            return GEPPhase.COMPLETED
        case Phase.ROLLED_BACK | Phase.ABANDONED:
            return GEPPhase.NONE
        case _:
            return GEPPhase.PREPARE


class SigningPairs(enum.Enum):
    """What kube-controller-manager signs with; a rotation keeps what it found in the template at its start."""

    ONE_PAIR = "OnePair"
    """The pair of kubeadm for all signers: it signs by the new CA from the second rollout on."""
    SPLIT = "Split"
    """One pair for client certificates and one for serving certificates, from files of Secret ``<cluster>-signing``: it
    signs client certificates by the new CA in the first phase already (GEP-0018), which takes a rollout more."""


class Step(enum.Enum):
    """What the rotation works on. Declared in order; the value is written in the record."""

    NEW_AUTHORITY = "NewAuthority"
    """The new CA exists durably before anything refers to it."""
    ACCEPT = "Accept"
    """Evidence may name either CA."""
    PUBLISH_TRUST = "PublishTrust"
    """Machines that join from now on trust both CAs."""
    SERVERS_TRUST = "ServersTrust"
    """Every API server accepts client certificates of both CAs."""
    SIGN_CLIENTS = "SignClients"
    """The new CA signs the client certificates of nodes."""
    CONTROLLER_MANAGERS_SIGN = "ControllerManagersSign"
    """kube-controller-manager signs client certificates with the new CA. Only with :attr:`SigningPairs.SPLIT`."""
    NODES_TRUST = "NodesTrust"
    """Every kubelet trusts the new CA and has a client certificate of it."""
    PREPARED = "Prepared"
    """A person decides."""
    SWITCH = "Switch"
    """Secret ``<cluster>-ca`` holds the new CA."""
    SERVERS_PRESENT = "ServersPresent"
    """Every API server presents a certificate of the new CA."""
    SIGN_SERVING = "SignServing"
    """The new CA signs the serving certificates of nodes."""
    RETIRE_OLD = "RetireOld"
    """Evidence may name only the new CA. From here on nothing leads back."""
    DROP_OLD = "DropOld"
    """No API server accepts the old CA's client certificates."""
    PRUNE = "Prune"
    """Aggregated API servers are no longer told to trust the old CA."""
    FORGET = "Forget"
    """The old CA's key is deleted."""

    SIGN_BY_OLD = "SignByOld"
    """The way back: the old CA signs everything again."""
    RESTORE_OLD = "RestoreOld"
    """Secret ``<cluster>-ca`` holds the old CA again."""
    NODES_RETURN = "NodesReturn"
    """No node has a certificate of the new CA, and none names it."""
    WITHDRAW_TRUST = "WithdrawTrust"
    """Machines that join from now on trust the old CA only."""
    DISCARD_NEW = "DiscardNew"
    """The new CA's key is deleted."""

    def is_at_least(self, other: Step) -> bool:
        """Whether this step is ``other`` or comes after it. Both must be of the same direction.

        Raises:
            ValueError: one leads forward and the other back.
        """
        for direction in (FORWARD, BACK):
            if self in direction and other in direction:
                return direction.index(self) >= direction.index(other)
        raise ValueError(f"{self.value} and {other.value} are steps of different directions")


FORWARD: Final = tuple(step for step in Step if list(Step).index(step) <= list(Step).index(Step.FORGET))
BACK: Final = tuple(step for step in Step if step not in FORWARD)
WITHOUT_SPLIT: Final = tuple(step for step in FORWARD if step is not Step.CONTROLLER_MANAGERS_SIGN)


def forward(signing: SigningPairs) -> tuple[Step, ...]:
    """The steps of a rotation from its start to its end, in order."""
    return FORWARD if signing is SigningPairs.SPLIT else WITHOUT_SPLIT


PREPARING_STEPS: Final = FORWARD[: FORWARD.index(Step.PREPARED)]
COMPLETING_STEPS: Final = FORWARD[FORWARD.index(Step.SWITCH) :]
HOLDING_STEPS: Final = frozenset({Step.SWITCH, Step.SERVERS_PRESENT, Step.SIGN_SERVING})
"""Steps to which a rollback of clients only returns: API servers may present the new CA, and the old one is kept."""
STEPS_OF: Final[Mapping[Phase, frozenset[Step]]] = MappingProxyType(
    {
        Phase.PREPARING: frozenset(PREPARING_STEPS),
        Phase.PREPARING_WITHOUT_WORKERS_ROLLOUT: frozenset(PREPARING_STEPS),
        Phase.WAITING_FOR_WORKERS_ROLLOUT: frozenset({Step.NODES_TRUST}),
        Phase.PREPARED: frozenset({Step.PREPARED}),
        Phase.COMPLETING: frozenset(COMPLETING_STEPS),
        Phase.COMPLETED: frozenset({Step.FORGET}),
        Phase.ROLLING_BACK: frozenset(BACK),
        Phase.ROLLED_BACK: frozenset({Step.DISCARD_NEW}),
        Phase.ABANDONED: frozenset(Step),
    }
)
"""The steps that a rotation in that phase may work on."""


class RollbackAvailable(enum.Enum):
    """How much of a rotation ``rollback-ca-rotation`` can take back now."""

    FULL = "Full"
    CLIENTS_ONLY = "ClientsOnly"
    """The old CA signs clients' certificates again; the API servers keep their new ones."""
    NONE = "None"


class TakesBack(enum.Enum):
    """Whether machines that join with the old CA get along with API servers that present the new one."""

    LINKED = "NewWithOld"
    """Yes: the old CA certifies the new one, which its path length allows."""
    NOT_LINKED = "None"


def rollback_available(phase: Phase, step: Step, link: TakesBack) -> RollbackAvailable:
    """What can be taken back.

    All of it until an API server may present the new CA; then only where :attr:`TakesBack.LINKED`; nothing once the old
    CA is retired.
    """
    if phase.is_over or step in BACK:
        return RollbackAvailable.NONE
    if not step.is_at_least(Step.SERVERS_PRESENT):
        return RollbackAvailable.FULL
    if step.is_at_least(Step.RETIRE_OLD):
        return RollbackAvailable.NONE
    return RollbackAvailable.FULL if link is TakesBack.LINKED else RollbackAvailable.CLIENTS_ONLY
