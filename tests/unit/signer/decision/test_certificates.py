"""From a request to its certificate, and from a journal entry to the same certificate again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestors.wire.names import Purpose
from signer.authority import IssuingSet, load_certificate_authority
from signer.decision.certificates import (
    Certificate,
    NotRepeatable,
    fits,
    journal_entry,
    plan,
    repeat,
    repeat_for_key,
    sign,
    signing_hash,
)
from signer.model.decision import Approve, Deferred
from signer.model.record import AttestedNode, JournalEntry
from signer.model.signing_request import SigningRequest
from signer.rules.machine import NoRecord
from signer.rules.request import first_requested_at, public_key_digest
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer import builders
from tests.unit.signer.builders import NODE, NOW, dns, ec_key, machine_facts, public_key_info, serving_manifest


@cache
def authority(number: int = 1, algorithm: EncryptionAlgorithm = EncryptionAlgorithm.ECDSA_P256) -> IssuingSet:
    del number
    made = new_cluster_certificate_authority(algorithm, now=NOW, duration=timedelta(days=30))
    return IssuingSet.of(load_certificate_authority(made.secret_data, now=NOW))


def renewed(key: ec.EllipticCurvePrivateKey, at: datetime) -> IssuingSet:
    """A CA certificate that was made for this key then."""
    made = new_cluster_certificate_authority(key=key, now=at)
    return IssuingSet.of(load_certificate_authority(made.secret_data, now=at))


ENTRY = builders.journal_entry(ca_cert_hash=signing_hash(authority(), Purpose.CLIENT))


def read(certificate: Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.pem)


async def issued(
    request: SigningRequest | None = None, chosen: IssuingSet | None = None
) -> tuple[SigningRequest, AttestedNode, JournalEntry, Certificate]:
    """A request with its certificate, and the record that would be written before approval."""
    request, chosen = request or builders.signing_request(), chosen or authority()
    facts = machine_facts(purpose=request.header.signer.purpose, created=first_requested_at(request, NoRecord(), NOW))
    issuance = plan(request, facts, chosen)
    certificate = await sign(issuance, chosen)
    entry = journal_entry(request, facts, issuance, certificate, chosen)
    return request, builders.record(journal=(entry,)), entry, certificate


class TestFits:
    def test_an_entry_of_this_ca_with_time_left_fits(self) -> None:
        assert fits(ENTRY, authority(), Purpose.CLIENT, NOW)

    @pytest.mark.parametrize(
        "entry",
        [
            pytest.param(replace(ENTRY, ca_cert_hash=signing_hash(authority(2), Purpose.CLIENT)), id="another CA"),
            pytest.param(replace(ENTRY, not_after=NOW - timedelta(seconds=1)), id="expired"),
            pytest.param(replace(ENTRY, not_after=NOW + timedelta(minutes=9)), id="nearly expired"),
            pytest.param(replace(ENTRY, not_after=NOW + timedelta(days=31)), id="outlives the CA that was issued anew"),
        ],
    )
    def test_an_entry_that_no_longer_fits_is_planned_again(self, entry: JournalEntry) -> None:
        assert not fits(entry, authority(), Purpose.CLIENT, NOW)


class TestSign:
    async def test_certificate_is_the_journals(self) -> None:
        request, _, entry, made = await issued()
        certificate = read(made)
        assert certificate.serial_number == entry.serial_number
        assert (certificate.not_valid_before_utc, certificate.not_valid_after_utc) == (
            entry.not_before,
            entry.not_after,
        )
        assert entry.not_after == NOW + timedelta(days=7) - timedelta(minutes=5)
        assert hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest() == entry.certificate_digest
        names = {attribute.oid: attribute.value for attribute in certificate.subject}
        assert names == {NameOID.COMMON_NAME: f"system:node:{NODE}", NameOID.ORGANIZATION_NAME: "system:nodes"}
        assert certificate.public_key() == ec_key().public_key()
        assert public_key_info(ec_key()) == request.certificate_request.subject_public_key_info
        assert (entry.csr_name, entry.csr_uid) == (request.header.name, request.header.uid)
        assert entry.created == NOW - timedelta(seconds=1)

    async def test_creation_that_nobody_can_read_is_now(self) -> None:
        request = builders.signing_request()
        request = replace(request, header=replace(request.header, created="yesterday"))
        assert (await issued(request))[2].created == NOW

    async def test_serving_certificate_has_the_names_that_were_judged(self) -> None:
        request = builders.signing_request(serving_manifest(dns(NODE)))
        assert request.header.signer.purpose is Purpose.SERVING
        certificate = read((await issued(request))[3])
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [NODE]

    async def test_slow_keys_sign_too(self) -> None:
        chosen = authority(3, EncryptionAlgorithm.RSA_4096)
        assert chosen.client.is_slow_to_sign
        assert read((await issued(chosen=chosen))[3]).serial_number

    async def test_certificate_that_would_be_a_bad_one_waits(self) -> None:
        """Never approved because signing cannot succeed: an approval cannot be taken back."""
        issuance = plan(builders.signing_request(), machine_facts(), authority())
        with pytest.raises(Deferred) as raised:
            await sign(replace(issuance, not_before=issuance.not_before - timedelta(days=300)), authority())
        assert raised.value.defer.reason == "InternalError"


class TestRepeat:
    @pytest.mark.parametrize("algorithm", [EncryptionAlgorithm.ECDSA_P256, EncryptionAlgorithm.RSA_2048])
    async def test_the_same_certificate_again(self, algorithm: EncryptionAlgorithm) -> None:
        chosen = authority(4, algorithm)
        request, record, entry, certificate = await issued(chosen=chosen)
        repeated = await repeat(request, machine_facts(record=record, now=NOW), record, entry, chosen)
        assert isinstance(repeated, Approve)
        assert repeated.certificate == certificate.pem
        assert (repeated.node_name, repeated.reason, repeated.entry) == (NODE, "Attested", entry)

    async def test_another_certificate_than_the_journals_is_planned_anew(self) -> None:
        request, record, entry, _ = await issued()
        other = replace(entry, certificate_digest="00" * 32)
        assert isinstance(
            await repeat(request, machine_facts(record=record, now=NOW), record, other, authority()), NotRepeatable
        )

    async def test_of_a_ca_certificate_that_was_renewed_for_its_key_is_planned_anew(self) -> None:
        """It begins before the CA's new certificate, so it cannot be made again; that must not be for ever."""
        key = ec_key()
        chosen = renewed(key, NOW)
        request, record, entry, _ = await issued(chosen=chosen)
        later = renewed(key, NOW + timedelta(hours=1))
        assert signing_hash(later, Purpose.CLIENT) == signing_hash(chosen, Purpose.CLIENT)
        assert isinstance(
            await repeat(request, machine_facts(record=record, now=NOW + timedelta(hours=1)), record, entry, later),
            NotRepeatable,
        )

    async def test_one_that_no_longer_fits_is_planned_anew(self) -> None:
        request, record, entry, _ = await issued()
        assert isinstance(
            await repeat(request, machine_facts(record=record, now=NOW), record, entry, authority(2)), NotRepeatable
        )
        late = entry.not_after - timedelta(minutes=9)
        assert isinstance(
            await repeat(request, machine_facts(record=record, now=late), record, entry, authority()), NotRepeatable
        )

    async def test_one_that_lives_longer_than_the_policy_lets_it_now_is_planned_anew(self) -> None:
        """A workload API server could keep it waiting from before the operator's floor."""
        request, record, entry, _ = await issued()
        facts = machine_facts(record=record, policy=builders.policy(certificates={"clientDuration": "1h"}))
        assert isinstance(await repeat(request, facts, record, entry, authority()), NotRepeatable)
        assert isinstance(await repeat_for_key(request, facts, record, authority()), NotRepeatable)
        assert plan(request, facts, authority()).not_after <= NOW + timedelta(hours=1)


class TestRepeatForKey:
    """Copies of a request get the certificate of the original, and no second one."""

    @staticmethod
    def copy_of(request: SigningRequest, **changes: Any) -> SigningRequest:
        copied = {"name": "copy", "uid": "uid-copy", "spec_digest": "00" * 32, **changes}
        return replace(request, header=replace(request.header, **copied))

    async def test_a_copy_gets_the_same_certificate(self) -> None:
        request, record, entry, certificate = await issued()
        facts = machine_facts(record=record)
        repeated = await repeat_for_key(self.copy_of(request), facts, record, authority())
        assert isinstance(repeated, Approve)
        assert (repeated.certificate, repeated.entry) == (certificate.pem, entry)

    async def test_a_renewal_with_the_same_key_gets_its_own(self) -> None:
        request, record, entry, _ = await issued()
        middle = entry.not_before + (entry.not_after - entry.not_before) / 2
        facts = machine_facts(record=record, now=middle - timedelta(seconds=1))
        assert isinstance(await repeat_for_key(request, facts, record, authority()), Approve)
        facts = machine_facts(record=record, now=middle)
        assert isinstance(await repeat_for_key(request, facts, record, authority()), NotRepeatable)

    async def test_a_copy_shortens_nobodys_life(self) -> None:
        """expirationSeconds is not covered by evidence: the copy that came first asked for twenty minutes."""
        honest = builders.signing_request()
        thiefs = self.copy_of(honest, expiration_seconds=1200)
        _, record, entry, _ = await issued(thiefs)
        assert entry.not_after <= NOW + timedelta(minutes=20)
        facts = machine_facts(record=record)
        assert isinstance(await repeat_for_key(honest, facts, record, authority()), NotRepeatable)
        assert plan(honest, facts, authority()).not_after > NOW + timedelta(days=6)

    async def test_copies_with_every_other_expiration_get_one_more(self) -> None:
        request, record, _, _ = await issued(self.copy_of(builders.signing_request(), expiration_seconds=600))
        facts = machine_facts(record=record)
        copy = self.copy_of(request, expiration_seconds=700)
        assert isinstance(await repeat_for_key(copy, facts, record, authority()), NotRepeatable)
        issuance = plan(copy, facts, authority())
        full = journal_entry(copy, facts, issuance, await sign(issuance, authority()), authority())
        record = replace(record, journal=(*record.journal, full))
        for seconds in (600, 700, 86400, 31536000):
            one = self.copy_of(request, expiration_seconds=seconds)
            repeated = await repeat_for_key(one, machine_facts(record=record), record, authority())
            assert isinstance(repeated, Approve)
            assert repeated.entry == full

    async def test_another_key_or_signer(self) -> None:
        request, record, entry, _ = await issued()
        for other in (
            replace(entry, public_key_digest="00" * 32),
            replace(entry, signer_name=builders.SERVING_SIGNER),
        ):
            changed = replace(record, journal=(other,))
            facts = machine_facts(record=changed)
            assert isinstance(await repeat_for_key(request, facts, changed, authority()), NotRepeatable)

    async def test_what_would_not_be_the_same_certificate(self) -> None:
        request, record, entry, _ = await issued()
        changed = replace(record, journal=(replace(entry, certificate_digest="00" * 32),))
        facts = machine_facts(record=changed)
        assert isinstance(await repeat_for_key(request, facts, changed, authority()), NotRepeatable)


class TestAskedSince:
    def test_a_copy_is_as_old_as_the_first_one(self) -> None:
        """Else a copy of an old request, posted now, would supersede the one that the node waits for."""
        request = builders.signing_request()
        first = NOW - timedelta(days=3)
        entry = builders.journal_entry(created=first, public_key_digest=public_key_digest(request))
        assert first_requested_at(request, builders.record(journal=(entry,)), NOW) == first
        assert first_requested_at(request, builders.record(), NOW) == NOW - timedelta(seconds=1)
        later = replace(entry, created=NOW)
        assert first_requested_at(request, builders.record(journal=(later,)), NOW) == NOW - timedelta(seconds=1)
