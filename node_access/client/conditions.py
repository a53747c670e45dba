"""What each reason of a grant's conditions means for the person who waits, and what that person can do. Pure.

The reasons are those of docs/troubleshooting.md, which a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from node_access.client.grants import Condition

MAXIMUM_DETAIL: Final = 512
"""Characters. The controller writes no longer message."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What is missing, and the remedy."""

    missing: str
    remedy: str
    is_usual: bool = False
    """It passes by itself within a minute or two, so the remedy is told to those alone who waited in vain."""


ENDED: Final[Mapping[str, str]] = {
    "CreatorNotProven": "nothing will ever prove who made it; make another one",
    "Deleted": "it was revoked",
    "HeartbeatMissing": "it had no heartbeat in time",
    "DurationOver": "its duration is over",
    "ClusterGone": "its Cluster is gone",
    "TargetsGone": "its nodes are gone",
    "DeniedByApprover": "an approver denied it",
    "RecordNotAuthentic": "its record is not authentic; tell the operator of the management cluster",
    "TooManyReturns": "it was suspended too often; make another one",
}
"""The grant never comes back."""

PAUSED: Final[Mapping[str, str]] = {
    "RightLost": "its creator has no right to the login; ask for verb 'use' on logins.access.cluster.x-k8s.io",
    "RightUnknown": "the API server does not say whether its creator may use the login; its authorizer may fail",
    "NotAllowed": "policy or operator allow no grants there; ask for spec.ssh.access in the NodeAttestationPolicy",
}
"""Nothing can be done with the grant. It comes back if somebody mends that before its time is over."""

_ANOTHER: Final = "make another grant"
HOPELESS: Final[Mapping[str, str]] = {
    "Invalid": f"the grant is invalid; {_ANOTHER}",
    "ForbiddenByPolicy": f"policy or operator do not allow what it asks for; {_ANOTHER}",
    "SpecChanged": f"its spec was changed; {_ANOTHER}, and tell the operator of the management cluster",
    "KeyIsAuthority": f"its key is an SSH authority of the cluster; {_ANOTHER} with a key of your own",
    "KeyIsHostKey": f"its key is the host key of a node; {_ANOTHER} with a key of your own",
    "Revoked": f"the policy revokes its key or the user authority; {_ANOTHER} with another key",
    "NameInvalid": f"no certificate can hold a name in it; {_ANOTHER}",
    "KeyIDTooLong": f"its names together are too long for a certificate; {_ANOTHER} with a shorter --name",
    "OptionInvalid": f"no certificate can hold its command or networks; {_ANOTHER}",
    "IngressMissing": f"it names no network that the bastion lets in; {_ANOTHER} with --cidr",
}
"""Waiting does not help, although the grant has not ended."""

_SOON: Final = "the controller tries again"
_AUTHORITY: Final = Hint(
    "the Cluster's SSH user authority, which signs nothing now",
    "condition SSHAuthoritiesAvailable of the NodeAttestationPolicy says why",
)
_TARGETS: Final = Hint("the nodes", "compare the names with the Machines, and look at their condition NodeAttested")
_AGAIN: Final = Hint("new certificates", _SOON, is_usual=True)
WAITING: Final[Mapping[str, Hint]] = {
    "ApprovalsMissing": Hint("approval", "another person runs: node-access grant approve {name}"),
    "ApprovalsUnknown": Hint(
        "the controller, which keeps no approvals of a namespace with too many",
        "delete AccessApprovals that nothing needs, or ask the operator to raise namespaceLimits.accessApprovals",
    ),
    "ClusterPaused": Hint("its Cluster, which is paused", "wait, or ask for spec.paused of the Cluster to be unset"),
    "PolicyUnreadable": Hint("a valid NodeAttestationPolicy", "its conditions say what is wrong"),
    "CreatorNotProtected": Hint(
        "proof of who made it", "the operator installs the admission policies for access grants"
    ),
    "RightMissing": Hint("the API server's word that you may use the login", "it takes five minutes at most"),
    "ClocksDiffer": Hint("the controller's clock to be right", "tell the operator, who sets it"),
    "TargetsUnknown": _TARGETS,
    "NoNodes": _TARGETS,
    "AuthorityNotAvailable": _AUTHORITY,
    "AuthoritiesNotAvailable": _AUTHORITY,
    "BastionPending": Hint("the bastion, which is starting", "see kubectl describe bastions", is_usual=True),
    "FailedReconciling": Hint("the bastion, which failed", "see kubectl describe bastions, and tell the operator"),
    "DeletionInProgress": Hint("a former bastion to be removed", "see kubectl describe bastions", is_usual=True),
    "RevocationsUnknown": Hint("the list of revocations", "the message says what the operator does"),
    "RevocationListFull": Hint("room in the list of revocations", "the message says what the operator does"),
    "LifetimeInvalid": Hint("its end, which is less than a second away", _ANOTHER),
    "GatewayNotReady": Hint(
        "the gateway's right to act as you in the workload cluster", "the message says what the operator does"
    ),
    "AuthorityChanged": _AGAIN,
    "SigningFailed": _AGAIN,
}
"""The grant becomes Ready when that is there."""
SUSPENDED: Final = Hint("its creator to go on with it, because it is suspended", "unset spec.suspend of the grant")
UNSEEN: Final = Hint(
    "the controller to look at it",
    "ask the operator whether node-attestation-controller runs with access grants on",
    is_usual=True,
)
UNANSWERED: Final = Hint("its certificates", "ask the operator whether node-attestation-controller runs", is_usual=True)


def detail(condition: Condition) -> str:
    """The controller's own words, short enough for a line. Not printable as it is."""
    text = condition.message
    return text if len(text) <= MAXIMUM_DETAIL else f"{text[: MAXIMUM_DETAIL - 1]}…"


def named(condition: Condition) -> str:
    """The condition as one finds it in the documents."""
    told = detail(condition)
    name = condition.type if condition.reason in ("", condition.type) else f"{condition.type}, {condition.reason}"
    return f"{name}: {told}" if told else name


def hint(condition: Condition) -> Hint:
    """What is missing while that condition does not hold."""
    for table in (ENDED, PAUSED, HOPELESS):
        if condition.reason in table:
            what, _, remedy = table[condition.reason].partition("; ")
            return Hint(what, remedy)
    unknown = Hint(f"condition {condition.type}", f"see docs/troubleshooting.md for {condition.reason or 'its reason'}")
    return WAITING.get(condition.reason, unknown)
