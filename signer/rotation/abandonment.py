"""When another rotation may start after one that a person has abandoned. Pure.

An abandoned rotation leaves two CAs in use. Another one knows its own two only: its first rollout would lock out what
still uses the third.
"""

from __future__ import annotations

from signer.rotation.authorities import AuthorityKind, AuthorityReference
from signer.rotation.facts import (
    Absent,
    Facts,
    HeldPair,
    KubeconfigFacts,
    NoClientCertificate,
    NotObserved,
    SignedByKnown,
    SignedByUnknown,
    SigningFacts,
    TrustFacts,
)
from signer.rotation.operations import OperationRejected
from signer.rotation.proofs import named


def require_cleared(facts: Facts) -> None:
    """Everything that the controller can see uses the CA of Secret ``<cluster>-ca``, and no other one.

    The checks are in the order in which a person clears it: nodes must have other certificates before API servers
    refuse those that they have.

    API servers are not asked: a kept pair, without which none can be, may be what the rotation was abandoned for. The
    next rotation asks them before it takes any CA away.

    Raises:
        OperationRejected: something uses another CA, or could not be seen; the message names it.
    """
    held = facts.authorities[AuthorityKind.CLUSTER].secret
    if not isinstance(held, HeldPair) or held.certificates != (held.signs,):
        raise OperationRejected(
            "the last rotation was abandoned, and Secret <cluster>-ca has no pair of one certificate"
        )
    stays = held.signs
    published = (_signing(stays, facts), _kubeconfig(stays, facts), _joins(stays, facts), _others(facts))
    for what in (*published, _certificates(stays, facts), _trust(stays, facts), _evidence(stays, facts), _kept(facts)):
        if what:
            raise OperationRejected(
                f"the last rotation was abandoned, and {what}; docs/rotation.md says how to clear an abandoned rotation"
            )


def _trust(stays: AuthorityReference, facts: Facts) -> str:
    if not isinstance(facts.trust, TrustFacts):
        return "Secret <cluster>-trust cannot be read"
    only = (stays.digest,)
    if facts.trust.client != only or facts.trust.server != only:
        return "Secret <cluster>-trust does not hold the CA of Secret <cluster>-ca alone"
    return ""


def _kubeconfig(stays: AuthorityReference, facts: Facts) -> str:
    only = (stays.digest,)
    if not isinstance(facts.kubeconfig, KubeconfigFacts):
        return "Secret <cluster>-kubeconfig cannot be read"
    if facts.kubeconfig.authorities != only:
        return "Secret <cluster>-kubeconfig is of another CA than Secret <cluster>-ca holds"
    match facts.kubeconfig.client:
        case NoClientCertificate():
            return ""
        case SignedByKnown(digest):
            own = digest == stays.digest
            return "" if own else "the client certificate of Secret <cluster>-kubeconfig is by the other CA"
        case SignedByUnknown():
            return "the client certificate of Secret <cluster>-kubeconfig is not by the CA of Secret <cluster>-ca"


def _signing(stays: AuthorityReference, facts: Facts) -> str:
    """Of a rotation with split pairs; it is not read in others."""
    if isinstance(facts.signing, SigningFacts) and facts.signing != SigningFacts(stays.digest, stays.digest):
        return "Secret <cluster>-signing holds another pair than Secret <cluster>-ca"
    return ""


def _joins(stays: AuthorityReference, facts: Facts) -> str:
    """What workers join by. Without ConfigMap ``cluster-info``, none joins by that."""
    if isinstance(facts.cluster_info, NotObserved):
        return f"ConfigMap kube-public/cluster-info cannot be read: {facts.cluster_info.message}"
    if not isinstance(facts.cluster_info, Absent) and facts.cluster_info != (stays.digest,):
        return "ConfigMap kube-public/cluster-info does not hold the CA of Secret <cluster>-ca alone"
    others = tuple(sorted(name for name, pins in facts.pins.items() if pins != {stays.public_key_hash}))
    return f"these KubeadmConfigs of MachinePools pin another CA: {named(others)}" if others else ""


def _others(facts: Facts) -> str:
    """The other authorities."""
    for kind, held in facts.authorities.items():
        if isinstance(held.secret, HeldPair) and held.secret.certificates != (held.secret.signs,):
            return f"Secret <cluster>-{kind.value} holds more than the certificate or public key of its key"
    return ""


def _certificates(stays: AuthorityReference, facts: Facts) -> str:
    if facts.unattested:
        return f"these Machines' nodes have no record, so that they may use the other CA: {named(facts.unattested)}"
    unknown = tuple(sorted(one.node for one in facts.nodes if not one.is_all))
    if unknown:
        return f"these nodes have certificates of kinds that this version does not know: {named(unknown)}"
    own = {stays.public_key_hash, ""}
    others = tuple(sorted(one.node for one in facts.nodes if not {one.client, one.serving} <= own))
    return (
        f"these nodes have a certificate of another CA than that of Secret <cluster>-ca: {named(others)}"
        if others
        else ""
    )


def _evidence(stays: AuthorityReference, facts: Facts) -> str:
    others = tuple(sorted(one.node for one in facts.nodes if one.evidence != stays.public_key_hash))
    return f"these nodes know the cluster by another CA; replace their Machines: {named(others)}" if others else ""


def _kept(facts: Facts) -> str:
    """Last: while they are there, nodes may name either CA."""
    kept = any(not isinstance(pair, Absent) for held in facts.authorities.values() for pair in held.pairs.values())
    return "its Secrets <cluster>-<authority>-<rotationID> still exist" if kept else ""
