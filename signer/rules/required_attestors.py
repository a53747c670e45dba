"""Whether evidence of an attestor counts for Machines of a role, by the operator's floor."""

from __future__ import annotations

from attestors.contract.composite import attestors_of_identity
from signer.model.cluster import MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity
from signer.rules.builtin_serving import BuiltinServingFacts
from signer.rules.claim import role_of
from signer.rules.comparison import Comparison
from signer.rules.machine import MachineFacts


class NotAccepted(Exception):
    """Evidence of the attestor does not count for the Machine; the message says whose does."""


def require_accepted(policy: Policy, machine: MachineView, identity: AttestedIdentity) -> None:
    """Evidence of the attestors that proved the identity counts for Machines of that role.

    Raises:
        NotAccepted: it does not.
    """
    accepted = policy.required_attestors.of(role_of(machine))
    if not accepted.accepts_identity(identity):
        raise NotAccepted(
            f"the operator's floor accepts {accepted} for {machine} ({role_of(machine).value}), and not "
            f"{_shown(identity)}: "
            "let its node attest with one that it accepts, or change floors in the controller's configuration file"
        )


def _shown(identity: AttestedIdentity) -> str:
    parts = attestors_of_identity(identity.provider, identity.identity) - {identity.provider}
    return f"{identity.provider} with {' and '.join(sorted(parts))}" if parts else identity.provider


def attestor_is_accepted_for_the_role(facts: MachineFacts) -> None:
    """The operator's floor accepts the attestor for the Machine's role."""
    try:
        require_accepted(facts.policy, facts.machine, facts.identity)
    except NotAccepted as error:
        raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, str(error)) from error


def recorded_attestor_is_accepted_for_the_role(facts: BuiltinServingFacts) -> None:
    """The operator's floor accepts the attestor that attested the node."""
    try:
        require_accepted(facts.policy, facts.machine, facts.record.identity)
    except NotAccepted as error:
        raise Deferred(Reason.NODE_NOT_ATTESTED, str(error)) from error


def accepted_attestor(facts: MachineFacts | BuiltinServingFacts) -> Comparison:
    """Both checks."""
    identity = facts.identity if isinstance(facts, MachineFacts) else facts.record.identity
    return Comparison(_shown(identity), str(facts.policy.required_attestors.of(role_of(facts.machine))))


__all__ = [
    "NotAccepted",
    "accepted_attestor",
    "attestor_is_accepted_for_the_role",
    "recorded_attestor_is_accepted_for_the_role",
    "require_accepted",
]
