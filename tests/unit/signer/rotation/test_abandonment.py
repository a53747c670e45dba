"""What must be cleared after an abandoned rotation, before another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from signer.rotation.abandonment import require_cleared
from signer.rotation.authorities import AuthorityKind
from signer.rotation.facts import (
    Absent,
    AuthorityFacts,
    Facts,
    HeldCertificate,
    KubeconfigFacts,
    Link,
    NoClientCertificate,
    NotObserved,
    SignedByKnown,
    SignedByUnknown,
    SigningFacts,
    TrustFacts,
)
from signer.rotation.operations import OperationRejected
from signer.rotation.phases import Step
from tests.unit.signer.rotation.model_world import reference
from tests.unit.signer.rotation.situations import DIGEST, HASH, NEW, OLD, facts_at, node, pair, with_secret

ONLY = (DIGEST[OLD],)
BOTH = (DIGEST[OLD], DIGEST[NEW])
BY_OLD, BY_NEW = SignedByKnown(DIGEST[OLD]), SignedByKnown(DIGEST[NEW])
CLUSTER, PROXY = AuthorityKind.CLUSTER, AuthorityKind.FRONT_PROXY


def cleared() -> Facts:
    """Everything uses the old CA, which Secret ``<cluster>-ca`` holds."""
    facts = facts_at(Step.NODES_TRUST)
    authorities = {kind: AuthorityFacts(pair(OLD, kind), {}) for kind in facts.authorities}
    return replace(
        facts,
        authorities=authorities,
        trust=TrustFacts(ONLY, ONLY, Link.NONE),
        kubeconfig=KubeconfigFacts(ONLY, BY_OLD),
        nodes=(node(evidence=OLD, client=OLD, serving=OLD),),
        signing=SigningFacts(DIGEST[OLD], DIGEST[OLD]),
        cluster_info=ONLY,
        pins={"pool": frozenset({HASH[OLD]})},
        unattested=(),
    )


def test_what_is_cleared_may_be_rotated_again() -> None:
    require_cleared(cleared())
    require_cleared(replace(cleared(), nodes=(replace(node(), serving=""),)))
    token = KubeconfigFacts(ONLY, NoClientCertificate())
    require_cleared(replace(cleared(), kubeconfig=token))
    require_cleared(replace(cleared(), signing=Absent(), cluster_info=Absent(), pins={}))


@pytest.mark.parametrize(
    ("uncleared", "says"),
    [
        (with_secret(cleared(), CLUSTER, Absent()), "has no pair of one certificate"),
        (with_secret(cleared(), CLUSTER, pair(OLD, CLUSTER, NEW)), "has no pair of one certificate"),
        (with_secret(cleared(), CLUSTER, HeldCertificate(reference(OLD))), "has no pair of one certificate"),
        (with_secret(cleared(), CLUSTER, pair(NEW)), "<cluster>-signing holds another pair"),
        (replace(cleared(), trust=Absent()), "<cluster>-trust cannot be read"),
        (replace(cleared(), trust=TrustFacts(BOTH, ONLY, Link.NONE)), "<cluster>-trust does not hold"),
        (replace(cleared(), trust=TrustFacts(ONLY, BOTH, Link.NONE)), "<cluster>-trust does not hold"),
        (replace(cleared(), kubeconfig=Absent()), "<cluster>-kubeconfig cannot be read"),
        (replace(cleared(), kubeconfig=KubeconfigFacts(BOTH, BY_OLD)), "<cluster>-kubeconfig is of another CA"),
        (replace(cleared(), kubeconfig=KubeconfigFacts(ONLY, BY_NEW)), "-kubeconfig is by the other CA"),
        (replace(cleared(), kubeconfig=KubeconfigFacts(ONLY, SignedByUnknown())), "-kubeconfig is not by the CA of"),
        (replace(cleared(), signing=SigningFacts(DIGEST[OLD], DIGEST[NEW])), "<cluster>-signing holds another pair"),
        (replace(cleared(), cluster_info=BOTH), "cluster-info does not hold"),
        (replace(cleared(), cluster_info=NotObserved("403")), "kube-public/cluster-info cannot be read: 403"),
        (replace(cleared(), pins={"pool": frozenset({HASH[OLD], HASH[NEW]})}), "pin another CA: pool"),
        (replace(cleared(), unattested=("machine-9",)), "no record, so that they may use the other CA: machine-9"),
        (with_secret(cleared(), PROXY, pair(OLD, PROXY, NEW)), "<cluster>-proxy holds more than"),
        (replace(cleared(), nodes=(replace(node("worker-7"), is_all=False),)), "does not know: worker-7"),
        (replace(cleared(), nodes=(node("worker-7", evidence=NEW),)), "know the cluster by another CA.*worker-7"),
        (replace(cleared(), nodes=(node("worker-7", client=NEW),)), "worker-7"),
        (replace(cleared(), nodes=(node("worker-7", serving=NEW),)), "worker-7"),
    ],
)
def test_what_is_not_cleared_is_named(uncleared: Facts, says: str) -> None:
    with pytest.raises(OperationRejected, match=says) as raised:
        require_cleared(uncleared)
    assert str(raised.value).startswith("the last rotation was abandoned, and ")


@pytest.mark.parametrize("kind", AuthorityKind)
def test_the_abandoned_keys_must_be_gone(kind: AuthorityKind) -> None:
    facts = cleared()
    kept = AuthorityFacts(facts.authorities[kind].secret, {OLD: Absent(), NEW: pair(NEW, kind)})
    with pytest.raises(OperationRejected, match="still exist"):
        require_cleared(replace(facts, authorities={**facts.authorities, kind: kept}))
    gone = replace(kept, pairs={OLD: Absent(), NEW: Absent()})
    require_cleared(replace(facts, authorities={**facts.authorities, kind: gone}))
