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
"""A request has 64 KiB, twice encoded in base64."""
MAXIMUM_TEMPLATE_BYTES: Final = 1024
"""TPMT_PUBLIC, or the nonce that goes into one."""
MAXIMUM_PERSISTENT_KEYS: Final = 8
_UNUSABLE_TEMPLATE: Final = (TSS2_Exception, ValueError, TypeError, AttributeError, IndexError)
"""What tpm2-pytss raises for bytes that are no template, or a nonce that is too long."""


@dataclass(frozen=True, slots=True)
class EndorsementKey:
    """The loaded endorsement key, and the certificates that the TPM has for it."""

    key: LoadedKey
    certificate: bytes
    """As it is in NV, padding and all; empty where there is none."""
    chain: bytes
    """Certificates of authorities, one after the other; empty where there are none."""


@contextlib.contextmanager
def endorsement_key(tpm: TPM, wanted: EndorsementChoice | None) -> Iterator[EndorsementKey]:
    """Load the endorsement key of the ``wanted`` template, or of the first that there is a certificate for.

    Where there is no certificate at all: RSA-2048, which inventories know best, or ECC P-256 where the TPM has no RSA.

    Raises:
        EvidenceUnavailable: the TPM cannot make the key, or its certificate is for another key.
    """
    nv = NVReader(tpm)
    indices = tpm.handles(FIRST_ENDORSEMENT_INDEX, LAST_CHAIN_INDEX)
    choice, certificate = _choose(tpm, nv, indices, wanted)
    chain = _chain(nv, indices) if certificate else b""
    public = _public_template(nv, indices, choice)
    with _loaded(tpm, choice, public, certificate) as key:
        yield EndorsementKey(key, certificate, chain)


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
    """As much of it as can be read: it only helps, where the controller's operator has not all of the authorities."""
    chain = b""
    for index in indices:
        if FIRST_CHAIN_INDEX <= index <= LAST_CHAIN_INDEX:
            with contextlib.suppress(UnreadableIndex):
                chain += nv.read(index, MAXIMUM_CHAIN_BYTES - len(chain))
    return b"" if _is_blank(chain) else chain


def _is_blank(content: bytes) -> bool:
    """Whether an index was set aside and never filled."""
    return not content.strip(b"\x00") or not content.strip(b"\xff")


def _public_template(nv: NVReader, indices: tuple[int, ...], choice: EndorsementChoice) -> Any:
    """TPM2B_PUBLIC of the profile, with what the manufacturer changed in it: nonce and template in NV."""

    def read(index: int) -> bytes:
        if index == choice.certificate_index:
            return b""  # read before, and no template is without one
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
    """The same key where it is kept ready: of this template, and the one that the certificate is for.

    Making an RSA key anew takes a real TPM seconds. Without a certificate nobody could tell whose the kept key is.
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
                continue  # of a disabled hierarchy, or just removed
            raise
        area = public.publicArea
        if _without_unique(area) == _without_unique(template) and _certifies(certificate, area):
            return LoadedKey(loaded, area)
    return None


def _certifies(certificate: bytes, public: Any) -> bool:
    """Whether the certificate contains the modulus, or both coordinates, as every certificate for the key does.

    Only to choose between keys and to tell a person early; the controller reads the certificate and compares.
    """
    unique = public.unique
    parts = (unique.rsa,) if public.type == TPM2_ALG.RSA else (unique.ecc.x, unique.ecc.y)
    return all(bytes(part) in certificate for part in parts)


def _without_unique(public: Any) -> bytes:
    """TPMT_PUBLIC without its last member, which is a nonce in a template and the key in what is made of it."""
    marshalled = bytes(public.marshal())
    if public.type == TPM2_ALG.RSA:
        unique = 2 + len(bytes(public.unique.rsa))
    else:
        unique = 4 + len(bytes(public.unique.ecc.x)) + len(bytes(public.unique.ecc.y))
    return marshalled[:-unique]
