from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES, AttestationKey, EndorsementKey
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.credential import Credential, InvalidSecret, make_credential
from attestors.tpm.structures import CRYPTOGRAPHY_HASHES, ECCKey
from tests.unit.attestors.tpm.support import (
    ECDSA,
    SHORT,
    PrivateKey,
    attestation_area,
    ecc_key,
    endorsement_area,
    endorsement_private_key,
    public_key_of,
    recording,
)

AK = AttestationKey(attestation_area(ecc_key(), ECDSA))
OTHER_AK = AttestationKey(attestation_area(ecc_key(number=99), ECDSA))
SECRET = bytes(range(100, 132))
TITLES = [template.title for template in ENDORSEMENT_TEMPLATES if template.title != "H-6"]
"""H-6 (RSA-3072) is among the recorded ones; making such a key takes a second."""
RECORDED = recording()["credentials"]


class NotActivated(Exception):
    pass


def activate(endorsement_key: EndorsementKey, private: PrivateKey, name: bytes, credential: Credential) -> bytes:
    """TPM2_ActivateCredential, written a second time from Part 1, section 24, without the library's derivations."""
    algorithm = endorsement_key.public.name_algorithm
    seed = open_seed(endorsement_key, private, unsized(credential.encrypted_secret))
    blob = unsized(credential.id_object)
    size = int.from_bytes(blob[:2], "big")
    integrity, identity = blob[2 : 2 + size], blob[2 + size :]
    hmac_key = kdfa(algorithm, seed, b"INTEGRITY", b"", algorithm.digest_bytes * 8)
    if not hmac.compare_digest(hmac.digest(hmac_key, identity + name, algorithm.text), integrity):
        raise NotActivated
    bits = endorsement_key.public.symmetric_key_bits
    assert bits is not None
    decryptor = Cipher(AES(kdfa(algorithm, seed, b"STORAGE", name, bits)), CFB(bytes(16))).decryptor()
    return unsized(decryptor.update(identity) + decryptor.finalize())


def open_seed(endorsement_key: EndorsementKey, private: PrivateKey, encrypted: bytes) -> bytes:
    algorithm = endorsement_key.public.name_algorithm
    if isinstance(private, rsa.RSAPrivateKey):
        digest = CRYPTOGRAPHY_HASHES[algorithm]
        return private.decrypt(encrypted, padding.OAEP(padding.MGF1(digest), digest, b"IDENTITY\0"))
    area = endorsement_key.public.key
    assert isinstance(area, ECCKey)
    size = area.curve.coordinate_bytes
    x, y = encrypted[2 : 2 + size], encrypted[4 + size :]
    assert encrypted == size.to_bytes(2, "big") + x + size.to_bytes(2, "big") + y
    point = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), private.curve)
    shared = private.exchange(ec.ECDH(), point.public_key())
    return hashlib.new(algorithm.text, b"\0\0\0\x01" + shared + b"IDENTITY\0" + x + area.x).digest()


def kdfa(algorithm: HashAlgorithm, key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    message = b"\0\0\0\x01" + label + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.digest(key, message, algorithm.text)[: bits // 8]


def unsized(data: bytes) -> bytes:
    assert int.from_bytes(data[:2], "big") == len(data) - 2
    return data[2:]


def make(title: str = "L-2", secret: bytes = SECRET) -> tuple[EndorsementKey, PrivateKey, Credential]:
    endorsement_key = EndorsementKey(endorsement_area(title))
    credential = make_credential(endorsement_key, AK, secret, random_bytes=secrets.token_bytes)
    return endorsement_key, endorsement_private_key(title), credential


@pytest.mark.parametrize("title", TITLES)
class TestEveryTemplate:
    def test_the_holder_of_both_keys_reads_the_secret(self, title: str) -> None:
        endorsement_key, private, credential = make(title)
        assert activate(endorsement_key, private, AK.name, credential) == SECRET

    def test_with_another_attestation_key_it_cannot_be_read(self, title: str) -> None:
        endorsement_key, private, credential = make(title)
        with pytest.raises(NotActivated):
            activate(endorsement_key, private, OTHER_AK.name, credential)

    def test_the_secret_is_not_in_it(self, title: str) -> None:
        _, _, credential = make(title)
        assert SECRET[:8] not in credential.id_object + credential.encrypted_secret

    def test_a_secret_may_be_as_large_as_a_digest(self, title: str) -> None:
        endorsement_key = EndorsementKey(endorsement_area(title))
        size = endorsement_key.public.name_algorithm.digest_bytes
        for secret in (b"x", b"x" * size):
            _, private, credential = make(title, secret)
            assert activate(endorsement_key, private, AK.name, credential) == secret
        for secret in (b"", b"x" * (size + 1)):
            with pytest.raises(InvalidSecret, match=f"1 to {size} bytes"):
                make(title, secret)


@pytest.mark.parametrize("title", ["L-1", "L-2", "H-3"])
def test_two_credentials_share_no_seed(title: str) -> None:
    credentials = [make(title)[2] for _ in range(2)]
    assert credentials[0].id_object != credentials[1].id_object
    assert credentials[0].encrypted_secret != credentials[1].encrypted_secret


@pytest.mark.parametrize(("title", "count"), [("L-1", 32), ("L-2", 40), ("H-3", 56), ("H-7", 48)])
def test_as_many_random_bytes_are_asked_for_as_are_needed(title: str, count: int) -> None:
    asked = []

    def random_bytes(number: int) -> bytes:
        asked.append(number)
        return secrets.token_bytes(number)

    make_credential(EndorsementKey(endorsement_area(title)), AK, SECRET, random_bytes=random_bytes)
    assert asked == [count]


def test_the_endorsement_keys_x_goes_in_as_its_tpm_has_it() -> None:
    """Older TPMs leave out zeros in front, when they show it and when they derive from it."""
    padded = public_key_of(ecc_key(number=SHORT))
    assert isinstance(padded, ECCKey)
    for x in (padded.x, padded.x.lstrip(b"\0")):
        endorsement_key = EndorsementKey(endorsement_area("L-2", key=replace(padded, x=x)))
        credential = make_credential(endorsement_key, AK, SECRET, random_bytes=secrets.token_bytes)
        assert activate(endorsement_key, ecc_key(number=SHORT), AK.name, credential) == SECRET


ORDER_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@pytest.mark.parametrize(
    ("random", "scalar"),
    [
        pytest.param(0, 1, id="zero"),
        pytest.param(1, 2, id="one"),
        pytest.param(ORDER_P256 - 2, ORDER_P256 - 1, id="greatest"),
        pytest.param(ORDER_P256 - 1, 1, id="order-less-one"),
        pytest.param(ORDER_P256, 2, id="order"),
    ],
)
def test_every_random_number_is_a_scalar(random: int, scalar: int) -> None:
    """Never zero, never the order: both would give a point that no TPM takes, or that anybody can guess."""
    key = EndorsementKey(endorsement_area("L-2"))
    credential = make_credential(key, AK, SECRET, random_bytes=lambda count: random.to_bytes(count, "big"))
    point = ec.derive_private_key(scalar, ec.SECP256R1()).public_key().public_numbers()
    sized_x, sized_y = (b"\0\x20" + number.to_bytes(32, "big") for number in (point.x, point.y))
    assert credential.encrypted_secret == b"\0\x44" + sized_x + sized_y


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["template"])
class TestRecorded:
    """A software TPM activated these; see ``fixtures/tpm/README.md``."""

    @staticmethod
    def make(recorded: Any, random_bytes: Callable[[int], bytes]) -> Credential:
        endorsement_key = EndorsementKey.decode(bytes.fromhex(recorded["endorsementKey"]))
        assert endorsement_key.template.title == recorded["template"]
        attestation_key = AttestationKey.decode(bytes.fromhex(recorded["attestationKey"]))
        secret = bytes.fromhex(recorded["secret"])
        return make_credential(endorsement_key, attestation_key, secret, random_bytes=random_bytes)

    def test_the_same_random_bytes_make_the_same_credential(self, recorded: Any) -> None:
        credential = self.make(recorded, lambda count: bytes.fromhex(recorded["randomBytes"]))
        assert credential.id_object.hex() == recorded["idObject"]
        # RSA encryption has random bytes of its own.
        if recorded["template"] in ("L-2", "H-2", "H-3"):
            assert credential.encrypted_secret.hex() == recorded["encryptedSecret"]
        else:
            assert len(credential.encrypted_secret.hex()) == len(recorded["encryptedSecret"])

    def test_other_random_bytes_make_another(self, recorded: Any) -> None:
        assert self.make(recorded, secrets.token_bytes).id_object.hex() != recorded["idObject"]
