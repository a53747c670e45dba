"""Credentials and quotes against a real TPM 2.0 implementation, and against the makers' own library."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, EndorsementTemplate, UnsuitableKey
from attestors.tpm.constants import HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.credential import make_credential
from attestors.tpm.quote import PCRNotAllowed, PCRPolicy
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.structures import PublicArea, decode_public
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.software_tpm import LIBRARY_MISSING, SoftwareTPM
from tests.unit.attestors.tpm.support import Evidence, recording

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from tpm2_pytss import TSS2_Exception
from tpm2_pytss.types import TPM2B_PUBLIC, TPMS_ATTEST, TPMT_PUBLIC, TPMT_SIGNATURE
from tpm2_pytss.utils import make_credential as make_credential_of_the_library

from tests.support.record_tpm import (
    ATTESTATION_TEMPLATES,
    ATTRIBUTES,
    PCR_BANKS,
    RSASSA,
    SELECTION,
    SUPPORTED_TEMPLATES,
    attestation_template,
    endorsement_template,
    record,
)
from tests.support.tpm_chip import Chip

pytestmark = pytest.mark.slow

UNRESTRICTED = attestation_template(
    SignatureAlgorithm.RSASSA, 2048, attributes=ATTRIBUTES & ~ObjectAttribute.RESTRICTED
)


@pytest.fixture(scope="module")
def chip() -> Iterator[Chip]:
    try:
        software_tpm = SoftwareTPM(pcr_banks=PCR_BANKS)
    except MissingPart as missing:
        skip_or_fail(missing)
    with software_tpm, Chip(software_tpm) as connected:
        yield connected


def quote(chip: Chip, template: PublicArea, selection: str = SELECTION, extra_data: bytes = b"nonce") -> Evidence:
    with chip.primary(template.encode()) as (handle, public):
        quoted, signature = chip.quote(handle, selection, extra_data)
    return Evidence(public, quoted, signature, chip.pcr_values(selection))


@pytest.mark.parametrize("template", SUPPORTED_TEMPLATES, ids=lambda template: template.title)
class TestCredential:
    def test_the_tpm_reads_the_secret(self, chip: Chip, template: EndorsementTemplate) -> None:
        """With the greatest secret that it takes; for an attestation key whose name algorithm may be another."""
        with (
            chip.primary(endorsement_template(template).encode()) as (ek_handle, ek_public),
            chip.primary(RSASSA.encode()) as (ak_handle, ak_public),
        ):
            endorsement_key, attestation_key = EndorsementKey.decode(ek_public), AttestationKey.decode(ak_public)
            assert endorsement_key.template == template
            for size in (1, 32, template.name_algorithm.digest_bytes):
                secret = secrets.token_bytes(size)
                made = make_credential(endorsement_key, attestation_key, secret, random_bytes=secrets.token_bytes)
                assert chip.activate(ak_handle, ek_handle, made.id_object, made.encrypted_secret) == secret

    def test_without_the_attestation_key_it_does_not(self, chip: Chip, template: EndorsementTemplate) -> None:
        with chip.primary(RSASSA.encode()) as (_, ak_public):
            attestation_key = AttestationKey.decode(ak_public)
        other = ATTESTATION_TEMPLATES["ECDSA P-256 SHA-256"].encode()
        with (
            chip.primary(endorsement_template(template).encode()) as (ek_handle, ek_public),
            chip.primary(other) as (other_handle, _),
        ):
            made = make_credential(
                EndorsementKey.decode(ek_public), attestation_key, b"secret", random_bytes=secrets.token_bytes
            )
            with pytest.raises(TSS2_Exception, match="integrity"):
                chip.activate(other_handle, ek_handle, made.id_object, made.encrypted_secret)


@pytest.mark.parametrize("template", ATTESTATION_TEMPLATES.values(), ids=ATTESTATION_TEMPLATES.keys())
class TestQuote:
    def test_is_verified(self, chip: Chip, template: PublicArea) -> None:
        evidence = quote(chip, template)
        verified = evidence.verify(PCRSelection.parse(SELECTION), b"nonce")
        assert b"".join(verified.pcrs.values()) == evidence.pcr_values

    def test_the_library_reads_the_same(self, chip: Chip, template: PublicArea) -> None:
        evidence = quote(chip, template)
        verified = evidence.verify(PCRSelection.parse(SELECTION), b"nonce")
        public, _ = TPMT_PUBLIC.unmarshal(evidence.ak_public)
        assert bytes(public.get_name()) == verified.attestation_key.name
        assert int(public.objectAttributes) == verified.attestation_key.public.attributes
        attest, _ = TPMS_ATTEST.unmarshal(evidence.quote)
        statement = verified.statement
        assert bytes(attest.qualifiedSigner) == statement.qualified_signer
        assert int(attest.clockInfo.clock) == statement.clock_info.clock
        assert int(attest.clockInfo.resetCount) == statement.clock_info.reset_count
        assert int(attest.clockInfo.restartCount) == statement.clock_info.restart_count
        assert bool(attest.clockInfo.safe) is statement.clock_info.safe
        assert int(attest.firmwareVersion) == statement.firmware_version
        assert bytes(attest.attested.quote.pcrDigest) == statement.pcr_digest
        signature, consumed = TPMT_SIGNATURE.unmarshal(evidence.signature)
        assert consumed == len(evidence.signature)
        signature.verify_signature(verified.attestation_key.key, evidence.quote)


def test_the_library_makes_credentials_that_the_tpm_reads_as_ours(chip: Chip) -> None:
    """So that the tests of the attack below mean something: the same call, with a key that we would refuse."""
    with (
        chip.primary(endorsement_template(SUPPORTED_TEMPLATES[0]).encode()) as (ek_handle, ek_public),
        chip.primary(UNRESTRICTED.encode()) as (handle, public),
    ):
        parsed, _ = TPM2B_PUBLIC.unmarshal(len(ek_public).to_bytes(2, "big") + ek_public)
        name = decode_public(public).name
        id_object, encrypted_secret = make_credential_of_the_library(parsed, b"secret", name)
        assert chip.activate(handle, ek_handle, id_object.marshal(), encrypted_secret.marshal()) == b"secret"
    with pytest.raises(UnsuitableKey, match="must have restricted set"):
        AttestationKey.decode(public)


class TestForgery:
    """TPM2_Sign over an invented statement that begins with TPM_GENERATED_VALUE."""

    def test_an_unrestricted_key_signs_it_and_is_refused(self, chip: Chip) -> None:
        genuine = quote(chip, RSASSA)
        forged = genuine.quote.replace(b"nonce", b"later")
        with chip.primary(UNRESTRICTED.encode()) as (handle, public):
            signature = chip.sign(handle, forged)
        with pytest.raises(UnsuitableKey, match="must have restricted set"):
            Evidence(public, forged, signature, genuine.pcr_values).verify(PCRSelection.parse(SELECTION), b"later")

    def test_a_restricted_key_does_not_sign_it(self, chip: Chip) -> None:
        genuine = quote(chip, RSASSA)
        with chip.primary(RSASSA.encode()) as (handle, _), pytest.raises(TSS2_Exception, match="ticket"):
            chip.sign(handle, genuine.quote)


def test_an_extended_register_is_noticed(chip: Chip) -> None:
    pcr = PCR(HashAlgorithm.SHA256, 23)
    before = quote(chip, RSASSA, "sha256:23")
    selection = PCRSelection.parse("sha256:23")
    value = before.verify(selection, b"nonce").pcrs[pcr]
    policy = PCRPolicy({pcr: frozenset({value})})
    before.verify(selection, b"nonce", policy)
    chip.extend(23, b"a rootkit")
    with pytest.raises(PCRNotAllowed, match="sha256:23"):
        quote(chip, RSASSA, "sha256:23").verify(selection, b"nonce", policy)


def test_can_be_recorded_again(tmp_path: Path) -> None:
    file = tmp_path / "swtpm.json"
    record(file)
    with pytest.raises(FileExistsError, match="never replaced"):
        record(file)
    recorded, committed = file.read_text("utf-8"), recording()
    for title in (entry["title"] for part in ("quotes", "refusedQuotes") for entry in committed[part]):
        assert f'"title": "{title}"' in recorded
