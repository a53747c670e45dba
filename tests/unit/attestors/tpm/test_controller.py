"""The server plugin: in its order, each step lets an honest chip pass, and stops an attack."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.contract import (
    AttestorSettings,
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    NoClaimedMachine,
    NotProvableYet,
    Plausible,
    VerifiedIdentity,
)
from attestors.tpm import plugin, wire
from attestors.tpm.challenge import LIFETIME, Token, cluster_identifier, key_identifier
from attestors.tpm.constants import HashAlgorithm, ObjectAttribute
from attestors.tpm.endorsement import load_endorsement_authorities
from attestors.tpm.presented_keys import AcceptedKeys
from attestors.tpm.quote import PCRPolicy
from attestors.tpm.selection import PCRSelection
from attestors.tpm.settings import TPMSettings
from attestors.tpm.trust import Trust
from attestors.wire.binding import Binding, BindingMismatch, CACertHash, ProvenBinding
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import CHALLENGE_EXPIRED, CHALLENGE_OF_ANOTHER_CLUSTER, CHIP_ANNOTATION, Purpose
from signer.authority.der import encode, integer, object_identifier, sequence
from tests.support import endorsement_certificates as write
from tests.unit.attestors.support import (
    NOW,
    PATIENT,
    PROVIDER_ID,
    binding_for,
)
from tests.unit.attestors.tpm.endorsement.support import ENDORSEMENT, endorsement, intermediate, root
from tests.unit.attestors.tpm.fake_tpm import (
    UNRESTRICTED,
    FakeTPM,
    attestation_certificate,
    authority_certificate,
    expired_certificate,
    self_signed_root,
    text,
)
from tests.unit.attestors.tpm.fixtures import (
    ANY_KEYS,
    AUTHORITIES,
    BINDING,
    CERTIFIED,
    CHIP,
    DESK,
    KEYS,
    MAKER,
    NO_SETTINGS,
    OTHER,
    PCR_7,
    FixedTrust,
    PluginHarness,
    machine_of,
    no_keys,
)
from tests.unit.attestors.tpm.support import RSASSA, attestation_area, ecc_key, endorsement_area, rsa_key, value_of


def without(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}


class TestHonest:
    @pytest.mark.parametrize("title", ["L-1", "L-2", "H-3"])
    @pytest.mark.parametrize("purpose", list(Purpose), ids=lambda purpose: purpose.name)
    @pytest.mark.parametrize("settings", [NO_SETTINGS, AUTHORITIES], ids=["inventory", "authorities"])
    def test_a_chip_is_challenged_and_then_known(self, title: str, purpose: Purpose, settings: TPMSettings) -> None:
        chip = FakeTPM.new(title=title).certified()
        harness = PluginHarness(settings, machine_of(chip.fingerprint), purpose=purpose)
        answer = chip.answer(harness.challenge(chip), BINDING)
        outcome = harness.ask(answer, csr_uid="second")
        assert isinstance(outcome, VerifiedIdentity)
        assert (outcome.provider_id, outcome.identity) == (PROVIDER_ID, f"tpm:{chip.fingerprint}")
        assert type(outcome.binding) is ProvenBinding
        assert outcome.binding.value == BINDING.value
        assert (outcome.node_names, outcome.dns_names, outcome.ip_addresses) == ((), (), ())

    def test_with_an_rsa_attestation_key(self) -> None:
        chip = CHIP.but(attestation=rsa_key(), attestation_area=attestation_area(), scheme=RSASSA)
        assert isinstance(DESK.ask(chip.answer(DESK.challenge(chip), BINDING)), VerifiedIdentity)

    def test_the_chain_may_come_from_the_chip(self) -> None:
        authorities = load_endorsement_authorities(roots=[root()], intermediates=[])
        harness = DESK.but(settings=replace(NO_SETTINGS, trust=FixedTrust(Trust(authorities))))
        assert isinstance(harness.ask(CHIP.but(chain=intermediate()).first()), ChallengeIssued)
        assert isinstance(harness.ask(CHIP.first()), NotProvableYet)

    def test_an_unrequired_certificate_is_not_verified(self) -> None:
        chip = CHIP.but(certificate=b"none at all", chain=b"x" * 9000)
        assert isinstance(DESK.ask(chip.first()), ChallengeIssued)

    def test_nothing_is_remembered(self) -> None:
        """Another replica, or the same after a restart, takes the answer."""
        answer = CHIP.answer(DESK.challenge(), BINDING)
        for harness in (DESK, PluginHarness(), DESK):
            assert isinstance(harness.ask(answer, csr_uid="second"), VerifiedIdentity)

    def test_a_challenge_says_what_to_quote(self) -> None:
        selection = PCRSelection.parse("sha256:7+sha384:0")
        harness = DESK.but(settings=replace(NO_SETTINGS, selection=selection))
        challenge = harness.challenge(csr_uid="abc")
        asked = json.loads(challenge)
        assert asked[wire.PCR_SELECTION_KEY] == str(selection)
        assert asked[wire.TOKEN_KEY] == str(Token.issue("abc", DESK.cluster_uid, NOW).under(KEYS[0]))
        assert isinstance(harness.ask(CHIP.answer(challenge, BINDING)), VerifiedIdentity)

    def test_it_is_made_under_the_newest_key(self) -> None:
        newest = DESK.but(keys=lambda: KEYS[:1])
        assert CHIP.open(DESK.challenge()) == CHIP.open(newest.challenge())


class TestFields:
    """Step 1."""

    @pytest.mark.parametrize("name", wire.IDENTITY_FIELDS)
    def test_what_is_needed_must_be_there(self, name: str) -> None:
        with pytest.raises(MalformedEvidence, match=f"field {name} is missing"):
            DESK.ask(without(CHIP.first(), name))

    @pytest.mark.parametrize("name", [name for name in wire.ANSWER_FIELDS if name != wire.CHALLENGE_TOKEN_FIELD])
    def test_an_incomplete_answer_is_malformed(self, name: str) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        with pytest.raises(MalformedEvidence, match=f"field {name} is missing"):
            DESK.ask(without(answer, name))
        with pytest.raises(MalformedEvidence, match="1 unknown fields"):
            DESK.ask({**CHIP.first(), name: answer[name]})

    def test_unknown_fields_are_refused(self) -> None:
        with pytest.raises(MalformedEvidence, match="1 unknown fields"):
            DESK.ask({**CHIP.first(), "ekNonce": "AA=="})

    @pytest.mark.parametrize(
        ("name", "maximum"),
        [
            (wire.ENDORSEMENT_PUBLIC_FIELD, wire.MAXIMUM_PUBLIC_BYTES),
            (wire.ATTESTATION_PUBLIC_FIELD, wire.MAXIMUM_PUBLIC_BYTES),
            (wire.ENDORSEMENT_CERTIFICATE_FIELD, wire.MAXIMUM_CERTIFICATE_BYTES),
            (wire.ENDORSEMENT_CHAIN_FIELD, wire.MAXIMUM_CHAIN_BYTES),
            (wire.QUOTE_FIELD, wire.MAXIMUM_QUOTE_BYTES),
            (wire.QUOTE_SIGNATURE_FIELD, wire.MAXIMUM_SIGNATURE_BYTES),
            (wire.PCR_VALUES_FIELD, wire.MAXIMUM_PCR_VALUES_BYTES),
        ],
    )
    def test_each_is_bounded_and_canonical(self, name: str, maximum: int) -> None:
        answer = CHIP.answer(CERTIFIED.challenge(), BINDING)
        for value in (text(bytes(maximum + 1)), "", "A", "AB==", "\u00fc", "AA==\n"):
            with pytest.raises(MalformedEvidence, match=name):
                CERTIFIED.ask({**answer, name: value})

    def test_bounds_of_the_pcr_values_leave_room_for_every_register(self) -> None:
        assert sum(bank.digest_bytes for bank in HashAlgorithm) * 24 <= wire.MAXIMUM_PCR_VALUES_BYTES

    @pytest.mark.parametrize(
        ("chip", "fault"),
        [
            pytest.param(CHIP.but(attestation_area=attestation_area(attributes=UNRESTRICTED)), "restricted", id="ak"),
            pytest.param(CHIP.but(attestation_area=CHIP.endorsement_area), "attestation key", id="ek-as-ak"),
            pytest.param(CHIP.but(endorsement_area=CHIP.attestation_area), "endorsement key", id="ak-as-ek"),
            pytest.param(
                CHIP.but(endorsement_area=endorsement_area(attributes=ObjectAttribute.DECRYPT)),
                "endorsement key",
                id="any-decryption-key-as-ek",
            ),
        ],
    )
    def test_a_key_of_another_kind_is_refused(self, chip: FakeTPM, fault: str) -> None:
        reason, message = DESK.denial(chip.first())
        assert reason == "UnsuitableTPMKey"
        assert fault in message

    @pytest.mark.parametrize("name", wire.IDENTITY_FIELDS)
    def test_bytes_behind_a_key_are_refused(self, name: str) -> None:
        fields = CHIP.first()
        with pytest.raises(MalformedEvidence, match="TPMT_PUBLIC: has bytes after"):
            DESK.ask({**fields, name: text(base64.b64decode(fields[name]) + b"\0")})

    @pytest.mark.parametrize("name", wire.IDENTITY_FIELDS)
    def test_an_oversize_modulus_is_refused(self, name: str) -> None:
        area = attestation_area().encode()
        start = area.index(bytes.fromhex("0800 00000000 0100"))
        oversize = area[:start] + bytes.fromhex("2000 00000000 0400") + b"\xff" * 1024
        for size in (1000, wire.MAXIMUM_PUBLIC_BYTES):
            with pytest.raises(MalformedEvidence, match="8192"):
                DESK.ask({**CHIP.first(), name: text(oversize[:size])})

    @pytest.mark.parametrize("name", wire.IDENTITY_FIELDS)
    def test_sha1_is_refused(self, name: str) -> None:
        fields = CHIP.first()
        area = base64.b64decode(fields[name]).replace(b"\0\x23\0\x0b", b"\0\x23\0\x04", 1)
        with pytest.raises(MalformedEvidence, match="uses SHA-1"):
            DESK.ask({**fields, name: text(area)})


ANY_TEMPLATE: Final = NO_SETTINGS.accepted.templates
GOOGLE_INSTANCE: Final = "1.3.6.1.4.1.11129.2.1.21"
MODEL: Final = write.tpm_attributes("id:12345678", "M 1", "id:1")


MODEL_ATTRIBUTES: Final = tuple(
    sequence(object_identifier(kind), encode(0x0C, value.encode("ascii"))) for kind, value in MODEL
)


def serial_number(encoded: bytes) -> bytes:
    """The attribute with that value."""
    return sequence(object_identifier("2.5.4.5"), encoded)


def instance(project_number: int, instance_id: int) -> bytes:
    """As Google describes the virtual machine."""
    zone, project = (encode(0x0C, text.encode()) for text in ("zone", "project"))
    return sequence(zone, integer(project_number), project, integer(instance_id))


class TestTemplates:
    """Step 2."""

    RSA_ALONE = CERTIFIED.but(settings=replace(AUTHORITIES, accepted=AcceptedKeys()))

    def test_one_that_the_operator_accepts(self) -> None:
        chip = CHIP.with_another_key("L-1").certified()
        assert isinstance(self.RSA_ALONE.but(machine=machine_of(chip.fingerprint)).ask(chip.first()), ChallengeIssued)

    @pytest.mark.parametrize("title", ["L-2", "H-1", "H-3"])
    def test_another_key_of_the_same_chip(self, title: str) -> None:
        """Whatever a source says of it, and whoever certified it: a chip would be two machines."""
        chip = CHIP.but() if title == "L-2" else CHIP.with_another_key(title).certified()
        harness = self.RSA_ALONE.but(machine=machine_of(chip.fingerprint))
        reason, message = harness.denial(chip.first())
        assert reason == "EndorsementKeyTemplateNotAllowed"
        assert f"({title})" in message
        assert "this controller accepts rsa-2048: " in message
        assert isinstance(harness.pre_filter(chip.first()), Denied)


INSTANCE: Final = (*ENDORSEMENT, write.extension(GOOGLE_INSTANCE, instance(7, 42)))


class TestChips:
    """Keys of one chip, as far as its certificates name it."""

    SUBJECTS = CERTIFIED.but(
        settings=replace(AUTHORITIES, accepted=AcceptedKeys(ANY_TEMPLATE, subjects_name_chips=True))
    )

    def name(self, harness: PluginHarness, chip: FakeTPM) -> tuple[str, str]:
        harness = harness.but(machine=machine_of(chip.fingerprint))
        outcome = harness.ask(chip.answer(harness.challenge(chip), BINDING))
        assert isinstance(outcome, VerifiedIdentity)
        return outcome.hardware, outcome.annotations[CHIP_ANNOTATION]

    def test_two_keys_of_one_virtual_machine(self) -> None:
        names = {self.name(CERTIFIED, chip.certified(extensions=INSTANCE)) for chip in (CHIP, OTHER)}
        ((hardware, annotation),) = names
        assert hardware == annotation
        assert re.fullmatch("chip:sha256:[0-9a-f]{64}", hardware)
        another = (*ENDORSEMENT, write.extension(GOOGLE_INSTANCE, instance(7, 43)))
        assert self.name(CERTIFIED, CHIP.certified(extensions=another)) not in names

    def test_nothing_is_named(self) -> None:
        """As of most manufacturers: the model alone, which many chips have."""
        for chip in (CHIP, CHIP.certified(extensions=(*ENDORSEMENT, write.tpm_name(write.name(*MODEL))))):
            assert self.name(self.SUBJECTS, chip) == ("", "NotNamed")

    def test_a_serial_number_beside_the_model(self) -> None:
        names = [
            self.name(CERTIFIED, chip.certified(extensions=(*ENDORSEMENT, write.tpm_name(write.name(*MODEL, serial)))))
            for chip, serial in ((CHIP, ("2.5.4.5", "1")), (OTHER, ("2.5.4.5", "1")), (OTHER, ("2.5.4.5", "2")))
        ]
        assert names[0] == names[1] != names[2]
        assert names[0][0].startswith("chip:sha256:")

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (b"\x0c\x02\x01\x02", b"\x0c\x02\x01\x03"),
            (b"\x04\x02\x01\x02", b"\x04\x02\x01\x03"),
            (b"\x13\x81\x96" + b"0" * 149 + b"1", b"\x13\x81\x96" + b"0" * 149 + b"2"),
        ],
        ids=["not printable", "no text", "long"],
    )
    def test_serial_numbers_that_look_alike_are_those_of_two_chips(self, one: bytes, other: bytes) -> None:
        """Otherwise the owner of one chip would keep the others out, and all would be denied together."""
        names = set()
        for chip, number in ((CHIP, one), (OTHER, other)):
            described = sequence(*(encode(0x31, attribute) for attribute in (*MODEL_ATTRIBUTES, serial_number(number))))
            names.add(self.name(CERTIFIED, chip.certified(extensions=(*ENDORSEMENT, write.tpm_name(described)))))
        assert len(names) == 2
        assert ("", "NotNamed") not in names

    @pytest.mark.parametrize("blank", [b"\x13\x00", b"\x13\x02  "], ids=["empty", "spaces"])
    def test_a_blank_serial_number_names_no_chip(self, blank: bytes) -> None:
        described = sequence(*(encode(0x31, attribute) for attribute in (*MODEL_ATTRIBUTES, serial_number(blank))))
        chip = CHIP.certified(extensions=(*ENDORSEMENT, write.tpm_name(described)))
        assert self.name(CERTIFIED, chip) == ("", "NotNamed")

    def test_subjects_count_only_if_the_operator_says_so(self) -> None:
        """Some CAs write the same subject for each chip."""
        subject = write.common_name("vm-1:6f0c2a6e-2c4b-4a4e-9a55-9d0a3a1f7b11")
        one, two = (chip.certified(subject=subject) for chip in (CHIP, OTHER))
        assert self.name(self.SUBJECTS, one) == self.name(self.SUBJECTS, two) != ("", "NotNamed")
        assert self.name(CERTIFIED, one) == ("", "NotNamed")
        other = CHIP.certified(subject=write.common_name("vm-2:6f0c2a6e-2c4b-4a4e-9a55-9d0a3a1f7b11"))
        assert self.name(self.SUBJECTS, other) != self.name(self.SUBJECTS, one)

    def test_a_denied_chip_with_any_of_its_keys(self) -> None:
        name, _ = self.name(CERTIFIED, CHIP.certified(extensions=INSTANCE))
        settings = replace(NO_SETTINGS, trust=FixedTrust(Trust(MAKER, frozenset({name}))))
        for chip in (CHIP, OTHER):
            harness = DESK.but(settings=settings, machine=machine_of(chip.fingerprint))
            assert isinstance(harness.ask(chip.first()), ChallengeIssued)
            reason, message = harness.denial(chip.certified(extensions=INSTANCE).first())
            assert (reason, name in message) == ("EndorsementKeyDenied", True)

    def test_a_name_in_a_certificate_that_nobody_verified_is_none(self) -> None:
        assert self.name(DESK, CHIP.certified(extensions=INSTANCE)) == ("", "NotNamed")


class TestDenied:
    """Step 2."""

    DESK = CERTIFIED.but(settings=replace(NO_SETTINGS, trust=FixedTrust(Trust(MAKER, frozenset({CHIP.fingerprint})))))

    def test_one_that_is_not_on_the_list(self) -> None:
        assert isinstance(self.DESK.but(machine=machine_of(OTHER.fingerprint)).ask(OTHER.first()), ChallengeIssued)

    def test_one_that_is(self) -> None:
        reason, message = self.DESK.denial(CHIP.first())
        assert reason == "EndorsementKeyDenied"
        assert CHIP.fingerprint in message

    def test_before_its_certificate_and_its_machine_are_looked_at(self) -> None:
        harness = self.DESK.but(machine=NoClaimedMachine())
        for chip in (CHIP.but(certificate=b"none at all"), CHIP.but(certificate=b""), CHIP):
            assert harness.denial(chip.first())[0] == "EndorsementKeyDenied"

    def test_an_answer_that_was_under_way_comes_too_late(self) -> None:
        answer = CHIP.answer(CERTIFIED.challenge(), BINDING)
        assert isinstance(CERTIFIED.ask(answer), VerifiedIdentity)
        assert self.DESK.denial(answer)[0] == "EndorsementKeyDenied"


CERTIFICATE_ATTACKS: Final = [
    pytest.param(CHIP.but(certificate=OTHER.certificate), "belongs to another TPM", id="another-chips"),
    pytest.param(CHIP.but(certificate=authority_certificate(CHIP)), "certificate authority", id="authority"),
    pytest.param(CHIP.but(certificate=self_signed_root(CHIP)), "certificate authority", id="root"),
    pytest.param(CHIP.but(certificate=root()), "belongs to another TPM", id="the-operators-root"),
    pytest.param(CHIP.but(certificate=attestation_certificate(CHIP)), "attestation key", id="attestation-key"),
    pytest.param(CHIP.but(certificate=expired_certificate(CHIP)), "expired on 2025-01-01", id="expired"),
    pytest.param(CHIP.but(certificate=b"none at all"), "", id="no-certificate"),
    pytest.param(CHIP.but(certificate=endorsement(CHIP.endorsement, ecc_key(number=7))), "", id="forged-signature"),
    pytest.param(
        CHIP.but(certificate=endorsement(CHIP.endorsement, algorithm=write.SHA1_ECDSA)), "SHA-1", id="sha1-signature"
    ),
]


class TestCertificate:
    """Step 3."""

    @pytest.mark.parametrize(("chip", "fault"), CERTIFICATE_ATTACKS)
    def test_what_is_not_the_chips_certificate_is_refused(self, chip: FakeTPM, fault: str) -> None:
        for machine in (CERTIFIED.machine, NoClaimedMachine(), machine_of(OTHER.fingerprint)):
            reason, message = CERTIFIED.but(machine=machine, keys=no_keys).denial(chip.first())
            assert reason == "EndorsementCertificateRefused"
            assert fault in message

    def test_the_certificate_is_verified_at_the_time_of_the_request(self) -> None:
        chip = CHIP.certified(not_before=NOW - timedelta(days=1), not_after=NOW + timedelta(days=1))
        assert isinstance(CERTIFIED.ask(chip.first()), ChallengeIssued)
        assert CERTIFIED.but(now=NOW + timedelta(days=2)).denial(chip.first())[0] == "EndorsementCertificateRefused"

    def test_one_that_is_not_valid_yet_waits(self) -> None:
        """As on a controller whose clock is behind: nothing is wrong for good."""
        chip = CHIP.certified(not_before=NOW + timedelta(days=1))
        outcome = CERTIFIED.but(keys=no_keys).ask(chip.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementCertificateNotYetValid"
        assert "check the controller's clock" in outcome.message

    def test_a_chain_of_the_chips_that_cannot_be_read_is_not_needed(self) -> None:
        assert isinstance(CERTIFIED.ask(CHIP.but(chain=b"none at all").first()), ChallengeIssued)

    def test_without_one_there_is_nothing_to_verify(self) -> None:
        reason, message = CERTIFIED.denial(CHIP.but(certificate=b"").first())
        assert reason == "EndorsementCertificateMissing"
        assert "presents no endorsement certificate" in message

    def test_intermediates_alone_are_none(self) -> None:
        chip = CHIP.but(certificate=b"", chain=CHIP.certificate)
        assert CERTIFIED.denial(chip.first())[0] == "EndorsementCertificateMissing"

    def test_an_authority_that_the_operator_may_add_is_waited_for(self) -> None:
        chip = CHIP.certified(issuer=write.common_name("Somebody else"))
        outcome = CERTIFIED.but(keys=no_keys).ask(chip.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementAuthorityMissing"
        assert "Somebody else" in outcome.message

    def test_an_authority_that_has_expired_is_waited_for(self) -> None:
        expired = root(not_after=datetime(2025, 1, 1, tzinfo=UTC))
        for accepted, expected in ((False, NotProvableYet), (True, ChallengeIssued)):
            authorities = load_endorsement_authorities(
                roots=[expired], intermediates=[intermediate()], accept_expired=accepted
            )
            harness = DESK.but(settings=replace(NO_SETTINGS, trust=FixedTrust(Trust(authorities))))
            assert isinstance(harness.ask(CHIP.first()), expected)


class TestOwnership:
    """Step 4. Any genuine TPM gets as far as here."""

    @pytest.mark.parametrize("harness", [DESK, CERTIFIED], ids=["inventory", "authorities"])
    def test_another_machines_chip_is_refused(self, harness: PluginHarness) -> None:
        reason, message = harness.but(keys=no_keys).denial(OTHER.first())
        assert reason == "EndorsementKeyMismatch"
        assert "Machine worker-1 has another TPM" in message
        assert OTHER.fingerprint in message
        assert CHIP.fingerprint not in message

    @pytest.mark.parametrize(
        "machine",
        [NoClaimedMachine(), ClaimedMachine("worker-1", {}), machine_of("unreadable")],
        ids=["no-machine", "nobody-said", "unreadable"],
    )
    @pytest.mark.parametrize("harness", [DESK, CERTIFIED], ids=["inventory", "authorities"])
    def test_an_unassigned_key_is_waited_for(
        self, harness: PluginHarness, machine: ClaimedMachine | NoClaimedMachine
    ) -> None:
        outcome = harness.but(machine=machine, keys=no_keys).ask(CHIP.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementKeyUnknown"
        assert outcome.message.endswith(f"the request shows {CHIP.fingerprint}")

    def test_an_answer_is_verified_against_the_current_assignment(self) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        assert DESK.but(machine=machine_of(OTHER.fingerprint)).denial(answer)[0] == "EndorsementKeyMismatch"
        assert isinstance(DESK.but(machine=NoClaimedMachine()).ask(answer), NotProvableYet)


class TestKeys:
    """Step 7 needs keys; the controller may not have them yet."""

    def test_without_them_the_core_has_the_word(self) -> None:
        class NotNow(Exception):
            pass

        def keys() -> tuple[bytes, ...]:
            raise NotNow

        answer = CHIP.answer(DESK.challenge(), BINDING)
        for fields in (CHIP.first(), answer):
            with pytest.raises(NotNow):
                DESK.but(keys=keys).ask(fields)

    def test_an_answer_to_the_key_before_is_good(self) -> None:
        answer = CHIP.answer(DESK.but(keys=lambda: KEYS[1:]).challenge(), BINDING)
        assert isinstance(DESK.ask(answer), VerifiedIdentity)

    def test_an_answer_under_an_unknown_key_waits_until_the_token_expires(self) -> None:
        """Rotated twice meanwhile, or so newly that this replica has not read it yet: the node is not to blame."""
        answer = CHIP.answer(DESK.but(keys=lambda: (b"o" * 32, *KEYS)).challenge(), BINDING)
        outcome = DESK.ask(answer)
        assert isinstance(outcome, NotProvableYet)
        assert (outcome.reason, outcome.retry_after) == ("ChallengeKeysMissing", timedelta(minutes=5))
        outcome = DESK.but(now=NOW + timedelta(minutes=3)).ask(answer)
        assert isinstance(outcome, NotProvableYet)
        assert outcome.retry_after == timedelta(minutes=2)
        assert isinstance(DESK.but(keys=lambda: (KEYS[0], b"o" * 32)).ask(answer), VerifiedIdentity)
        assert DESK.but(now=NOW + timedelta(minutes=5)).denial(answer)[0] == CHALLENGE_EXPIRED

    @pytest.mark.parametrize("identifier", [key_identifier(KEYS[0]), key_identifier(KEYS[1])])
    def test_an_answer_that_names_another_than_it_was_made_under_is_wrong(self, identifier: str) -> None:
        answer = CHIP.answer(DESK.but(keys=lambda: (b"o" * 32,)).challenge(), BINDING)
        token = replace(Token.parse(answer[wire.CHALLENGE_TOKEN_FIELD]), key_identifier=identifier)
        with pytest.raises(BindingMismatch, match="made for another key, cluster or signer"):
            DESK.ask({**answer, wire.CHALLENGE_TOKEN_FIELD: str(token)})

    def test_a_malformed_quote_is_denied_even_under_an_unknown_key(self) -> None:
        answer = CHIP.answer(DESK.but(keys=lambda: (b"o" * 32,)).challenge(), BINDING)
        signature = base64.b64decode(answer[wire.QUOTE_SIGNATURE_FIELD])
        wrong = base64.b64encode(signature[:-1] + bytes([signature[-1] ^ 1])).decode()
        assert DESK.denial({**answer, wire.QUOTE_SIGNATURE_FIELD: wrong})[0] == "QuoteRefused"

    def test_no_keys_at_all_prove_nothing(self) -> None:
        """Nor do they deny: the node is not to blame."""
        for fields in (CHIP.first(), CHIP.answer(DESK.challenge(), BINDING)):
            outcome = DESK.but(keys=tuple).ask(fields)
            assert isinstance(outcome, NotProvableYet)
            assert outcome.reason == "ChallengeKeysMissing"

    @pytest.mark.parametrize("uid", ["a b", "a.b", "\u00fc", "x" * 129])
    def test_a_uid_that_no_api_server_gives_is_refused(self, uid: str) -> None:
        outcome = DESK.ask(CHIP.first(), csr_uid=uid)
        assert isinstance(outcome, Denied)
        assert outcome.reason == "UnusableRequestUID"


class TestAnswer:
    """Step 5."""

    @pytest.mark.parametrize("token", ["", "x", "x.1.2", "x" * 300, "first.99999999999999", "first.1 "])
    def test_a_token_of_another_form_is_malformed(self, token: str) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        with pytest.raises(MalformedEvidence):
            DESK.ask({**answer, wire.CHALLENGE_TOKEN_FIELD: token})

    def test_it_is_good_until_the_very_second(self) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        in_time = DESK.but(now=NOW + LIFETIME - timedelta(microseconds=1))
        assert isinstance(in_time.ask(answer), VerifiedIdentity)
        reason, message = DESK.but(now=NOW + LIFETIME).denial(answer)
        assert reason == "ChallengeExpired"  # after which the node asks again at once: it may have had to wait
        assert "2026-01-02T03:09:05Z" in message

    @pytest.mark.parametrize("later", [1, 300])
    def test_a_later_expiry_made_up_by_the_node(self, later: int) -> None:
        challenge = DESK.challenge()
        issued = Token.parse(json.loads(challenge)["token"])
        token = str(replace(issued, expiry=issued.expiry + later))
        answer = CHIP.answer(challenge, BINDING, token=token)
        with pytest.raises(BindingMismatch):
            DESK.ask(answer)

    @pytest.mark.parametrize("expiry", [253_402_300_800, 999_999_999_999])
    def test_an_expiry_that_is_no_date_is_no_fault_of_ours(self, expiry: int) -> None:
        token = replace(Token.issue("first", DESK.cluster_uid, NOW).under(KEYS[0]), expiry=expiry)
        answer = CHIP.answer(DESK.challenge(), BINDING, token=str(token))
        assert DESK.denial(answer)[0] == "ChallengeFromTheFuture"

    def test_a_challenge_of_a_clock_that_was_ahead(self) -> None:
        """A year's worth of answers could be made with it in advance, and used when the chip is somewhere else."""
        ahead = DESK.but(now=NOW + timedelta(days=365)).challenge()
        assert DESK.denial(CHIP.answer(ahead, BINDING))[0] == "ChallengeFromTheFuture"

    def test_an_answer_to_a_challenge_of_another_cluster(self) -> None:
        """Two Clusters with one CA: the binding is the same in both."""
        answer = CHIP.answer(DESK.but(cluster_uid="of another Cluster").challenge(), BINDING)
        assert DESK.denial(answer)[0] == CHALLENGE_OF_ANOTHER_CLUSTER
        claimed = replace(
            Token.parse(answer[wire.CHALLENGE_TOKEN_FIELD]), cluster_identifier=cluster_identifier(DESK.cluster_uid)
        )
        left_out = replace(claimed, cluster_identifier="")
        for token in (claimed, left_out):
            with pytest.raises(BindingMismatch):
                DESK.ask({**answer, wire.CHALLENGE_TOKEN_FIELD: str(token)})

    def test_the_token_of_another_request(self) -> None:
        other = json.loads(DESK.challenge(csr_uid="other"))[wire.TOKEN_KEY]
        with pytest.raises(BindingMismatch):
            DESK.ask(CHIP.answer(DESK.challenge(), BINDING, token=other))

    def test_without_the_secret(self) -> None:
        """Whoever is not the chip cannot open the credential."""
        for secret in (b"", bytes(32), b"guess"):
            with pytest.raises(BindingMismatch):
                DESK.ask(CHIP.answer(DESK.challenge(), BINDING, secret=secret))

    @pytest.mark.parametrize(
        "binding",
        [
            pytest.param(binding_for(provider="tpm", key=ecc_key(number=99)), id="another-key"),
            pytest.param(binding_for(provider="tpm", cluster=CACertHash("sha256:" + "0a" * 32)), id="another-cluster"),
            pytest.param(binding_for(provider="tpm", purpose=Purpose.SERVING), id="another-signer"),
            pytest.param(binding_for(provider="keyed-mac"), id="another-attestor"),
        ],
    )
    def test_the_same_evidence_for_another_request(self, binding: Binding) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        with pytest.raises(BindingMismatch):
            DESK.ask(answer, binding)
        # Nor with the challenge for the one in a quote for the other.
        with pytest.raises(BindingMismatch):
            DESK.ask(CHIP.answer(DESK.challenge(), binding), binding)

    def test_another_attestation_key_than_was_challenged(self) -> None:
        challenge = DESK.challenge()
        secret = CHIP.open(challenge)
        other = CHIP.but(attestation=OTHER.attestation, attestation_area=OTHER.attestation_area)
        with pytest.raises(BindingMismatch):
            DESK.ask(other.answer(challenge, BINDING, secret=secret))

    def test_a_quote_by_another_key_than_is_shown(self) -> None:
        challenge = DESK.challenge()
        answer = CHIP.but(attestation=OTHER.attestation).answer(challenge, BINDING)
        reason, message = DESK.denial(answer)
        assert (reason, message) == ("QuoteRefused", "the attestation key did not sign this quote")

    def test_another_nodes_challenge(self) -> None:
        harness = DESK.but(machine=machine_of(OTHER.fingerprint))
        challenge = harness.challenge(OTHER)
        with pytest.raises(BindingMismatch):
            DESK.ask(CHIP.answer(challenge, BINDING, secret=OTHER.open(challenge)))

    def test_what_is_signed_must_be_a_quote(self) -> None:
        challenge = DESK.challenge()
        for mangle in (lambda quote: quote + b"\0", lambda quote: b"\0\0\0\0" + quote[4:], lambda quote: b"x"):
            with pytest.raises(MalformedEvidence, match="TPMS_ATTEST"):
                DESK.ask(CHIP.answer(challenge, BINDING, mangle=mangle))

    def test_sha1(self) -> None:
        challenge = DESK.challenge()
        sha1 = CHIP.answer(challenge, BINDING, mangle_signature=lambda one: one.replace(b"\0\x0b", b"\0\x04", 1))
        with pytest.raises(MalformedEvidence, match="hash uses SHA-1"):
            DESK.ask(sha1)
        bank = CHIP.answer(challenge, BINDING, mangle=lambda quote: quote.replace(b"\0\x0b\x03", b"\0\x04\x03"))
        with pytest.raises(MalformedEvidence, match="uses SHA-1"):
            DESK.ask(bank)

    @pytest.mark.parametrize("selection", ["sha256:0", "sha384:0,1,2,3,4,5,6,7", "sha256:0,1,2,3,4,5,6,8"])
    def test_other_registers_than_were_asked_for(self, selection: str) -> None:
        reason, message = DESK.denial(CHIP.answer(DESK.challenge(), BINDING, selection=selection))
        assert reason == "QuoteRefused"
        assert f"the quote covers {selection}" in message

    def test_values_of_other_registers(self) -> None:
        selection = DESK.settings.selection
        values = [value_of(pcr) for pcr in selection.registers()]
        for relabelled in (b"".join(reversed(values)), b"".join(values[:-1]), b"".join([*values, values[0]])):
            answer = CHIP.answer(DESK.challenge(), BINDING, values=relabelled)
            assert DESK.denial(answer)[0] == "QuoteRefused"

    def test_values_that_the_cluster_allows(self) -> None:
        for allowed, expected in ((value_of(PCR_7), VerifiedIdentity), (bytes(32), Denied)):
            policy = PCRPolicy({PCR_7: frozenset({allowed})})
            harness = DESK.but(settings=replace(NO_SETTINGS, pcr_policy=policy))
            outcome = harness.ask(CHIP.answer(harness.challenge(), BINDING))
            assert isinstance(outcome, expected)
            if isinstance(outcome, Denied):
                assert outcome.reason == "QuoteRefused"
                assert "does not allow" in outcome.message

    def test_registers_that_the_policy_asks_for_since(self) -> None:
        answer = CHIP.answer(DESK.challenge(), BINDING)
        changed = DESK.but(settings=replace(NO_SETTINGS, selection=PCRSelection.parse("sha256:7")))
        assert changed.denial(answer)[0] == "QuoteRefused"

    def test_an_answer_is_pre_filtered_like_a_first_request(self) -> None:
        """Steps 1 to 4, and 6, do not rest on what the challenge was made for."""
        answer = CHIP.answer(CERTIFIED.challenge(), BINDING)
        assert isinstance(CERTIFIED.ask(answer), VerifiedIdentity)
        bare = without(answer, wire.ENDORSEMENT_CERTIFICATE_FIELD)
        assert CERTIFIED.denial(bare)[0] == "EndorsementCertificateMissing"


FIRST_STEPS: Final = [
    pytest.param(DESK, CHIP, id="honest"),
    pytest.param(CERTIFIED, CHIP, id="honest-certified"),
    pytest.param(TestDenied.DESK, CHIP, id="denied"),
    pytest.param(DESK, OTHER, id="another-machines"),
    pytest.param(DESK.but(machine=NoClaimedMachine()), CHIP, id="no-machine"),
    pytest.param(DESK, CHIP.but(attestation_area=attestation_area(attributes=UNRESTRICTED)), id="unrestricted"),
    pytest.param(CERTIFIED, CHIP.but(certificate=b""), id="no-certificate"),
    pytest.param(CERTIFIED, CHIP.certified(issuer=write.common_name("Somebody else")), id="no-authority"),
    *(
        pytest.param(CERTIFIED, parameters.values[0], id=f"certificate-{parameters.id}")
        for parameters in CERTIFICATE_ATTACKS
    ),
]


class TestPreFilter:
    @pytest.mark.parametrize(("harness", "chip"), FIRST_STEPS)
    def test_says_what_the_verdict_will_be(self, harness: PluginHarness, chip: FakeTPM) -> None:
        verdict = harness.ask(chip.first())
        pre_filtered = harness.pre_filter(chip.first())
        assert pre_filtered == (verdict if isinstance(verdict, Denied) else Plausible())

    @pytest.mark.parametrize("name", [*wire.IDENTITY_FIELDS, "unknown"])
    def test_what_is_malformed_is_malformed(self, name: str) -> None:
        with pytest.raises(MalformedEvidence):
            DESK.pre_filter({**CHIP.first(), name: "AA=="})

    def test_an_answer_is_plausible_as_long_as_its_machine_is(self) -> None:
        """The quote needs the keys, and its turn."""
        answer = CHIP.answer(DESK.challenge(), BINDING)
        late = DESK.but(now=NOW + LIFETIME)
        assert late.pre_filter(answer) == Plausible()
        pre_filtered = DESK.but(machine=machine_of(OTHER.fingerprint)).pre_filter(answer)
        assert isinstance(pre_filtered, Denied)


LONG: Final = "\u202e\n\0\ud7ff" * 600


@pytest.mark.parametrize(
    ("harness", "chip"),
    [
        pytest.param(
            CERTIFIED,
            CHIP.certified(issuer=write.name(*[("2.5.4.3", LONG[:200])] * 8, tag=0x0C)),
            id="issuer",
        ),
        pytest.param(
            CERTIFIED,
            CHIP.certified(
                subject=write.common_name(LONG[:400], tag=0x0C), extensions=(write.authority_constraints(),)
            ),
            id="subject",
        ),
        pytest.param(CERTIFIED, CHIP.certified(extensions=(write.purposes("1.2." + "9" * 60),)), id="purpose"),
        pytest.param(DESK.but(machine=ClaimedMachine("m" * 253, {})), CHIP, id="machine"),
        pytest.param(DESK.but(machine=machine_of("x" * 2048, "m" * 253)), CHIP, id="annotation"),
        pytest.param(DESK.but(machine=machine_of(OTHER.fingerprint, LONG)), CHIP, id="another-machine"),
    ],
)
def test_messages_are_bounded_and_printable(harness: PluginHarness, chip: FakeTPM) -> None:
    outcome = harness.ask(chip.first())
    assert isinstance(outcome, Denied | NotProvableYet)
    assert 0 < len(outcome.message) <= 500
    assert outcome.message.isprintable()
    assert outcome.reason.isalnum()


def test_the_keys_are_not_shown() -> None:
    assert "challenge_keys" not in repr(plugin.server_plugin(AttestorSettings(ANY_KEYS, challenge_keys=lambda: KEYS)))


ANSWER: Final = CHIP.answer(CERTIFIED.challenge(), BINDING)
NAMES: Final = (*wire.IDENTITY_FIELDS, *wire.OPTIONAL_FIELDS, *wire.ANSWER_FIELDS)
values = (
    st.text(max_size=40)
    | st.binary(max_size=1100).map(text)
    | st.sampled_from(sorted(ANSWER.values()))
    | st.builds(lambda uid, expiry: f"{uid}.{expiry}", st.from_regex(r"[a-z-]{1,8}", fullmatch=True), st.integers(0))
)


BRIEF: Final = settings(PATIENT, max_examples=40)


def judged(fields: Mapping[str, str]) -> None:
    """Nothing but what the contract names."""
    for harness in (DESK, CERTIFIED):
        try:
            outcome = harness.ask(fields)
        except (MalformedEvidence, BindingMismatch):
            continue
        assert not isinstance(outcome, VerifiedIdentity) or {**ANSWER, **fields} == fields
    try:
        CERTIFIED.pre_filter(fields)
    except MalformedEvidence:
        return


@BRIEF
@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), values, max_size=9))
def test_random_fields_end_with_an_outcome(fields: dict[str, str]) -> None:
    judged(fields)


@BRIEF
@given(st.dictionaries(st.sampled_from(NAMES), values, min_size=1, max_size=2))
def test_an_answer_with_random_fields_ends_with_an_outcome(changes: dict[str, str]) -> None:
    try:
        outcome = CERTIFIED.ask({**ANSWER, **changes})
    except (MalformedEvidence, BindingMismatch):
        return
    ours = all(key == wire.ENDORSEMENT_CHAIN_FIELD or ANSWER.get(key) == changes[key] for key in changes)
    assert not isinstance(outcome, VerifiedIdentity) or ours


@BRIEF
@given(st.sampled_from(sorted(ANSWER)), st.integers(0, 5000), st.integers(1, 255))
def test_every_bit_counts(name: str, position: int, flip: int) -> None:
    """Of the certificate's, too."""
    if name == wire.CHALLENGE_TOKEN_FIELD:
        changed = ANSWER[name][: position % 20] + chr(97 + flip % 26) + ANSWER[name][position % 20 + 1 :]
        if changed == ANSWER[name]:
            return
    else:
        content = bytearray(base64.b64decode(ANSWER[name]))
        content[position % len(content)] ^= flip
        changed = text(bytes(content))
    try:
        outcome = CERTIFIED.ask({**ANSWER, name: changed})
    except (MalformedEvidence, BindingMismatch):
        return
    assert isinstance(outcome, Denied | NotProvableYet), outcome
