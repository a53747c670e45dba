from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from attestors.contract import Denied, NotProvableYet, Security, StillAllowed
from signer.authority.profiles import BACKDATE
from signer.model.cluster import LONG_AGO, ClusterKey
from signer.model.decision import Refused
from signer.model.reasons import Reason
from signer.model.record import HELD_AFTER_END, AttestedIdentity, record_of
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import CertificateCredential, NoCredentialNamed
from signer.rules.builtin_serving import (
    IN_FLIGHT,
    SLOW_CLOCK,
    BuiltinRequestFacts,
    BuiltinServingFacts,
    PairState,
    StandingFacts,
    posted_at,
    the_attested_machine,
    waits_for,
)
from signer.rules.checks import (
    BUILTIN_REQUEST_CHECKS,
    BUILTIN_SERVING_CHECKS,
    CLUSTER_CHECKS,
    STANDING_CHECKS,
    run_checks,
)
from signer.rules.machine import MachineGone, NoRecord
from tests.unit.signer.builders import (
    AS_NODE,
    BOOTSTRAP,
    CLIENT_SIGNER,
    COMMON_NAME,
    EXTENSION_REQUEST,
    NODE,
    NOW,
    ORGANIZATION,
    PROVIDER_ID,
    SERVING_SIGNER,
    alternative_names,
    attested_identity,
    builtin_serving_manifest,
    builtin_serving_request,
    cluster_view,
    dns,
    extension,
    journal_entry,
    machine_view,
    node_subject,
    oid,
    pkcs10,
    policy,
    provider_id_extension,
    rdn,
    record,
    rsa_key,
    sequence,
    set_of,
    tlv,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

NAMES = alternative_names(dns(NODE))
judge_request: Callable[[BuiltinRequestFacts], None] = all_of((*CLUSTER_CHECKS, *BUILTIN_REQUEST_CHECKS))
judge = all_of(BUILTIN_SERVING_CHECKS)


def request_facts(der: bytes | None = None, cluster: Any = None, **changes: Any) -> BuiltinRequestFacts:
    csr = builtin_serving_manifest(der, **changes)
    return BuiltinRequestFacts(builtin_serving_request(csr), cluster or cluster_view())


class TestTheRequestAlone:
    def test_as_kubelets_post_it(self) -> None:
        judge_request(request_facts())
        judge_request(request_facts(usages=("key encipherment", "digital signature", "server auth")))
        judge_request(request_facts(pkcs10(rsa_key("rsa-2048"), extensions=[NAMES])))

    def test_in_a_paused_cluster(self) -> None:
        moving = cluster_view(paused=True, deleting=True)
        assert deferred(judge_request, request_facts(cluster=moving)).reason == Reason.CLUSTER_PAUSED

    def test_in_a_cluster_that_is_moved(self) -> None:
        judge_request(request_facts(cluster=cluster_view(deleting=True)))
        moved = cluster_view(deleting=True, deleting_for_move=True)
        assert deferred(judge_request, request_facts(cluster=moved)).reason == Reason.CLUSTER_PAUSED

    @pytest.mark.parametrize(
        "requester",
        [
            BOOTSTRAP,
            ("system:admin", ("system:masters",)),
            ("system:serviceaccount:kube-system:x", ("system:nodes",)),
            (AS_NODE[0], ("system:authenticated",)),
            ("system:node:other", AS_NODE[1]),
            ("", ()),
        ],
    )
    def test_of_somebody_else(self, requester: Any) -> None:
        assert refused(judge_request, request_facts(requester=requester)).reason == Reason.REQUESTER_NOT_ALLOWED

    @pytest.mark.parametrize(
        "subject",
        [
            sequence(),
            sequence(rdn(ORGANIZATION, "system:nodes")),
            sequence(rdn(ORGANIZATION, "system:masters"), rdn(COMMON_NAME, AS_NODE[0])),
            sequence(
                rdn(ORGANIZATION, "system:nodes"), rdn(ORGANIZATION, "system:masters"), rdn(COMMON_NAME, AS_NODE[0])
            ),
            sequence(rdn(ORGANIZATION, "system:nodes"), rdn(COMMON_NAME, "kube-apiserver")),
        ],
    )
    def test_of_another_subject(self, subject: bytes) -> None:
        facts = request_facts(pkcs10(subject=subject, extensions=[NAMES]))
        assert refused(judge_request, facts).reason == Reason.INVALID_SUBJECT

    def test_of_another_nodes_subject(self) -> None:
        facts = request_facts(pkcs10(subject=node_subject("other"), extensions=[NAMES]))
        assert refused(judge_request, facts).reason == Reason.REQUESTER_NOT_ALLOWED

    @pytest.mark.parametrize(
        "usages",
        [
            (),
            ("server auth",),
            ("digital signature", "client auth"),
            ("digital signature", "server auth", "client auth"),
            ("digital signature", "server auth", "cert sign"),
            ("digital signature", "server auth", "any"),
        ],
    )
    def test_with_other_usages(self, usages: Any) -> None:
        assert refused(judge_request, request_facts(usages=usages)).reason == Reason.INVALID_USAGES

    @pytest.mark.parametrize(
        "extensions",
        [
            [],
            [provider_id_extension()],
            [alternative_names(dns(NODE), tlv(0x86, b"spiffe://x/y"))],
            [alternative_names(dns(NODE), tlv(0x81, b"a@b"))],
        ],
    )
    def test_with_other_names_or_none(self, extensions: Any) -> None:
        facts = request_facts(pkcs10(extensions=extensions))
        assert refused(judge_request, facts).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    @pytest.mark.parametrize(
        "authority",
        [
            extension("2.5.29.19", sequence(tlv(0x01, b"\xff"))),
            extension("2.5.29.15", tlv(0x03, b"\x02\x04")),
            extension("2.5.29.54", tlv(0x02, b"\x00")),
            extension("1.2.3.4", b"x", critical=True),
        ],
    )
    def test_for_an_authority(self, authority: bytes) -> None:
        facts = request_facts(pkcs10(extensions=[NAMES, authority]))
        assert refused(judge_request, facts).reason == Reason.FORBIDDEN_EXTENSION

    def test_with_an_unknown_attribute(self) -> None:
        attributes = [
            sequence(oid(EXTENSION_REQUEST), set_of(sequence(NAMES))),
            sequence(oid("1.2.840.113549.1.9.7"), set_of(tlv(0x0C, b"challenge"))),
        ]
        assert refused(judge_request, request_facts(pkcs10(attributes=attributes))).reason == Reason.FORBIDDEN_EXTENSION

    def test_with_a_weak_key(self) -> None:
        facts = request_facts(pkcs10(rsa_key("rsa-1024"), extensions=[NAMES]))
        assert refused(judge_request, facts).reason == Reason.UNACCEPTABLE_KEY

    def test_that_somebody_else_signed(self) -> None:
        facts = request_facts(pkcs10(signature=b"\x30\x06\x02\x01\x01\x02\x01\x01", extensions=[NAMES]))
        assert refused(judge_request, facts).reason == Reason.INVALID_SIGNATURE


class TestTheAttestedMachine:
    def test_found(self) -> None:
        found = the_attested_machine(NODE, record(), machine_view())
        assert (found.record, found.machine) == (record(), machine_view())

    def test_no_record(self) -> None:
        defer = deferred(lambda _: the_attested_machine(NODE, NoRecord(), MachineGone()), None)
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert NODE in defer.message

    def test_its_machine_is_gone(self) -> None:
        defer = deferred(lambda _: the_attested_machine(NODE, record(), MachineGone()), None)
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert "Machine team-a/prod-md-0-x7k2p, which no longer exists" in defer.message

    def test_what_is_waited_for(self) -> None:
        assert waits_for(NODE, NoRecord()) == (record_of(NODE),)
        assert waits_for(NODE, record()) == (record_of(NODE), PROVIDER_ID)


def facts(**changes: Any) -> BuiltinServingFacts:
    given = BuiltinServingFacts(
        node_name=NODE,
        dns_names=(NODE,),
        ip_addresses=(),
        credential=CertificateCredential(journal_entry().certificate_digest),
        created=NOW,
        cluster=cluster_view(),
        policy=policy(),
        record=record(),
        machine=machine_view(),
        operator_allows=True,
        pair=PairState.RESERVED,
        conflicting_names=frozenset(),
        serving=ServingFacts(),
        now=NOW,
    )
    return replace(given, **changes)


def not_attested(given: BuiltinServingFacts) -> str:
    defer = deferred(judge, given)
    assert defer.reason == Reason.NODE_NOT_ATTESTED
    return defer.message


class TestTheAttestation:
    def test_live(self) -> None:
        judge(facts())
        judge(facts(credential=NoCredentialNamed()))

    @pytest.mark.parametrize(
        "other",
        [
            record(node_name="other"),
            record(machine_view(cluster=ClusterKey("team-a", "other"))),
            record(machine_view(cluster=ClusterKey("team-b", "prod"))),
        ],
    )
    def test_of_another_node(self, other: Any) -> None:
        assert deferred(judge, facts(record=other)).reason == Reason.INTERNAL_ERROR

    def test_that_proved_nothing(self) -> None:
        insecure = record(identity="x")
        identity = AttestedIdentity("tpm", "x", Security.INSECURE)
        assert "proves nothing" in not_attested(facts(record=replace(insecure, identity=identity)))

    def test_by_an_attestor_that_is_no_longer_authorized(self) -> None:
        other = policy(authorizedAttestors=[{"name": "aws"}])
        assert "no longer authorizes attestor tpm" in not_attested(facts(policy=other))
        assert "no longer allows attestor tpm" in not_attested(facts(operator_allows=False))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"machine": machine_view(deleting=True)}, Reason.MACHINE_DELETING),
            ({"cluster": cluster_view(deleting=True)}, Reason.CLUSTER_DELETING),
        ],
    )
    def test_while_it_is_deleted(self, changes: dict[str, Any], reason: Reason) -> None:
        judge(facts(**changes))
        none = policy(certificates={"deletingDuration": "0s"})
        assert refused(judge, facts(**changes, policy=none)).reason == reason

    def test_of_a_paused_machine(self) -> None:
        assert deferred(judge, facts(machine=machine_view(paused=True))).reason == Reason.MACHINE_PAUSED

    def test_of_a_machine_with_another_node(self) -> None:
        assert deferred(judge, facts(machine=machine_view(node_ref="other"))).reason == Reason.NODE_REF_DISAGREES
        judge(facts(machine=machine_view(node_ref=NODE)))

    def test_of_a_machine_that_was_made_anew(self) -> None:
        anew = machine_view(uid="m-2")
        for created in (LONG_AGO, record().last_attestation):
            given = facts(machine=anew, cluster=cluster_view(created=created))
            assert f"was recreated since node {NODE} was attested" in not_attested(given)

    def test_of_a_machine_that_was_moved(self) -> None:
        """The Cluster was made anew with it, as by `clusterctl move`."""
        later = cluster_view(created=NOW + timedelta(seconds=1))
        judge(facts(machine=machine_view(uid="m-2"), cluster=later))

    def test_of_an_instance_whose_machine_came_since(self) -> None:
        instance = machine_view(kind="MachinePool", name="pool", uid="pool-1")
        judge(facts(record=record(instance), machine=machine_view(uid="m-2", owner_pool="pool")))

    def test_that_is_not_reserved(self) -> None:
        assert "not reserved" in not_attested(facts(pair=PairState.NOT_RESERVED))

    def test_whose_certificates_have_run_out(self) -> None:
        end = journal_entry().not_after
        judge(facts(now=end - timedelta(seconds=1)))
        assert "expired" in not_attested(facts(now=end, credential=NoCredentialNamed()))

    @pytest.mark.parametrize("entry", [journal_entry(signer_name=SERVING_SIGNER), journal_entry(not_after=NOW)])
    def test_without_a_valid_client_certificate(self, entry: Any) -> None:
        """The record's last_not_after covers serving certificates, and former identities', too."""
        assert "expired" in not_attested(facts(record=replace(record(), journal=(entry,))))

    def test_of_another_credential(self) -> None:
        assert refused(judge, facts(credential=CertificateCredential("00" * 32))).reason == Reason.FOREIGN_CREDENTIAL


class TestTheFormerNode:
    """The policy gave its name away while its certificates are valid."""

    LATER = NOW + timedelta(days=1)
    ENTRY = journal_entry(2, certificate_digest="11" * 32, decided=LATER, not_after=LATER + timedelta(days=7))
    RECORD = record().with_entry(ENTRY, machine=machine_view(), identity=attested_identity("ek:2"))

    FREE = journal_entry().not_after + IN_FLIGHT

    def asked(self, created: datetime, **changes: Any) -> BuiltinServingFacts:
        """As an API server says that names no credential."""
        given = {"record": self.RECORD, "credential": NoCredentialNamed(), "created": created, "now": created}
        return facts(**given | changes)

    def test_could_have_asked_where_no_credential_is_named(self) -> None:
        defer = deferred(judge, self.asked(self.LATER))
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert "2026-03-08 12:00 UTC" in defer.message
        judge(self.asked(self.FREE))

    @pytest.mark.parametrize("lain", [timedelta(0), timedelta(days=1)])
    def test_lay_in_wait_until_its_certificate_had_run_out(self, lain: timedelta) -> None:
        """What counts is when it asked; the API server may have taken a minute to take the request in."""
        for late in (-timedelta(minutes=10), timedelta(minutes=1)):
            created = journal_entry().not_after + late
            defer = deferred(judge, self.asked(created, now=self.FREE + lain))
            assert (defer.reason, defer.retry_after) == (Reason.NODE_NOT_ATTESTED, None)

    def test_and_an_api_server_whose_clock_is_ahead(self) -> None:
        """Its certificates are valid by our clock yet; it is judged again when they are not."""
        given = self.asked(self.FREE, now=self.FREE - timedelta(hours=1))
        assert deferred(judge, given).retry_after == timedelta(hours=1)
        judge(replace(given, now=self.FREE))

    def test_is_judged_again_when_the_last_of_its_certificates_has_run_out(self) -> None:
        earlier = journal_entry(3, not_after=self.LATER + timedelta(hours=1))
        given = replace(self.RECORD, journal=(*self.RECORD.journal, earlier))
        asked = self.asked(self.FREE, record=given, now=self.LATER)
        assert deferred(judge, asked).retry_after == self.FREE - self.LATER

    def test_waits_for_the_last_of_its_certificates(self) -> None:
        earlier = journal_entry(3, not_after=self.LATER + timedelta(hours=1))
        given = replace(self.RECORD, journal=(*self.RECORD.journal, earlier))
        assert "2026-03-08 12:00 UTC" in deferred(judge, self.asked(self.LATER, record=given)).message

    def test_did_not_ask_where_the_credential_is_named(self) -> None:
        judge(facts(record=self.RECORD, credential=CertificateCredential("11" * 32), now=self.LATER))
        foreign = CertificateCredential(journal_entry().certificate_digest)
        assert (
            refused(judge, facts(record=self.RECORD, credential=foreign, now=self.LATER)).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    @pytest.mark.parametrize("created", [LONG_AGO, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
    def test_asked_in_a_year_that_no_request_is_of(self, created: datetime) -> None:
        """A workload API server dates its requests as it likes."""
        assert "2026-03-08 12:00 UTC" in deferred(judge, self.asked(created, now=self.LATER)).message

    def test_may_have_a_certificate_that_was_dropped_from_the_journal(self) -> None:
        """A takeover, then so many requests of the new node that the former node's entry leaves the journal."""
        dropped = replace(self.RECORD, journal=(self.ENTRY,), dropped_not_after=journal_entry().not_after)
        defer = deferred(judge, self.asked(self.LATER, record=dropped))
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert "no longer has every certificate" in defer.message
        judge(self.asked(self.FREE + HELD_AFTER_END, record=dropped))
        judge(self.asked(self.LATER, record=dropped, credential=CertificateCredential("11" * 32)))

    def test_has_no_client_certificate(self) -> None:
        serving = journal_entry(1, signer_name=SERVING_SIGNER)
        given = replace(self.RECORD, journal=(serving, self.ENTRY))
        judge(self.asked(self.LATER, record=given))
        assert self.ENTRY.signer_name == CLIENT_SIGNER


class TestFromBeforeTheAttestation:
    """Nothing is known of who had the name before: the record may be gone since its certificates ran out."""

    @staticmethod
    def asked(created: datetime, **changes: Any) -> BuiltinServingFacts:
        return facts(credential=NoCredentialNamed(), created=created, **changes)

    def test_right_after_its_certificate(self) -> None:
        for since in (timedelta(0), timedelta(seconds=1), timedelta(days=1)):
            judge(self.asked(NOW + since))

    def test_it_was_there_before_the_certificate_was_asked_for(self) -> None:
        """By the API server's own clock: that it is ahead of ours makes nothing younger."""
        for ahead in (-timedelta(minutes=4), timedelta(0), timedelta(hours=1)):
            given = record(journal=(journal_entry(created=NOW + ahead),))
            defer = deferred(judge, self.asked(NOW + ahead - timedelta(seconds=1), record=given))
            assert (defer.reason, defer.retry_after) == (Reason.NODE_NOT_ATTESTED, None)
            assert "before node" in defer.message
            judge(self.asked(NOW + ahead, record=given))

    def test_the_first_of_its_certificates_counts(self) -> None:
        asked_for = [journal_entry(number, created=NOW - timedelta(minutes=5 - number)) for number in (1, 3)]
        given = record(journal=tuple(asked_for))
        judge(self.asked(NOW - timedelta(minutes=3), record=given))
        assert "before node" in not_attested(self.asked(NOW - timedelta(minutes=4, seconds=1), record=given))

    def test_the_certificate_was_asked_for_long_before_it_was_attested(self) -> None:
        waited = record(journal=(journal_entry(created=NOW - timedelta(hours=1)),))
        assert "before node" in not_attested(self.asked(NOW - SLOW_CLOCK - timedelta(seconds=1), record=waited))
        judge(self.asked(NOW - SLOW_CLOCK, record=waited))

    def test_what_others_had_asked_for_does_not_count(self) -> None:
        """Neither a former identity's, nor a serving certificate."""
        former = journal_entry(1, created=NOW - timedelta(minutes=4), not_after=NOW - timedelta(days=1))
        later = NOW + timedelta(seconds=1)
        own = (journal_entry(2, signer_name=SERVING_SIGNER, created=former.created), journal_entry(3, created=NOW))
        given = record(first_attestation=later, journal=(former, *(replace(entry, decided=later) for entry in own)))
        assert "before node" in not_attested(self.asked(NOW - timedelta(seconds=1), record=given))
        judge(self.asked(NOW, record=given))

    def test_where_the_credential_is_named_that_says_enough(self) -> None:
        judge(facts(created=LONG_AGO))

    @pytest.mark.parametrize(("said", "created"), [("2026-03-01T12:00:00Z", NOW), ("", LONG_AGO), ("soon", LONG_AGO)])
    def test_a_time_that_cannot_be_read_is_before_all_others(self, said: str, created: datetime) -> None:
        request = builtin_serving_request()
        assert posted_at(replace(request, header=replace(request.header, created=said))) == created

    def test_clocks_may_differ_as_far_as_certificates_are_dated_back(self) -> None:
        assert SLOW_CLOCK == BACKDATE == timedelta(minutes=5)
        assert timedelta(minutes=5) == IN_FLIGHT
        assert SLOW_CLOCK + IN_FLIGHT == HELD_AFTER_END == timedelta(minutes=10)


class TestNames:
    @pytest.mark.parametrize("name", ["kubernetes", "kubernetes.default.svc", "localhost", "api.example.com", "other"])
    def test_smuggled(self, name: str) -> None:
        given = facts(dns_names=(NODE, name), cluster=cluster_view(control_plane_host="api.example.com"))
        assert refused(judge, given).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    def test_of_another_machine_too(self) -> None:
        assert deferred(judge, facts(conflicting_names=frozenset({NODE}))).reason == Reason.MACHINE_AMBIGUOUS

    def test_no_attestor_vouches(self) -> None:
        assert facts().proven is None


def test_who_asks_is_looked_at_before_the_key_is() -> None:
    """A request of a stranger costs no signature."""
    facts = request_facts(pkcs10(signature=b"x", extensions=[NAMES]), requester=BOOTSTRAP)
    with pytest.raises(Refused, match="RequesterNotAllowed"):
        run_checks(BUILTIN_REQUEST_CHECKS, facts)


class TestTheIdentityNow:
    """What its attestor says of it now."""

    judge = staticmethod(all_of(STANDING_CHECKS))

    def test_still_allowed(self) -> None:
        self.judge(StandingFacts(record(), "", StillAllowed()))

    def test_denied_since(self) -> None:
        deny = refused(self.judge, StandingFacts(record(), "", Denied("EndorsementKeyDenied", "on the deny list")))
        assert (deny.reason, deny.message) == ("EndorsementKeyDenied", "on the deny list")

    def test_not_known(self) -> None:
        waits = NotProvableYet("OperatorFileUnusable", "no list", timedelta(seconds=9))
        defer = deferred(self.judge, StandingFacts(record(), "", waits))
        assert (defer.reason, defer.message) == ("OperatorFileUnusable", "no list")
        assert (defer.retry_after, defer.grows) == (timedelta(seconds=9), True)
