"""The TPM's endorsement key (EK) and its certificate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node.connection import TPM, LoadedKey
from attestors.tpm.node.nv import NVReader, UnreadableIndex
from attestors.tpm.node.responses import TPM_RC_HANDLE, TPMRefused
from attestors.tpm.node.templates import (
    ENDORSEMENT_CHOICES,
    FIRST_CHAIN_INDEX,
    FIRST_ENDORSEMENT_INDEX,
    FIRST_PERSISTENT_HANDLE,
    LAST_CHAIN_INDEX,
    LAST_PERSISTENT_HANDLE,
    EndorsementChoice,
)
from attestors.tpm.node.tss import TPM2_ALG, NoSuchIndex, TSS2_Exception, create_ek_template

MAXIMUM_CERTIFICATE_BYTES: Final = 8 * 1024
MAXIMUM_CHAIN_BYTES: Final = 16 * 1024
"""A request has 64 KiB, and the evidence in it is base64 twice."""
MAXIMUM_TEMPLATE_BYTES: Final = 1024
"""TPMT_PUBLIC, or the nonce that is part of it."""
MAXIMUM_PERSISTENT_KEYS: Final = 8
_UNUSABLE_TEMPLATE: Final = (TSS2_Exception, ValueError, TypeError, AttributeError, IndexError)
"""Exceptions of tpm2-pytss for an invalid template, or a nonce that is too long."""


@dataclass(frozen=True, slots=True)
class EndorsementKey:
    """The loaded endorsement key, and the certificates that the TPM stores for it."""

    choice: EndorsementChoice
    key: LoadedKey
    certificate: bytes
    """As stored in NV, including padding; empty if there is none."""
    chain: bytes
    """Concatenated certificates of authorities; empty if there are none."""


@contextlib.contextmanager
def endorsement_key(tpm: TPM, wanted: EndorsementChoice | None) -> Iterator[EndorsementKey]:
    """Load the endorsement key of the ``wanted`` template, or of the first template with a certificate.

    Without any certificate, load RSA-2048, the most common key in inventories, or ECC P-256 if the TPM has no RSA.

    Raises:
        EvidenceUnavailable: the TPM cannot create the key, or its certificate is for another key.
    """
    nv = NVReader(tpm)
    indices = tpm.handles(FIRST_ENDORSEMENT_INDEX, LAST_CHAIN_INDEX)
    choice, certificate = _choose(tpm, nv, indices, wanted)
    chain = _chain(nv, indices) if certificate else b""
    public = _public_template(nv, indices, choice)
    with _loaded(tpm, choice, public, certificate) as key:
        yield EndorsementKey(choice, key, certificate, chain)


def certified_choices(tpm: TPM) -> tuple[EndorsementChoice, ...]:
    """The templates for which the TPM has a certificate."""
    nv = NVReader(tpm)
    indices = tpm.handles(FIRST_ENDORSEMENT_INDEX, LAST_CHAIN_INDEX)
    return tuple(choice for choice in ENDORSEMENT_CHOICES if _choose(tpm, nv, indices, choice)[1])


def _choose(
    tpm: TPM, nv: NVReader, indices: tuple[int, ...], wanted: EndorsementChoice | None
) -> tuple[EndorsementChoice, bytes]:
    for choice in ENDORSEMENT_CHOICES if wanted is None else (wanted,):
        if choice.certificate_index in indices:
            certificate = nv.read(choice.certificate_index, MAXIMUM_CERTIFICATE_BYTES)
            if not _is_blank(certificate):
                return choice, certificate
    if wanted is not None:
        return wanted, b""
    rsa, ecc = ENDORSEMENT_CHOICES[:2]
    return (rsa if int(TPM2_ALG.RSA) in tpm.algorithms() else ecc), b""


def _chain(nv: NVReader, indices: tuple[int, ...]) -> bytes:
    """The readable part of the chain: it only helps if the controller's operator lacks some authorities."""
    chain = b""
    for index in indices:
        if FIRST_CHAIN_INDEX <= index <= LAST_CHAIN_INDEX:
            with contextlib.suppress(UnreadableIndex):
                chain += nv.read(index, MAXIMUM_CHAIN_BYTES - len(chain))
    return b"" if _is_blank(chain) else chain


def _is_blank(content: bytes) -> bool:
    """Whether the index was defined and never written."""
    return not content.strip(b"\x00") or not content.strip(b"\xff")


def _public_template(nv: NVReader, indices: tuple[int, ...], choice: EndorsementChoice) -> Any:
    """TPM2B_PUBLIC of the profile, with the manufacturer's changes: nonce and template in NV."""

    def read(index: int) -> bytes:
        if index == choice.certificate_index:
            return b""  # already read, and every template is complete without it
        if int(index) not in indices:
            raise NoSuchIndex(index)
        return nv.read(int(index), MAXIMUM_TEMPLATE_BYTES)

    unusable = EvidenceUnavailable(
        f"the TPM's NV memory holds a nonce or a template for the endorsement key {choice.name} that cannot be used; "
        "choose another key with the setting ek"
    )
    try:
        _, public = create_ek_template(choice.title, read)
    except _UNUSABLE_TEMPLATE as error:
        raise unusable from error
    if public.publicArea.type not in (TPM2_ALG.RSA, TPM2_ALG.ECC):
        raise unusable
    return public


@contextlib.contextmanager
def _loaded(tpm: TPM, choice: EndorsementChoice, public: Any, certificate: bytes) -> Iterator[LoadedKey]:
    persistent = _persistent(tpm, public.publicArea, certificate)
    if persistent is not None:
        yield persistent
        return
    with tpm.primary(f"make the endorsement key {choice.name}", public) as key:
        if certificate and not _certifies(certificate, key.public):
            raise EvidenceUnavailable(
                f"the TPM's certificate in NV index {choice.certificate_index:#010x} is for another endorsement key "
                f"than the one that its seed gives ({choice.name}): was the TPM reset, or its state copied? A key "
                "of another template can be chosen with the setting ek"
            )
        yield key


def _persistent(tpm: TPM, template: Any, certificate: bytes) -> LoadedKey | None:
    """The persistent copy of the key, if the TPM holds one: of this template, and the key in the certificate.

    A real TPM takes seconds to create an RSA key. Without a certificate a persistent key cannot be identified.
    """
    if not certificate:
        return None
    for handle in tpm.handles(FIRST_PERSISTENT_HANDLE, LAST_PERSISTENT_HANDLE)[:MAXIMUM_PERSISTENT_KEYS]:
        doing = f"show its key {handle:#010x}"
        try:
            loaded = tpm.ask(doing, tpm.esys.tr_from_tpmpublic, handle)
            public, *_ = tpm.ask(doing, tpm.esys.read_public, loaded)
        except TPMRefused as refused:
            if refused.code == TPM_RC_HANDLE:
                continue  # in a disabled hierarchy, or just removed
            raise
        area = public.publicArea
        if _without_unique(area) == _without_unique(template) and _certifies(certificate, area):
            return LoadedKey(loaded, area)
    return None


def _certifies(certificate: bytes, public: Any) -> bool:
    """Whether the certificate contains the modulus, or both coordinates, as every certificate for the key does.

    It only chooses between keys and reports errors early; the controller parses the certificate and compares.
    """
    unique = public.unique
    parts = (unique.rsa,) if public.type == TPM2_ALG.RSA else (unique.ecc.x, unique.ecc.y)
    return all(bytes(part) in certificate for part in parts)


def _without_unique(public: Any) -> bytes:
    """TPMT_PUBLIC without its last member, which is a nonce in a template and the key in a created object."""
    marshalled = bytes(public.marshal())
    if public.type == TPM2_ALG.RSA:
        unique = 2 + len(bytes(public.unique.rsa))
    else:
        unique = 4 + len(bytes(public.unique.ecc.x)) + len(bytes(public.unique.ecc.y))
    return marshalled[:-unique]
