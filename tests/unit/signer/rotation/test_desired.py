"""What is published, held and signed at each step, and the writes that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.desired import (
    NEW_FIRST,
    NEW_ONLY,
    OLD_FIRST,
    OLD_ONLY,
    AsBefore,
    DeleteKey,
    KeepPair,
    PruneAuthentication,
    SecretContents,
    Signing,
    Write,
    WriteAuthority,
    WriteClusterInfo,
    WriteKubeconfig,
    WritePins,
    WriteTrust,
    contents,
    hashes,
    holds_old,
    missing_writes,
    published,
    signing,
)
from signer.rotation.facts import (
    Absent,
    AuthenticationFacts,
    HeldCertificate,
    KubeconfigClient,
    KubeconfigFacts,
    Link,
    NoClientCertificate,
    NotObserved,
    SignedByKnown,
    SignedByUnknown,
    TrustFacts,
    Unusable,
)
from signer.rotation.phases import BACK, FORWARD, HOLDING_STEPS, Phase, Step, TakesBack
from signer.rotation.record import RotationRecord
from tests.unit.signer.rotation.model_world import START, reference
from tests.unit.signer.rotation.situations import (
    DIGEST,
    HASH,
    NEW,
    OLD,
    facts_at,
    pair,
    record_at,
    with_pair,
    with_secret,
)

CA, ETCD, PROXY, SA = AuthorityKind
UNKNOWN = NotObserved("timeout")


def between(first: Step, last: Step) -> Iterable[Step]:
    return FORWARD[FORWARD.index(first) : FORWARD.index(last) + 1]


def missing(record: RotationRecord, facts: Any = None) -> list[Write]:
    return list(missing_writes(record, facts or facts_at(record.step)))


@pytest.mark.parametrize("step", [*between(Step.ACCEPT, Step.PRUNE), *BACK[:-1]])
def test_a_cluster_that_is_as_the_step_wants_it_needs_no_write(step: Step) -> None:
    assert missing(record_at(step)) == []


# Tables


def test_what_is_published() -> None:
    for step in between(Step.NEW_AUTHORITY, Step.ACCEPT):
        assert (published(record_at(step)).client, published(record_at(step)).server) == (OLD_ONLY, OLD_ONLY)
    for step in between(Step.PUBLISH_TRUST, Step.PREPARED):
        wanted = published(record_at(step))
        assert (wanted.client, wanted.server, wanted.link) == (OLD_FIRST, NEW_FIRST, Link.OLD_WITH_NEW)
        assert (wanted.kubeconfig, wanted.kubeconfig_client) == (OLD_FIRST, OLD)
    for step in between(Step.SWITCH, Step.RETIRE_OLD):
        for link, takes_back in ((Link.NONE, TakesBack.NOT_LINKED), (Link.NEW_WITH_OLD, TakesBack.LINKED)):
            wanted = published(record_at(step, takes_back=takes_back))
            assert (wanted.client, wanted.server, wanted.link) == (OLD_FIRST, NEW_FIRST, link)
            assert (wanted.kubeconfig, wanted.kubeconfig_client) == (NEW_FIRST, NEW)
    for step in between(Step.DROP_OLD, Step.FORGET):
        wanted = published(record_at(step))
        assert (wanted.client, wanted.server, wanted.kubeconfig, wanted.link) == (*[NEW_ONLY] * 3, Link.NONE)
    for step in (Step.SIGN_BY_OLD, Step.RESTORE_OLD, Step.NODES_RETURN):
        wanted = published(record_at(step))
        assert (wanted.client, wanted.server, wanted.link) == (OLD_FIRST, OLD_FIRST, Link.OLD_WITH_NEW)
    for step in (Step.WITHDRAW_TRUST, Step.DISCARD_NEW):
        assert published(record_at(step)) == published(record_at(Step.ACCEPT))


@pytest.mark.parametrize("held", [step for step in Step if step in HOLDING_STEPS])
def test_a_rollback_of_clients_changes_only_who_signs_clients(held: Step) -> None:
    before, back = record_at(held), record_at(Step.SIGN_BY_OLD, held_at=held)
    assert published(back) == published(before)
    assert [contents(back, kind) for kind in AuthorityKind] == [contents(before, kind) for kind in AuthorityKind]
    decides = signing(before)
    assert isinstance(decides, Signing)
    assert signing(back) == replace(decides, client=OLD)


@pytest.mark.parametrize("step", Step)
def test_the_secret_of_the_clusters_ca_is_never_a_bundle(step: Step) -> None:
    assert len(contents(record_at(step), CA).certificates) == 1
    for kind in AuthorityKind:
        held = contents(record_at(step), kind)
        assert held.certificates[0] is held.key, "the first certificate is that of the key"


def test_what_secrets_hold() -> None:
    expected: dict[Step, tuple[SecretContents, ...]] = {
        Step.ACCEPT: (SecretContents(OLD_ONLY, OLD),) * 4,
        Step.PUBLISH_TRUST: (SecretContents(OLD_ONLY, OLD), *[SecretContents(OLD_FIRST, OLD)] * 3),
        Step.PREPARED: (SecretContents(OLD_ONLY, OLD), *[SecretContents(OLD_FIRST, OLD)] * 3),
        Step.SWITCH: (SecretContents(NEW_ONLY, NEW), *[SecretContents(NEW_FIRST, NEW)] * 3),
        Step.RETIRE_OLD: (SecretContents(NEW_ONLY, NEW), *[SecretContents(NEW_FIRST, NEW)] * 3),
        Step.DROP_OLD: (*[SecretContents(NEW_ONLY, NEW)] * 3, SecretContents(NEW_FIRST, NEW)),
        Step.RESTORE_OLD: (SecretContents(OLD_ONLY, OLD), *[SecretContents(OLD_FIRST, OLD)] * 3),
        Step.WITHDRAW_TRUST: (SecretContents(OLD_ONLY, OLD),) * 4,
    }
    for step, held in expected.items():
        assert tuple(contents(record_at(step), kind) for kind in AuthorityKind) == held


def test_who_signs_and_whom_evidence_may_name() -> None:
    both = frozenset(Role)
    for step in between(Step.ACCEPT, Step.SERVERS_TRUST):
        assert signing(record_at(step)) == Signing(OLD, OLD, both)
    for step in between(Step.SIGN_CLIENTS, Step.SERVERS_PRESENT):
        assert signing(record_at(step)) == Signing(NEW, OLD, both)
    assert signing(record_at(Step.SIGN_SERVING)) == Signing(NEW, NEW, both)
    for step in between(Step.RETIRE_OLD, Step.FORGET):
        assert signing(record_at(step)) == Signing(NEW, NEW, frozenset({NEW}))
    for step in BACK:
        assert signing(record_at(step)) == Signing(OLD, OLD, both)


def test_the_secret_alone_decides_before_and_after() -> None:
    assert signing(record_at(Step.NEW_AUTHORITY)) == AsBefore()
    assert signing(record_at(Step.FORGET, phase=Phase.COMPLETED)) == AsBefore()
    assert signing(record_at(Step.DISCARD_NEW, phase=Phase.ROLLED_BACK)) == AsBefore()
    assert signing(record_at(Step.RESTORE_OLD, made=False)) == AsBefore()
    made = record_at(Step.ACCEPT)
    sealed = replace(made, step=Step.NEW_AUTHORITY)
    assert signing(sealed) == AsBefore(), "made, and nobody trusts it"


# Writes


def test_pairs_are_kept_first() -> None:
    record = record_at(Step.NEW_AUTHORITY)
    facts = facts_at(record.step)
    for kind in AuthorityKind:
        for role in Role:
            facts = with_pair(facts, kind, role, Absent())
    assert missing(record, facts) == [KeepPair(kind, role) for kind in AuthorityKind for role in (OLD, NEW)]


def test_a_pair_that_is_there_is_never_replaced() -> None:
    """Also not one that a tenant put there."""
    record = record_at(Step.NEW_AUTHORITY)
    for held in (Unusable("not sealed"), HeldCertificate(reference(NEW))):
        assert missing(record, with_pair(facts_at(record.step), CA, NEW, held)) == []


def test_nothing_is_published_before_the_record_seals_the_new_ca() -> None:
    record = record_at(Step.NEW_AUTHORITY)
    facts = replace(facts_at(record.step), trust=Unusable("x"), kubeconfig=KubeconfigFacts((), NoClientCertificate()))
    assert missing(record, facts) == []
    going_back = record_at(Step.RESTORE_OLD, made=False)
    assert missing(going_back, replace(facts_at(Step.RESTORE_OLD), trust=Absent())) == []


@pytest.mark.parametrize("step", [Step.NEW_AUTHORITY, Step.ACCEPT])
def test_nothing_is_published_before_its_step(step: Step) -> None:
    record = replace(record_at(Step.ACCEPT), step=step)
    facts = replace(
        facts_at(Step.ACCEPT),
        trust=Absent(),
        kubeconfig=KubeconfigFacts((), NoClientCertificate()),
        pins={"pool": frozenset()},
    )
    assert missing(record, facts) == []


def test_publishing() -> None:
    record = record_at(Step.PUBLISH_TRUST)
    before = replace(facts_at(Step.ACCEPT), pins={"pool": frozenset({HASH[OLD]}), "a": frozenset(HASH.values())})
    assert missing(record, before) == [
        *(WriteAuthority(kind, SecretContents(OLD_FIRST, OLD)) for kind in (ETCD, PROXY, SA)),
        WriteTrust(OLD_FIRST, NEW_FIRST, Link.OLD_WITH_NEW),
        WriteClusterInfo(NEW_FIRST),
        WritePins("pool", NEW_FIRST),
        WriteKubeconfig(OLD_FIRST, OLD),
    ]


def test_authorities_are_written_before_the_link() -> None:
    """Else a Machine that is made in between has an old certificate without a link."""
    record = record_at(Step.SWITCH, takes_back=TakesBack.LINKED)
    writes = missing(record, facts_at(Step.PREPARED))
    authorities = [number for number, one in enumerate(writes) if isinstance(one, WriteAuthority)]
    (trust,) = (number for number, one in enumerate(writes) if isinstance(one, WriteTrust))
    assert len(authorities) == 4
    assert max(authorities) < trust


@pytest.mark.parametrize("link", [Link.NONE, Link.NEW_WITH_OLD, Link.OTHER])
def test_another_link_is_replaced(link: Link) -> None:
    facts = facts_at(Step.PUBLISH_TRUST)
    assert isinstance(facts.trust, TrustFacts)
    other = replace(facts, trust=replace(facts.trust, link=link))
    assert missing(record_at(Step.PUBLISH_TRUST), other) == [WriteTrust(OLD_FIRST, NEW_FIRST, Link.OLD_WITH_NEW)]


def test_what_cannot_be_observed_is_not_written() -> None:
    facts = replace(facts_at(Step.PRUNE), cluster_info=UNKNOWN, authentication=UNKNOWN, kubeconfig=Unusable("exec"))
    assert missing(record_at(Step.PRUNE), facts) == []
    assert missing(record_at(Step.PRUNE), replace(facts, kubeconfig=Absent())) == []
    for held in (Unusable("x"), Absent(), HeldCertificate(reference(NEW))):
        assert missing(record_at(Step.SWITCH), with_secret(facts_at(Step.SWITCH), CA, held)) == []


def test_an_edited_secret_is_written_again() -> None:
    """An edit of ``<cluster>-ca`` to the rotation's other CA, in the middle."""
    for step, other, wanted in ((Step.PREPARED, NEW, OLD_ONLY), (Step.SERVERS_PRESENT, OLD, NEW_ONLY)):
        facts = with_secret(facts_at(step), CA, pair(other))
        assert missing(record_at(step), facts) == [WriteAuthority(CA, SecretContents(wanted, wanted[0]))]
    other_key = replace(pair(NEW, ETCD, OLD), signs=reference(OLD, ETCD))
    writes = missing(record_at(Step.SWITCH), with_secret(facts_at(Step.SWITCH), ETCD, other_key))
    assert writes == [WriteAuthority(ETCD, SecretContents(NEW_FIRST, NEW))]
    bundle = with_secret(facts_at(Step.SWITCH), CA, pair(NEW, CA, OLD))
    assert missing(record_at(Step.SWITCH), bundle) == [WriteAuthority(CA, SecretContents(NEW_ONLY, NEW))]


@pytest.mark.parametrize("client", [NoClientCertificate(), SignedByUnknown()])
@pytest.mark.parametrize("step", [*between(Step.PUBLISH_TRUST, Step.DROP_OLD), *BACK])
def test_a_kubeconfig_with_a_token_is_written_once(step: Step, client: KubeconfigClient) -> None:
    """Its client certificate, if it has one, is by neither CA: it never becomes another one."""
    facts = facts_at(step)
    assert isinstance(facts.kubeconfig, KubeconfigFacts)
    with_token = KubeconfigFacts(facts.kubeconfig.authorities, client)
    writes = missing(record_at(step), replace(facts, kubeconfig=with_token))
    assert not [one for one in writes if isinstance(one, WriteKubeconfig)]
    writes = missing(record_at(step), replace(facts, kubeconfig=replace(with_token, authorities=())))
    assert len([one for one in writes if isinstance(one, WriteKubeconfig)]) == 1


def test_a_kubeconfig_is_by_the_cas_of_the_step() -> None:
    record = record_at(Step.SWITCH)
    for held in (
        KubeconfigFacts((DIGEST[NEW], DIGEST[OLD]), SignedByKnown(DIGEST[OLD])),
        KubeconfigFacts((DIGEST[OLD], DIGEST[NEW]), SignedByKnown(DIGEST[NEW])),
    ):
        facts = replace(facts_at(Step.SWITCH), kubeconfig=held)
        assert missing(record, facts) == [WriteKubeconfig(NEW_FIRST, NEW)]


def test_etcds_trust_is_dropped_with_the_others() -> None:
    """The overlap lies before the step; an operator who skips it restarts KCP, which keeps its client of etcd."""
    record = record_at(Step.DROP_OLD)
    facts = facts_at(Step.DROP_OLD)
    for kind in (ETCD, PROXY):
        facts = with_secret(facts, kind, pair(NEW, kind, OLD))
    expected = [WriteAuthority(kind, SecretContents(NEW_ONLY, NEW)) for kind in (ETCD, PROXY)]
    assert missing(record, replace(facts, now=START)) == expected


def test_pruning() -> None:
    old = AuthenticationFacts((DIGEST[OLD], DIGEST[NEW]), ())
    for step, expected in ((Step.DROP_OLD, []), (Step.PRUNE, [PruneAuthentication()]), (Step.RESTORE_OLD, [])):
        assert missing(record_at(step), replace(facts_at(step), authentication=old)) == expected
    record = record_at(Step.PRUNE)
    for kind in AuthorityKind:
        assert holds_old(record, AuthenticationFacts((), (reference(OLD, kind).digest,)))
    assert not holds_old(record, AuthenticationFacts((DIGEST[NEW], "f" * 64), ("f" * 64,)))


def test_keys_are_deleted_at_the_end() -> None:
    forgotten = [DeleteKey(kind, OLD) for kind in (CA, ETCD, PROXY)]
    assert missing(record_at(Step.FORGET)) == forgotten, "tokens of the old service account key are still verified"
    assert missing(record_at(Step.DISCARD_NEW)) == [DeleteKey(kind, NEW) for kind in AuthorityKind]
    gone = with_pair(facts_at(Step.FORGET), CA, OLD, HeldCertificate(reference(OLD)))
    assert missing(record_at(Step.FORGET), gone) == forgotten[1:]
    unmade = record_at(Step.DISCARD_NEW, made=False)
    assert isinstance(unmade.authority(CA).new, NotMade)
    assert DeleteKey(CA, NEW) in missing(unmade), "it was made, and the record does not know it yet"


def test_hashes_for_pins() -> None:
    assert hashes(record_at(Step.PUBLISH_TRUST), NEW_FIRST) == (HASH[NEW], HASH[OLD])
