"""Structures of a TPM, endorsement certificates, inventories and challenges."""

from __future__ import annotations

import contextlib
from typing import Final

from attestors.contract import EvidenceUnavailable
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey, UnsuitableKey
from attestors.tpm.challenge import InvalidToken, Token
from attestors.tpm.endorsement.certificate import Certificate, read_certificates, read_stored_certificate
from attestors.tpm.endorsement.errors import CertificateUnreadable
from attestors.tpm.endorsement_key_sources.listing import InvalidListing, Listing, parse_listing
from attestors.tpm.node.challenge import Challenge, parse_challenge
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.selection import InvalidPCRSelection, PCRSelection
from attestors.tpm.statement import QuoteStatement, decode_quote
from attestors.tpm.structures import PublicArea, Signature, decode_public, decode_signature
from tests.fuzz.target import Shape, Target, require, text_of, unicode_of

_CERTIFICATES: Final = 4


def _public(data: bytes) -> PublicArea:
    public = decode_public(data)
    require(public.encode() == data, "not the only encoding")
    with contextlib.suppress(MalformedStructure):
        public.key.public_key()
    for kind in (EndorsementKey, AttestationKey):
        with contextlib.suppress(MalformedStructure, UnsuitableKey):
            require(kind.decode(data).name == public.name, "another name than the public area's")
    return public


def _signature(data: bytes) -> Signature:
    signature = decode_signature(data)
    require(signature.encode() == data, "not the only encoding")
    return signature


def _quote(data: bytes) -> QuoteStatement:
    return decode_quote(data)


def _certificate(data: bytes) -> Certificate:
    return read_stored_certificate(data)


def _certificates(data: bytes) -> tuple[Certificate, ...]:
    read = read_certificates(data, maximum_count=_CERTIFICATES)
    require(len(read) <= _CERTIFICATES, "too many certificates")
    return read


def _selection(data: bytes) -> PCRSelection:
    selection = PCRSelection.parse(text_of(data))
    require(PCRSelection.parse(str(selection)) == selection, "what is written is not what was read")
    return selection


def _token(data: bytes) -> Token:
    text = text_of(data)
    token = Token.parse(text)
    require(str(token) == text, "what is written is not what was read")
    return token


def _challenge(data: bytes) -> Challenge:
    return parse_challenge(text_of(data))


def _listing(data: bytes) -> Listing:
    return parse_listing(unicode_of(data))


TARGETS: Final = (
    Target("tpm-public", _public, (MalformedStructure,)),
    Target("tpm-signature", _signature, (MalformedStructure,)),
    Target("tpm-quote", _quote, (MalformedStructure,)),
    Target("tpm-certificate", _certificate, (CertificateUnreadable,)),
    Target("tpm-certificates", _certificates, (CertificateUnreadable,)),
    Target("tpm-pcr-selection", _selection, (InvalidPCRSelection,)),
    Target("tpm-challenge-token", _token, (InvalidToken,)),
    Target("tpm-challenge", _challenge, (EvidenceUnavailable,), Shape.JSON),
    Target("tpm-inventory", _listing, (InvalidListing,)),
)
