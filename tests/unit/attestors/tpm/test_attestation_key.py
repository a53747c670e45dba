from __future__ import annotations

from dataclasses import replace

import pytest

from attestors.tpm import constants as tpm
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES, AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.structures import RSAKey, Scheme
from tests.unit.attestors.tpm.support import (
    AK_ATTRIBUTES,
    ECDSA,
    RSAPSS,
    RSASSA,
    attestation_area,
    ecc_key,
    endorsement_area,
    rsa_key,
)

TITLES = [template.title for template in ENDORSEMENT_TEMPLATES]


class TestMasks:
    def test_are_the_specifications(self) -> None:
        """Written out: reference values of TPM 2.0 Library, Part 2, 8.3, and of the EK Credential Profile."""
        assert tpm.ATTESTATION_KEY_REQUIRED == 0x50032
        assert tpm.ATTESTATION_KEY_FORBIDDEN == 0x20000 | 0x800 | 0x4 | 0x80000
        assert tpm.ENDORSEMENT_KEY_LOW_RANGE == 0x300B2
        assert tpm.ENDORSEMENT_KEY_HIGH_RANGE == 0x300F2

    def test_every_attribute_is_spelled(self) -> None:
        everything = ObjectAttribute(sum(ObjectAttribute))
        assert everything.spelled == (
            "fixedTPM, stClear, fixedParent, sensitiveDataOrigin, userWithAuth, adminWithPolicy, noDA,"
            " encryptedDuplication, restricted, decrypt, sign, x509sign"
        )


class TestAttestationKey:
    @pytest.mark.parametrize("attributes", [0x50032, 0x50072, 0x50472, 0x500B2])
    def test_attributes_of_real_ones(self, attributes: int) -> None:
        area = attestation_area(attributes=ObjectAttribute(attributes))
        assert AttestationKey.decode(area.encode()).public == area

    @pytest.mark.parametrize("scheme", [RSASSA, RSAPSS, Scheme(SignatureAlgorithm.RSASSA, HashAlgorithm.SHA384)])
    def test_rsa(self, scheme: Scheme) -> None:
        key = AttestationKey.decode(attestation_area(scheme=scheme).encode())
        assert key.scheme == scheme
        assert key.key == rsa_key().public_key()
        assert key.name == attestation_area(scheme=scheme).name

    @pytest.mark.parametrize("curve", list(Curve))
    def test_ecc(self, curve: Curve) -> None:
        key = AttestationKey.decode(attestation_area(ecc_key(curve), ECDSA).encode())
        assert key.key == ecc_key(curve).public_key()

    @pytest.mark.parametrize("algorithm", list(HashAlgorithm))
    def test_name_algorithms(self, algorithm: HashAlgorithm) -> None:
        AttestationKey.decode(attestation_area(name_algorithm=algorithm).encode())

    @pytest.mark.parametrize(
        ("attribute", "spelling"),
        [
            ("FIXED_TPM", "fixedTPM"),
            ("FIXED_PARENT", "fixedParent"),
            ("SENSITIVE_DATA_ORIGIN", "sensitiveDataOrigin"),
            ("RESTRICTED", "restricted"),
            ("SIGN_ENCRYPT", "sign"),
        ],
    )
    def test_a_missing_attribute_is_refused(self, attribute: str, spelling: str) -> None:
        area = attestation_area(attributes=AK_ATTRIBUTES & ~ObjectAttribute[attribute])
        with pytest.raises(UnsuitableKey, match=f"must have {spelling} set"):
            AttestationKey.decode(area.encode())

    @pytest.mark.parametrize(
        ("attribute", "spelling"),
        [
            ("DECRYPT", "decrypt"),
            ("ENCRYPTED_DUPLICATION", "encryptedDuplication"),
            ("ST_CLEAR", "stClear"),
            ("X509_SIGN", "x509sign"),
        ],
    )
    def test_a_forbidden_attribute_is_refused(self, attribute: str, spelling: str) -> None:
        area = attestation_area(attributes=AK_ATTRIBUTES | ObjectAttribute[attribute])
        with pytest.raises(UnsuitableKey, match=f"must have {spelling} clear"):
            AttestationKey.decode(area.encode())

    def test_a_storage_key_is_refused(self) -> None:
        with pytest.raises(UnsuitableKey, match="symmetric"):
            AttestationKey.decode(attestation_area(symmetric_key_bits=128).encode())

    def test_a_key_without_scheme_is_refused(self) -> None:
        with pytest.raises(UnsuitableKey, match="signing scheme"):
            AttestationKey.decode(attestation_area(scheme=None).encode())

    @pytest.mark.parametrize("title", TITLES)
    def test_an_endorsement_key_is_refused(self, title: str) -> None:
        with pytest.raises(UnsuitableKey):
            AttestationKey.decode(endorsement_area(title).encode())

    def test_a_key_that_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(MalformedStructure):
            AttestationKey(replace(attestation_area(), key=RSAKey(2048, 3, bytes(256))))

    def test_is_a_value(self) -> None:
        same, other = (
            AttestationKey.decode(area.encode()) for area in (attestation_area(), attestation_area(ecc_key(), ECDSA))
        )
        assert len({AttestationKey(attestation_area()), same, other}) == 2

    def test_cannot_be_built_without_the_check(self) -> None:
        good = AttestationKey(attestation_area())
        with pytest.raises(UnsuitableKey):
            replace(good, public=attestation_area(attributes=ObjectAttribute.SIGN_ENCRYPT))


class TestEndorsementKey:
    @pytest.mark.parametrize("title", TITLES)
    def test_every_template(self, title: str) -> None:
        area = endorsement_area(title)
        key = EndorsementKey.decode(area.encode())
        assert key.template.title == title
        assert key.public == area
        assert key.name == area.name
        assert key.key == area.key.public_key()

    @pytest.mark.parametrize("title", TITLES)
    @pytest.mark.parametrize("attribute", list(ObjectAttribute))
    def test_every_attribute_counts(self, title: str, attribute: ObjectAttribute) -> None:
        """But for userWithAuth, no bit may differ; that one tells the ranges apart, whose policies differ."""
        area = endorsement_area(title)
        with pytest.raises(UnsuitableKey, match=r"has the attributes|authPolicy is not that"):
            EndorsementKey.decode(replace(area, attributes=area.attributes ^ attribute).encode())

    @pytest.mark.parametrize("title", TITLES)
    def test_the_name_algorithm_counts(self, title: str) -> None:
        area = endorsement_area(title)
        other = next(algorithm for algorithm in HashAlgorithm if algorithm is not area.name_algorithm)
        changed = replace(area, name_algorithm=other, authorization_policy=b"")
        with pytest.raises(UnsuitableKey, match=f"nameAlg is not that of the endorsement key template {title}"):
            EndorsementKey.decode(changed.encode())

    @pytest.mark.parametrize("title", TITLES)
    @pytest.mark.parametrize("empty", [True, False])
    def test_the_policy_counts(self, title: str, empty: bool) -> None:
        area = endorsement_area(title)
        policy = b"" if empty else bytes(len(area.authorization_policy))
        with pytest.raises(UnsuitableKey, match=f"authPolicy is not that of the endorsement key template {title}"):
            EndorsementKey.decode(replace(area, authorization_policy=policy).encode())

    @pytest.mark.parametrize("title", TITLES)
    def test_the_symmetric_algorithm_counts(self, title: str) -> None:
        area = endorsement_area(title)
        for bits in {None, 128, 256} - {area.symmetric_key_bits}:
            with pytest.raises(UnsuitableKey, match=f"symmetric is not that of the endorsement key template {title}"):
                EndorsementKey.decode(replace(area, symmetric_key_bits=bits).encode())

    def test_a_scheme_is_refused(self) -> None:
        with pytest.raises(UnsuitableKey, match="has a signing scheme"):
            EndorsementKey.decode(endorsement_area(scheme=RSASSA).encode())

    def test_is_a_value(self) -> None:
        same, other = (EndorsementKey.decode(endorsement_area(title).encode()) for title in ("L-1", "H-1"))
        assert len({EndorsementKey(endorsement_area()), same, other}) == 2

    def test_other_curves_are_refused(self) -> None:
        area = endorsement_area("L-2", key=attestation_area(ecc_key(Curve.NIST_P521), ECDSA).key)
        with pytest.raises(UnsuitableKey, match="RSA of 2048, 3072 or 4096 bits, or on NIST P-256 or P-384"):
            EndorsementKey.decode(area.encode())

    def test_an_attestation_key_is_refused(self) -> None:
        with pytest.raises(UnsuitableKey, match="no endorsement key of this type has the attributes fixedTPM,"):
            EndorsementKey.decode(attestation_area().encode())

    def test_a_key_that_makes_no_sense_is_refused(self) -> None:
        with pytest.raises(MalformedStructure):
            EndorsementKey(endorsement_area(key=RSAKey(2048, 3, bytes(256))))
