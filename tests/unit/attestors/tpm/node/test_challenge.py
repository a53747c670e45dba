"""The node reads the controller's challenge strictly: it comes through an API server that need not be honest."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node import challenge
from attestors.tpm.node.challenge import Challenge, parse_challenge
from attestors.tpm.selection import PCRSelection


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()


BLOB = sized(b"blob")
SECRET = sized(b"encrypted secret")
GOOD = {
    "version": "v1",
    "token": "abc.DEF-123_~",
    "credentialBlob": text(BLOB),
    "encryptedSecret": text(SECRET),
    "pcrSelection": "sha256:0,1,7",
}


def changed(**values: Any) -> str:
    return json.dumps({**GOOD, **values})


def test_good_challenge() -> None:
    assert parse_challenge(json.dumps(GOOD)) == Challenge(
        GOOD["token"], BLOB, SECRET, PCRSelection.parse("sha256:0,1,7")
    )


def test_largest_challenge() -> None:
    parsed = parse_challenge(
        changed(
            token="t" * challenge.MAXIMUM_TOKEN_CHARACTERS,
            credentialBlob=text(sized(bytes(challenge.MAXIMUM_CREDENTIAL_BLOB_BYTES - 2))),
            encryptedSecret=text(sized(bytes(challenge.MAXIMUM_ENCRYPTED_SECRET_BYTES - 2))),
        )
    )
    assert len(parsed.encrypted_secret) == challenge.MAXIMUM_ENCRYPTED_SECRET_BYTES


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("x", "is not JSON"),
        ("[" * 10_000, "is not JSON"),
        ("9" * 10_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ('"v1"', "is not a JSON object"),
        (" " * (challenge.MAXIMUM_CHALLENGE_CHARACTERS + 1), "longer than 16384 characters"),
        ("{}", "version must be v and a number"),
        (changed(version="v1\n"), "version must be v and a number"),
        (changed(version="v" + "1" * 100), "version must be v and a number"),
        (changed(version="v2"), "has version v2: upgrade this program"),
        (changed(version=1), "every value must be a string"),
        (changed(token={}), "every value must be a string"),
        (changed(token=None), "every value must be a string"),
        (changed(more="x"), "exactly the keys credentialBlob, encryptedSecret"),
        (json.dumps({key: value for key, value in GOOD.items() if key != "token"}), "exactly the keys"),
        (json.dumps(GOOD)[:-1] + ', "token": "again"}', "repeats a key"),
        (changed(token=""), "token must have 1 to 8192 printable"),
        (changed(token="t" * (challenge.MAXIMUM_TOKEN_CHARACTERS + 1)), "token must have 1 to 8192 printable"),
        (changed(token="a b"), "token must have 1 to 8192 printable"),
        (changed(token="\ud800"), "token must have 1 to 8192 printable"),
        (changed(credentialBlob=""), "credentialBlob does not begin with the size"),
        (changed(credentialBlob=text(sized(b""))), "credentialBlob does not begin with the size"),
        (changed(credentialBlob=text(BLOB + b"x")), "credentialBlob does not begin with the size"),
        (changed(credentialBlob=text(BLOB[:-1])), "credentialBlob does not begin with the size"),
        (changed(credentialBlob="!!!!"), "credentialBlob is not base64"),
        (changed(credentialBlob="é"), "credentialBlob is not base64"),
        (changed(credentialBlob="AAFB"[:3]), "credentialBlob is not base64"),
        (changed(credentialBlob="AAF/\n"), "credentialBlob is not base64"),
        (changed(credentialBlob="AAFBQV=="), "credentialBlob is not canonical base64"),
        (changed(credentialBlob=text(sized(bytes(133)))), "credentialBlob is not canonical base64 of at most 134"),
        (changed(credentialBlob="A" * 1000), "credentialBlob is larger than 134 bytes"),
        (changed(encryptedSecret="A" * 1000), "encryptedSecret is larger than 514 bytes"),
        (changed(pcrSelection=""), "pcrSelection: a PCR selection is"),
        (changed(pcrSelection="sha256:"), "pcrSelection: a PCR selection is"),
        (changed(pcrSelection="sha1:0"), "pcrSelection: a PCR selection is"),
        (changed(pcrSelection="sha256:7,0"), "pcrSelection: .* ascending"),
        (changed(pcrSelection="sha256:24"), "pcrSelection: a PCR is 0 to 23"),
        (changed(pcrSelection="sha256:0+" * 100), "pcrSelection is longer than 256 characters"),
    ],
)
def test_refused(given: str, sentence: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=sentence):
        parse_challenge(given)


@given(st.text() | st.dictionaries(st.sampled_from(sorted(GOOD)), st.text()).map(json.dumps))
def test_nothing_else_is_raised(given: str) -> None:
    with pytest.raises(EvidenceUnavailable):
        parse_challenge(given)
