"""The TPM attestor's agent plugin makes evidence with a software TPM, and leaves the TPM as it found it."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from attestors.contract import EvidenceUnavailable
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey
from attestors.tpm.credential import make_credential
from attestors.tpm.quote import BoundTo, verify_quote
from attestors.tpm.selection import PCRSelection
from attestors.wire.evidence import Evidence, decode, encode
from tests.support.software_tpm import ENDORSEMENT_CERTIFICATES, LIBRARY_MISSING, SoftwareTPM

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from tpm2_pytss.types import TPML_PCR_SELECTION, TPMS_ATTEST, TPMT_SIGNATURE

from attestors.tpm.node import attestation_key
from attestors.tpm.node.connection import connected
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES
from tests.integration.tpm import node_tpm
from tests.integration.tpm.node_tpm import (
    BINDING,
    PCRS,
    SECRET,
    agent_plugin,
    challenge_for,
    challenge_text,
    field,
    left_behind,
    request,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
KEY_FIELDS = {"ekPublic", "akPublic"}
ANSWER_FIELDS = {"challengeToken", "quote", "quoteSignature", "pcrValues"}
CHOICES = [choice.name for choice in ENDORSEMENT_CHOICES if choice.name != "high-rsa-4096"]
"""libtpms makes no larger RSA keys than 3072 bits."""


def check_quote(answer: Evidence, pcrs: str = PCRS, secret: bytes = SECRET) -> None:
    """The quote is the attestation key's, of these PCRs, and commits to secret and binding."""
    quote, consumed = TPMS_ATTEST.unmarshal(field(answer, "quote"))
    assert consumed == len(field(answer, "quote"))
    assert bytes(quote.extraData) == hashlib.sha256(secret + BINDING.value).digest()
    assert bytes(quote.attested.quote.pcrDigest) == hashlib.sha256(field(answer, "pcrValues")).digest()
    assert quote.attested.quote.pcrSelect.marshal() == TPML_PCR_SELECTION.parse(pcrs).marshal()
    signature, consumed = TPMT_SIGNATURE.unmarshal(field(answer, "quoteSignature"))
    assert consumed == len(field(answer, "quoteSignature"))
    key = load_pem_public_key(node_tpm.public(answer, "akPublic").to_pem())
    signature.verify_signature(key, field(answer, "quote"))


def round_trip(tpm: SoftwareTPM, **settings: str) -> tuple[Evidence, Evidence]:
    plugin = agent_plugin(tpm, **settings)
    first = plugin.gather(request())
    assert not left_behind(tpm)
    answer = plugin.gather(request(challenge_for(first)))
    assert not left_behind(tpm)
    check_quote(answer)
    return first, answer


def test_first_request_and_answer(software_tpm: SoftwareTPM) -> None:
    first, answer = round_trip(software_tpm)
    assert set(first.fields) == {*KEY_FIELDS, "ekCertificate"}
    assert set(answer.fields) == {*KEY_FIELDS, "ekCertificate", *ANSWER_FIELDS}
    assert {name: answer.fields[name] for name in first.fields} == first.fields
    assert answer.fields["challengeToken"] == "opaque-token"
    assert len(field(answer, "pcrValues")) == 10 * 32
    assert decode(encode(answer)) == answer


@pytest.mark.parametrize("choice", CHOICES)
def test_controller_accepts_what_every_endorsement_key_answers(software_tpm: SoftwareTPM, choice: str) -> None:
    """Its own, pure reading of keys and quotes, and its own credentials."""
    plugin = agent_plugin(software_tpm, ek=choice)
    first = plugin.gather(request())
    endorsement = EndorsementKey.decode(field(first, "ekPublic"))
    assert endorsement.template.title == next(known.title for known in ENDORSEMENT_CHOICES if known.name == choice)
    attestation = AttestationKey.decode(field(first, "akPublic"))
    credential = make_credential(endorsement, attestation, SECRET, random_bytes=secrets.token_bytes)
    answer = plugin.gather(request(challenge_text(credential.id_object, credential.encrypted_secret)))
    verified = verify_quote(
        ak_public=field(answer, "akPublic"),
        quote=field(answer, "quote"),
        signature=field(answer, "quoteSignature"),
        pcr_values=field(answer, "pcrValues"),
        selection=PCRSelection.parse(PCRS),
        extra_data=BoundTo(BINDING, lambda value: hashlib.sha256(SECRET + value).digest()),
    )
    assert verified.attestation_key == attestation
    assert not left_behind(software_tpm)


def test_a_key_that_the_tpm_cannot_make_is_reported(software_tpm: SoftwareTPM) -> None:
    with pytest.raises(EvidenceUnavailable, match="did not make the endorsement key high-rsa-4096"):
        agent_plugin(software_tpm, ek="high-rsa-4096").gather(request())


@pytest.mark.parametrize(
    ("choice", "index"), [("rsa-2048", 0x01C00002), ("high-ecc-p384", 0x01C00016)], ids=["RSA-2048", "P-384"]
)
def test_certificate_is_whole_and_for_the_endorsement_key(software_tpm: SoftwareTPM, choice: str, index: int) -> None:
    first = agent_plugin(software_tpm, ek=choice).gather(request())
    assert field(first, "ekCertificate") == software_tpm.endorsement_certificate(index)
    certificate = x509.load_der_x509_certificate(field(first, "ekCertificate"))
    key = load_pem_public_key(node_tpm.public(first, "ekPublic").to_pem())
    assert certificate.public_key() == key
    issuer = x509.load_pem_x509_certificate(software_tpm.issuer_certificate)
    certificate.verify_directly_issued_by(issuer)
    issuer.verify_directly_issued_by(x509.load_pem_x509_certificate(software_tpm.root_certificate))


def test_kept_and_made_endorsement_key_are_the_same(own_tpm: SoftwareTPM) -> None:
    kept = {name: round_trip(own_tpm, ek=name)[0] for name in ("rsa-2048", "high-ecc-p384")}
    node_tpm.remove_persistent_keys(own_tpm)
    assert {name: round_trip(own_tpm, ek=name)[0] for name in kept} == kept


def test_attestation_key(software_tpm: SoftwareTPM) -> None:
    """A restricted signing key with neither password guessing protection nor a policy, and our label in its seed."""
    area = node_tpm.public(agent_plugin(software_tpm).gather(request()), "akPublic")
    assert area.objectAttributes == 0x50472
    assert area.objectAttributes & 0x50032 == 0x50032
    assert bytes(area.authPolicy) == b""
    assert (area.type, area.nameAlg, area.parameters.eccDetail.curveID) == (0x23, 0x0B, 0x03)


def test_attestation_key_survives_restarts(own_tpm: SoftwareTPM) -> None:
    plugin = agent_plugin(own_tpm)
    first = plugin.gather(request())
    challenge = challenge_for(first)
    own_tpm.restart()
    answer = plugin.gather(request(challenge))
    assert answer.fields["akPublic"] == first.fields["akPublic"]
    check_quote(answer)


def test_two_tpms_have_nothing_in_common(software_tpm: SoftwareTPM, own_tpm: SoftwareTPM) -> None:
    mine, other = (agent_plugin(tpm).gather(request()) for tpm in (software_tpm, own_tpm))
    for name in (*KEY_FIELDS, "ekCertificate"):
        assert mine.fields[name] != other.fields[name]


def test_tpm_without_ecc_signs_with_rsa(software_tpm: SoftwareTPM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attestation_key, "_has_p256", lambda tpm: False)
    first, again = round_trip(software_tpm)
    area = node_tpm.public(first, "akPublic")
    assert (area.type, area.objectAttributes, area.parameters.rsaDetail.keyBits) == (0x01, 0x50472, 2048)
    assert again.fields["akPublic"] == first.fields["akPublic"]


def test_curves_are_asked_for(software_tpm: SoftwareTPM) -> None:
    with connected(software_tpm.tcti) as tpm:
        assert attestation_key._has_p256(tpm)


def test_certificates_decide_in_their_order(own_tpm: SoftwareTPM) -> None:
    """A certificate of a lower range comes before swtpm's own for P-384, and RSA-2048 before all."""
    made = agent_plugin(own_tpm, ek="ecc-p256").gather(request())
    point = node_tpm.public(made, "ekPublic").unique.ecc
    certificate = b"\x30not quite a certificate" + bytes(point.x) + bytes(point.y)
    node_tpm.write_index(own_tpm, 0x01C0000A, certificate)
    assert field(agent_plugin(own_tpm).gather(request()), "ekCertificate")[:1] == b"\x30"
    assert node_tpm.public(agent_plugin(own_tpm).gather(request()), "ekPublic").type == 0x01
    node_tpm.remove_index(own_tpm, 0x01C00002)
    first = agent_plugin(own_tpm).gather(request())
    assert field(first, "ekCertificate") == certificate
    assert first.fields["ekPublic"] == made.fields["ekPublic"]


def test_tpm_without_certificates(own_tpm: SoftwareTPM) -> None:
    with_certificates = agent_plugin(own_tpm).gather(request())
    for index in ENDORSEMENT_CERTIFICATES:
        node_tpm.remove_index(own_tpm, index)
    node_tpm.write_index(own_tpm, 0x01C00002, bytes(1000))  # set aside, never filled
    first, _ = round_trip(own_tpm)
    assert set(first.fields) == KEY_FIELDS
    assert first.fields["ekPublic"] == with_certificates.fields["ekPublic"]


def test_nonce_of_the_manufacturer_goes_into_the_key(own_tpm: SoftwareTPM) -> None:
    without = agent_plugin(own_tpm, ek="ecc-p256").gather(request())
    node_tpm.write_index(own_tpm, 0x01C0000B, b"manufacturer's nonce")
    first, _ = round_trip(own_tpm, ek="ecc-p256")
    assert first.fields["ekPublic"] != without.fields["ekPublic"]


def test_chain_over_several_indices(own_tpm: SoftwareTPM) -> None:
    chain = b"".join(
        x509.load_pem_x509_certificate(pem).public_bytes(node_tpm.DER)
        for pem in (own_tpm.issuer_certificate, own_tpm.root_certificate)
    )
    node_tpm.write_index(own_tpm, 0x01C00100, chain[:1500])
    node_tpm.write_index(own_tpm, 0x01C00101, chain[1500:])
    node_tpm.write_index(own_tpm, 0x01C00200, b"something else")
    first, _ = round_trip(own_tpm)
    assert set(first.fields) == {*KEY_FIELDS, "ekCertificate", "ekCertificateChain"}
    assert field(first, "ekCertificateChain") == chain


def test_several_banks(own_tpm: SoftwareTPM) -> None:
    with SoftwareTPM(same_authority_as=own_tpm, pcr_banks="sha256,sha384") as tpm:
        plugin = agent_plugin(tpm)
        challenge = challenge_for(plugin.gather(request()), pcrs="sha384:0,7+sha256:1")
        values = field(plugin.gather(request(challenge)), "pcrValues")
        assert len(values) == 2 * 48 + 32


def test_a_challenge_for_another_key_is_reported(software_tpm: SoftwareTPM) -> None:
    first = agent_plugin(software_tpm).gather(request())
    challenge = challenge_for(first, attestation_key=b"\x00\x0b" + bytes(32))
    with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
        agent_plugin(software_tpm).gather(request(challenge))
    assert not left_behind(software_tpm)


def test_a_challenge_for_another_tpm_is_reported(software_tpm: SoftwareTPM, own_tpm: SoftwareTPM) -> None:
    challenge = challenge_for(agent_plugin(own_tpm).gather(request()))
    with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
        agent_plugin(software_tpm).gather(request(challenge))
    assert not left_behind(software_tpm)


def test_short_secret_is_refused(software_tpm: SoftwareTPM) -> None:
    challenge = challenge_for(agent_plugin(software_tpm).gather(request()), secret=b"short")
    with pytest.raises(EvidenceUnavailable, match="not 32 bytes") as raised:
        agent_plugin(software_tpm).gather(request(challenge))
    assert "short" not in str(raised.value)
    assert not left_behind(software_tpm)


def test_an_inactive_bank_is_reported(software_tpm: SoftwareTPM) -> None:
    challenge = challenge_for(agent_plugin(software_tpm).gather(request()), pcrs="sha384:0,7")
    with pytest.raises(EvidenceUnavailable, match=r"\(sha384:0,7\): activate the bank sha384"):
        agent_plugin(software_tpm).gather(request(challenge))
    assert not left_behind(software_tpm)


_GATHER = """
import sys
sys.path.insert(0, {root!r})
from tests.integration.tpm.node_tpm import challenge_for, agent_plugin_from, request
half = agent_plugin_from({{"tcti": {tcti!r}}})
print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    answer = half.gather(request(challenge_for(half.gather(request()))))
print(answer.fields["akPublic"])
"""


def test_two_processes_at_once(software_tpm: SoftwareTPM) -> None:
    """They take turns, each gets the same keys, and neither spills anything to standard error."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _GATHER.format(root=str(ROOT), tcti=software_tpm.tcti)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        told = []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            output, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
            told.append(output)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert told[0] == told[1] == agent_plugin(software_tpm).gather(request()).fields["akPublic"] + "\n"
    assert not left_behind(software_tpm)
