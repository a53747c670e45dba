"""What a software TPM said, and what it would have us believe; see ``fixtures/tpm/README.md``."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.tpm.attestation_key import AttestationKey, UnsuitableKey
from attestors.tpm.constants import HashAlgorithm, SignatureAlgorithm
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.selection import PCRSelection
from attestors.tpm.statement import decode_quote
from attestors.tpm.structures import decode_public, decode_signature
from attestors.wire.binding import BindingMismatch
from tests.unit.attestors.tpm.support import Evidence, recording

QUOTES = recording()["quotes"]
REFUSED = {recorded["title"]: recorded for recorded in recording()["refusedQuotes"]}


def evidence(recorded: Any) -> Evidence:
    parts = ("attestationKey", "quote", "signature", "pcrValues")
    return Evidence(*(bytes.fromhex(recorded[part]) for part in parts))


def selection(recorded: Any) -> PCRSelection:
    if recorded["pcrSelection"].startswith("sha1"):
        return PCRSelection.parse(recorded["pcrSelection"].replace("sha1", "sha256"))
    return PCRSelection.parse(recorded["pcrSelection"])


@pytest.mark.parametrize("recorded", QUOTES, ids=lambda recorded: recorded["title"])
class TestQuotes:
    def test_is_verified(self, recorded: Any) -> None:
        verified = evidence(recorded).verify(selection(recorded), bytes.fromhex(recorded["extraData"]))
        assert b"".join(verified.pcrs.values()).hex() == recorded["pcrValues"]
        assert str(verified.statement.selection) == recorded["pcrSelection"]

    def test_encodes_to_the_same_bytes(self, recorded: Any) -> None:
        parts = evidence(recorded)
        assert decode_public(parts.ak_public).encode() == parts.ak_public
        assert decode_quote(parts.quote).encode() == parts.quote
        assert decode_signature(parts.signature).encode() == parts.signature

    def test_of_another_nonce_is_refused(self, recorded: Any) -> None:
        with pytest.raises(BindingMismatch):
            evidence(recorded).verify(selection(recorded), bytes(32))


def test_there_are_quotes_of_every_kind() -> None:
    schemes = {AttestationKey.decode(evidence(recorded).ak_public).scheme for recorded in QUOTES}
    assert {scheme.algorithm for scheme in schemes} == set(SignatureAlgorithm)
    assert {scheme.hash for scheme in schemes} == set(HashAlgorithm)


@pytest.mark.parametrize(
    ("title", "refused", "fault"),
    [
        ("signed with SHA-1", MalformedStructure, "TPMT_PUBLIC: scheme uses SHA-1"),
        ("of the SHA-1 bank", MalformedStructure, "TPMS_ATTEST: pcrSelect uses SHA-1"),
        ("forged by an unrestricted key", UnsuitableKey, "must have restricted set"),
    ],
)
def test_refused_forms_that_tpms_produce(title: str, refused: type[Exception], fault: str) -> None:
    recorded = REFUSED[title]
    with pytest.raises(refused, match=fault):
        evidence(recorded).verify(selection(recorded), bytes.fromhex(recorded["extraData"]))


def test_every_recorded_refusal_is_tried() -> None:
    assert set(REFUSED) == {"signed with SHA-1", "of the SHA-1 bank", "forged by an unrestricted key"}
