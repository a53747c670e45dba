"""Checks which public areas may be an attestation key (AK) or an endorsement key (EK).

A TPM activates a credential for any key that it holds, including a key that signs arbitrary data, such as a forged
quote. Only the attributes distinguish these keys. They are part of the key's name, so activating the name proves them.
An :class:`AttestationKey` or :class:`EndorsementKey` exists only for a public area that passed the check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from attestors.tpm import constants as tpm
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute
from attestors.tpm.structures import PublicArea, PublicKey, RSAKey, Scheme, decode_public

_KindOfKey: TypeAlias = int | Curve
"""Bits of an RSA key, or the curve of an ECC key."""


class UnsuitableKey(ValueError):
    """The key may not be used in this role; the message names the property that prevents it."""


@dataclass(frozen=True, slots=True)
class AttestationKey:
    """A key that never leaves its TPM and signs only statements of that TPM."""

    public: PublicArea
    scheme: Scheme = field(init=False)
    """The key's only signing scheme: a restricted key has a fixed one."""
    key: PublicKey = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scheme", _check_attestation_key(self.public))
        object.__setattr__(self, "key", self.public.key.public_key())

    @classmethod
    def decode(cls, public: bytes) -> AttestationKey:
        """Parse and check TPMT_PUBLIC.

        Raises:
            MalformedStructure: not a TPMT_PUBLIC of an RSA or ECC key, or the key is invalid.
            UnsuitableKey: it may not be an attestation key.
        """
        return cls(decode_public(public))

    @property
    def name(self) -> bytes:
        """The name for which credentials are made."""
        return self.public.name


def _check_attestation_key(public: PublicArea) -> Scheme:
    missing = tpm.ATTESTATION_KEY_REQUIRED & ~public.attributes
    if missing:
        raise UnsuitableKey(f"an attestation key must have {missing.spelled} set")
    forbidden = tpm.ATTESTATION_KEY_FORBIDDEN & public.attributes
    if forbidden:
        raise UnsuitableKey(f"an attestation key must have {forbidden.spelled} clear")
    if public.symmetric_key_bits is not None:
        raise UnsuitableKey("an attestation key encrypts nothing, but has a symmetric algorithm")
    if public.scheme is None:
        raise UnsuitableKey("an attestation key must have a signing scheme: RSASSA, RSAPSS or ECDSA")
    return public.scheme


@dataclass(frozen=True, slots=True)
class EndorsementTemplate:
    """One of the templates of the TCG EK Credential Profile for TPM Family 2.0, annex B."""

    name: str
    """Its name in settings of controller and node."""
    title: str
    """Its designation in the profile."""
    name_algorithm: HashAlgorithm
    attributes: ObjectAttribute
    authorization_policy: bytes
    symmetric_key_bits: int
    kind: _KindOfKey


_LOW: Final = (HashAlgorithm.SHA256, tpm.ENDORSEMENT_KEY_LOW_RANGE, tpm.POLICY_A_SHA256, 128)
_HIGH_SHA256: Final = (HashAlgorithm.SHA256, tpm.ENDORSEMENT_KEY_HIGH_RANGE, tpm.POLICY_B_SHA256, 128)
_HIGH_SHA384: Final = (HashAlgorithm.SHA384, tpm.ENDORSEMENT_KEY_HIGH_RANGE, tpm.POLICY_B_SHA384, 256)

ENDORSEMENT_TEMPLATES: Final = (
    EndorsementTemplate("rsa-2048", "L-1", *_LOW, 2048),
    EndorsementTemplate("ecc-p256", "L-2", *_LOW, Curve.NIST_P256),
    EndorsementTemplate("high-rsa-2048", "H-1", *_HIGH_SHA256, 2048),
    EndorsementTemplate("high-ecc-p256", "H-2", *_HIGH_SHA256, Curve.NIST_P256),
    EndorsementTemplate("high-ecc-p384", "H-3", *_HIGH_SHA384, Curve.NIST_P384),
    EndorsementTemplate("high-rsa-3072", "H-6", *_HIGH_SHA384, 3072),
    EndorsementTemplate("high-rsa-4096", "H-7", *_HIGH_SHA384, 4096),
)
_TEMPLATES: Final[Mapping[tuple[_KindOfKey, ObjectAttribute], EndorsementTemplate]] = MappingProxyType(
    {(template.kind, template.attributes): template for template in ENDORSEMENT_TEMPLATES}
)
_KINDS: Final = frozenset(template.kind for template in ENDORSEMENT_TEMPLATES)


@dataclass(frozen=True, slots=True)
class EndorsementKey:
    """A key that only decrypts, for its own TPM, data made for an object of that TPM."""

    public: PublicArea
    template: EndorsementTemplate = field(init=False)
    key: PublicKey = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", _template_of(self.public))
        object.__setattr__(self, "key", self.public.key.public_key())

    @classmethod
    def decode(cls, public: bytes) -> EndorsementKey:
        """Parse and check TPMT_PUBLIC. A certificate or an inventory must show to which TPM the key belongs.

        Raises:
            MalformedStructure: not a TPMT_PUBLIC of an RSA or ECC key, or the key is invalid.
            UnsuitableKey: it may not be an endorsement key.
        """
        return cls(decode_public(public))

    @property
    def name(self) -> bytes:
        """The name of the key as an object of its TPM."""
        return self.public.name


def _template_of(public: PublicArea) -> EndorsementTemplate:
    kind = public.key.key_bits if isinstance(public.key, RSAKey) else public.key.curve
    if kind not in _KINDS:
        raise UnsuitableKey("an endorsement key is RSA of 2048, 3072 or 4096 bits, or on NIST P-256 or P-384")
    template = _TEMPLATES.get((kind, public.attributes))
    if template is None:
        raise UnsuitableKey(
            f"no endorsement key of this type has the attributes {public.attributes.spelled}:"
            " it must be a restricted decryption key of a template of the TCG EK Credential Profile"
        )
    if public.name_algorithm is not template.name_algorithm:
        raise UnsuitableKey(f"nameAlg is not that of the endorsement key template {template.title}")
    if public.authorization_policy != template.authorization_policy:
        raise UnsuitableKey(f"authPolicy is not that of the endorsement key template {template.title}")
    if public.symmetric_key_bits != template.symmetric_key_bits:
        raise UnsuitableKey(f"symmetric is not that of the endorsement key template {template.title}")
    if public.scheme is not None:
        raise UnsuitableKey("an endorsement key only decrypts, but has a signing scheme")
    return template
