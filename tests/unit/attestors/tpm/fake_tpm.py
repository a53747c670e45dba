"""A fake TPM: keys that Python holds, credentials opened and quotes signed as a TPM, or an attacker, would."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.tpm import wire
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.constants import Curve, ObjectAttribute
from attestors.tpm.credential import Credential
from attestors.tpm.selection import PCRSelection
from attestors.tpm.structures import PublicArea, Scheme
from attestors.wire.binding import Binding
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    AUTHORITY,
    ENDORSEMENT,
    INTERMEDIATE_NAME,
    authority_draft,
    elliptic_key,
    endorsement,
)
from tests.unit.attestors.tpm.support import (
    AK_ATTRIBUTES,
    ECDSA,
    PrivateKey,
    attestation_area,
    ecc_key,
    endorsement_area,
    endorsement_private_key,
    public_key_of,
    sign,
    statement_of,
    values_of,
)
from tests.unit.attestors.tpm.test_credential import activate

Fields = Mapping[str, str]
Mangle = Callable[[bytes], bytes]

UNRESTRICTED: Final = AK_ATTRIBUTES & ~ObjectAttribute.RESTRICTED
"""Of a key that signs whatever it is told to."""
_RSA_ENDORSEMENT: Final = (
    write.basic_constraints(),
    write.key_usage(write.KEY_ENCIPHERMENT),
    write.purposes(write.EK_CERTIFICATE),
)


def unchanged(data: bytes) -> bytes:
    return data


def text(content: bytes) -> str:
    """As a field of the evidence has it."""
    return base64.b64encode(content).decode("ascii")


@dataclass(frozen=True)
class FakeTPM:
    """One chip: an endorsement key, an attestation key, and what its maker gave it. Use :meth:`but` for attacks."""

    endorsement: PrivateKey
    endorsement_area: PublicArea
    attestation: PrivateKey
    attestation_area: PublicArea
    scheme: Scheme = ECDSA
    certificate: bytes = b""
    chain: bytes = b""
    more: Fields = field(default_factory=dict)
    """Fields that it sends beside the others."""

    @classmethod
    def new(cls, number: int = 1, title: str = "L-2") -> FakeTPM:
        """The chip of that number, with an endorsement key of that template; RSA ones are always the same."""
        private = ecc_key(Curve.NIST_P256, 1000 + number) if title == "L-2" else endorsement_private_key(title)
        attestation = ecc_key(number=5000 + number)
        return cls(
            private,
            endorsement_area(title, key=public_key_of(private)),
            attestation,
            attestation_area(attestation, ECDSA),
        )

    def but(self, **changes: Any) -> FakeTPM:
        return replace(self, **changes)

    def with_another_key(self, title: str) -> FakeTPM:
        """The same chip, with the endorsement key of another template: RSA ones are always the same."""
        private = endorsement_private_key(title)
        return self.but(endorsement=private, endorsement_area=endorsement_area(title, key=public_key_of(private)))

    def certified(self, **changes: Any) -> FakeTPM:
        """With a certificate by the intermediate of ``endorsement.support``; ``changes`` are fields of a Draft."""
        extensions = _RSA_ENDORSEMENT if isinstance(self.endorsement, rsa.RSAPrivateKey) else ENDORSEMENT
        made = endorsement(self.endorsement, **{"extensions": extensions, **changes})
        return self.but(certificate=made)

    @property
    def key(self) -> EndorsementKey:
        return EndorsementKey(self.endorsement_area)

    @property
    def fingerprint(self) -> str:
        """What a hardware inventory has of it."""
        return f"sha256:{hashlib.sha256(self.public_key_information).hexdigest()}"

    @property
    def public_key_information(self) -> bytes:
        return self.endorsement.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def pem(self) -> str:
        """The endorsement key as ``tpm2_readpublic -f pem`` writes it."""
        return self.endorsement.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def first(self) -> dict[str, str]:
        """The fields of a first request."""
        fields = {
            wire.ENDORSEMENT_PUBLIC_FIELD: text(self.endorsement_area.encode()),
            wire.ATTESTATION_PUBLIC_FIELD: text(self.attestation_area.encode()),
            **self.more,
        }
        if self.certificate:
            fields[wire.ENDORSEMENT_CERTIFICATE_FIELD] = text(self.certificate)
        if self.chain:
            fields[wire.ENDORSEMENT_CHAIN_FIELD] = text(self.chain)
        return fields

    def open(self, challenge: str) -> bytes:
        """TPM2_ActivateCredential.

        Raises:
            NotActivated: it is for another attestation key.
            ValueError: it is for another endorsement key.
        """
        asked = json.loads(challenge)
        blob, secret = (base64.b64decode(asked[key]) for key in (wire.CREDENTIAL_BLOB_KEY, wire.ENCRYPTED_SECRET_KEY))
        return activate(self.key, self.endorsement, self.attestation_area.name, Credential(blob, secret))

    def answer(
        self,
        challenge: str,
        binding: Binding,
        *,
        secret: bytes | None = None,
        token: str = "",
        selection: str = "",
        values: bytes | None = None,
        mangle: Mangle = unchanged,
        mangle_signature: Mangle = unchanged,
    ) -> dict[str, str]:
        """The fields of the answer. Whatever is given replaces what an honest TPM would say."""
        asked = json.loads(challenge)
        registers = PCRSelection.parse(selection or asked[wire.PCR_SELECTION_KEY])
        opened = self.open(challenge) if secret is None else secret
        extra_data = hashlib.sha256(opened + binding.value).digest()
        quote = mangle(statement_of(registers, extra_data, self.scheme.hash).encode())
        return {
            **self.first(),
            wire.CHALLENGE_TOKEN_FIELD: token or asked[wire.TOKEN_KEY],
            wire.QUOTE_FIELD: text(quote),
            wire.QUOTE_SIGNATURE_FIELD: text(mangle_signature(sign(self.attestation, self.scheme, quote).encode())),
            wire.PCR_VALUES_FIELD: text(values_of(registers) if values is None else values),
        }


def authority_certificate(chip: FakeTPM) -> bytes:
    """A certificate authority's certificate for the chip's endorsement key: its chain is good, its use is not."""
    draft = authority_draft(write.common_name("An authority"), INTERMEDIATE_NAME, chip.endorsement)
    return draft.signed(elliptic_key("intermediate"), write.SHA256_ECDSA)


def self_signed_root(chip: FakeTPM, *, extensions: tuple[bytes, ...] = AUTHORITY) -> bytes:
    """A root of the attacker's own, for its own endorsement key."""
    name = write.common_name("A root")
    return authority_draft(name, name, chip.endorsement, extensions=extensions).signed(
        chip.endorsement, write.SHA256_ECDSA
    )


def attestation_certificate(chip: FakeTPM) -> bytes:
    """An attestation key's certificate, by the same authority, for the chip's endorsement key."""
    extensions = (
        write.basic_constraints(),
        write.key_usage(write.DIGITAL_SIGNATURE),
        write.purposes(write.AK_CERTIFICATE),
    )
    return endorsement(chip.endorsement, extensions=extensions)


def expired_certificate(chip: FakeTPM) -> bytes:
    return endorsement(chip.endorsement, not_after=datetime(2025, 1, 1, tzinfo=UTC))
