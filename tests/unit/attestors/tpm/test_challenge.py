from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from attestors.tpm import wire
from attestors.tpm.attestation_key import AttestationKey
from attestors.tpm.challenge import (
    LIFETIME,
    ChallengeExpired,
    ChallengeFromTheFuture,
    ChallengeInputs,
    ChallengeOfAnotherCluster,
    InvalidToken,
    Token,
    cluster_identifier,
    key_identifier,
)
from attestors.tpm.node.challenge import MAXIMUM_CHALLENGE_CHARACTERS, parse_challenge
from attestors.tpm.selection import PCRSelection
from attestors.tpm.wire import qualifying_data
from attestors.wire.binding import Binding
from tests.unit.attestors.support import NOW
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.test_credential import NotActivated

UID: Final = "7c1c0f3e-7d1e-4c0a-9b46-0f6a3f0f7a11"
KEY: Final = bytes(range(32))
CHIP: Final = FakeTPM.new()
OTHER: Final = FakeTPM.new(2)
SELECTION: Final = PCRSelection.parse("sha256:0,7+sha384:1")
CLUSTER_UID: Final = "0f0c2b1e-1111-4c0a-9b46-0f6a3f0f7a22"
TOKEN: Final = Token.issue(UID, CLUSTER_UID, NOW).under(KEY)
CLUSTER: Final = cluster_identifier(CLUSTER_UID)
NAMED: Final = f"2.{UID}-{CLUSTER}-{key_identifier(KEY)}"
CHALLENGED: Final = ChallengeInputs(
    TOKEN, CHIP.key, AttestationKey(CHIP.attestation_area), Binding(bytes(range(100, 132))), CLUSTER_UID
)


def text_of(challenged: ChallengeInputs = CHALLENGED, key: bytes = KEY, number: int = 7) -> str:
    return challenged.text(key, SELECTION, random_bytes=lambda count: bytes([number]) * count)


class TestToken:
    def test_says_for_which_request_and_until_when(self) -> None:
        expiry = int((NOW + timedelta(minutes=5)).timestamp())
        assert str(TOKEN) == f"{NAMED}.{expiry}"
        assert Token.parse(str(TOKEN)) == TOKEN
        assert len(str(TOKEN)) <= wire.MAXIMUM_TOKEN_CHARACTERS

    def test_the_longest_one_that_is_given_is_taken_back(self) -> None:
        longest = Token.issue("u" * 128, CLUSTER_UID, datetime(9000, 1, 1, tzinfo=UTC)).under(KEY)
        assert len(str(longest)) <= wire.MAXIMUM_TOKEN_CHARACTERS
        assert Token.parse(str(longest)) == longest

    def test_names_its_challenge_key_and_tells_nothing_of_it(self) -> None:
        named = Token.issue(UID, CLUSTER_UID, NOW).under(KEY)
        identifier = hmac.digest(KEY, b"tpm challenge key identifier v1", "sha256").hex()[:16]
        assert str(named) == f"2.{UID}-{CLUSTER}-{identifier}.{TOKEN.expiry}"
        assert Token.parse(str(named)) == named
        other = TOKEN.under(bytes(32))
        assert other != named
        for token in (other, Token.issue(UID, CLUSTER_UID, NOW)):
            assert replace(CHALLENGED, token=token).secret(KEY) != CHALLENGED.secret(KEY)

    def test_a_uid_that_ends_like_an_identifier_stays_whole(self) -> None:
        uid = f"{UID}-{key_identifier(bytes(32))}"
        text = f"2.{uid}-{CLUSTER}-{key_identifier(KEY)}.{TOKEN.expiry}"
        assert str(Token.issue(uid, CLUSTER_UID, NOW).under(KEY)) == text

    @pytest.mark.parametrize(
        "text",
        [
            "",
            ".",
            UID,
            f"{UID}.",
            f".{TOKEN.expiry}",
            f"{NAMED}.0",
            f"{NAMED}.0{TOKEN.expiry}",
            f"{NAMED}.-1",
            f"{NAMED}.+{TOKEN.expiry}",
            f"{NAMED}.{TOKEN.expiry}.0",
            f"{NAMED}.1e9",
            f"{NAMED}.{10**12}",
            f"{NAMED}. {TOKEN.expiry}",
            f"{UID}.{TOKEN.expiry}",
            f"-{key_identifier(KEY)}.{TOKEN.expiry}",
            f"{UID}-{key_identifier(KEY).upper()}.{TOKEN.expiry}",
            f"{TOKEN}\n",
            f" {TOKEN}",
            f"{UID}/x-{key_identifier(KEY)}.{TOKEN.expiry}",
            f"{NAMED}.\u0661\u0662\u0663",
            f"\u00fc-{key_identifier(KEY)}.{TOKEN.expiry}",
            f"-{key_identifier(KEY)[:15]}\u0661.{TOKEN.expiry}",
            f"{'u' * 129}-{key_identifier(KEY)}.{TOKEN.expiry}",
            f"2.{UID}-{key_identifier(KEY)}.{TOKEN.expiry}".replace("-", ""),
            f"2.{key_identifier(KEY)}-{key_identifier(KEY)}.{TOKEN.expiry}",
            f"3.{UID}-{CLUSTER}-{key_identifier(KEY)}.{TOKEN.expiry}",
        ],
        ids=range(26),
    )
    def test_every_other_form_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidToken, match="not have the form") as refused:
            Token.parse(text)
        assert not text or text not in str(refused.value)

    @pytest.mark.parametrize("uid", ["", "a.b", "a b", "a\n", "\u00fc", "u" * 129])
    def test_a_uid_that_no_api_server_gives_is_refused(self, uid: str) -> None:
        with pytest.raises(InvalidToken):
            Token.issue(uid, CLUSTER_UID, NOW)

    def test_it_expires_to_the_second(self) -> None:
        expiry = NOW + LIFETIME
        TOKEN.require_valid(NOW)
        TOKEN.require_valid(expiry - timedelta(microseconds=1))
        for late in (expiry, expiry + timedelta(microseconds=1), expiry + timedelta(days=400)):
            with pytest.raises(ChallengeExpired, match=f"until {expiry:%Y-%m-%dT%H:%M:%SZ}; the node starts again"):
                TOKEN.require_valid(late)

    def test_one_of_a_clock_that_was_ahead_is_not_good_for_as_long_as_that(self) -> None:
        Token.issue(UID, CLUSTER_UID, NOW + timedelta(minutes=5)).require_valid(NOW)
        for ahead in (timedelta(minutes=5, seconds=1), timedelta(days=400)):
            with pytest.raises(ChallengeFromTheFuture, match="whose clock was ahead; the node starts again"):
                Token.issue(UID, CLUSTER_UID, NOW + ahead).require_valid(NOW)
        for no_date in (253402300800, 999999999999):
            with pytest.raises(ChallengeFromTheFuture):
                Token.parse(f"{NAMED}.{no_date}").require_valid(NOW)

    def test_it_is_of_one_cluster(self) -> None:
        TOKEN.require_cluster(CLUSTER_UID)
        for other in (CLUSTER_UID[:-1] + "3", ""):
            with pytest.raises(ChallengeOfAnotherCluster, match="created again; the node starts again"):
                TOKEN.require_cluster(other)

    def test_a_part_of_a_second_is_not_given_away(self) -> None:
        token = Token.issue(UID, CLUSTER_UID, NOW + timedelta(milliseconds=900))
        with pytest.raises(ChallengeExpired):
            token.require_valid(NOW + LIFETIME)


class TestSecret:
    def test_is_a_mac_over_all_that_it_is_for(self) -> None:
        parts = (
            b"tpm challenge v2",
            str(TOKEN).encode(),
            CLUSTER_UID.encode(),
            CHIP.key.name,
            CHALLENGED.attestation_key.name,
            CHALLENGED.binding.value,
        )
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        assert CHALLENGED.secret(KEY) == hmac.digest(KEY, message, "sha256")

    @pytest.mark.parametrize(
        "changes",
        [
            pytest.param({"token": replace(TOKEN, expiry=TOKEN.expiry + 1)}, id="later-expiry"),
            pytest.param({"token": replace(TOKEN, csr_uid=UID[:-1] + "2")}, id="other-request"),
            pytest.param({"token": replace(TOKEN, csr_uid=f"{UID}1")}, id="longer-uid"),
            pytest.param({"endorsement_key": OTHER.key}, id="other-endorsement-key"),
            pytest.param({"attestation_key": AttestationKey(OTHER.attestation_area)}, id="other-attestation-key"),
            pytest.param({"binding": Binding(bytes(32))}, id="other-binding"),
            pytest.param({"cluster_uid": CLUSTER_UID[:-1] + "3"}, id="other-cluster"),
            pytest.param({"token": replace(TOKEN, cluster_identifier="")}, id="other-version"),
        ],
    )
    def test_is_another_for_anything_else(self, changes: dict[str, Any]) -> None:
        assert replace(CHALLENGED, **changes).secret(KEY) != CHALLENGED.secret(KEY)

    def test_one_of_version_1_is_as_it_was(self) -> None:
        """Recorded answers have it."""
        token = Token.parse(str(TOKEN).removeprefix("2.").replace(f"-{CLUSTER}", ""))
        assert token == replace(TOKEN, cluster_identifier="")
        assert token.version == 1
        token.require_cluster("any")
        inputs = replace(CHALLENGED, token=token)
        parts = (
            b"tpm challenge v1",
            str(token).encode(),
            CHIP.key.name,
            CHALLENGED.attestation_key.name,
            CHALLENGED.binding.value,
        )
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        assert inputs.secret(KEY) == hmac.digest(KEY, message, "sha256")

    def test_is_another_under_another_key(self) -> None:
        assert CHALLENGED.secret(bytes(32)) != CHALLENGED.secret(KEY)

    def test_is_the_same_on_another_replica_and_after_a_restart(self) -> None:
        again = ChallengeInputs(
            Token.parse(str(TOKEN)),
            FakeTPM.new().key,
            AttestationKey(CHIP.attestation_area),
            CHALLENGED.binding,
            CLUSTER_UID,
        )
        assert again.secret(KEY) == CHALLENGED.secret(KEY)

    def test_goes_into_the_quote_with_the_binding(self) -> None:
        assert qualifying_data(b"secret", b"binding") == hashlib.sha256(b"secretbinding").digest()


@pytest.mark.parametrize("title", ["L-1", "L-2", "H-3", "H-7"])
class TestText:
    def test_is_opened_by_its_tpm_alone(self, title: str) -> None:
        chip = FakeTPM.new(title=title)
        challenged = replace(CHALLENGED, endorsement_key=chip.key)
        text = text_of(challenged)
        assert chip.open(text) == replace(challenged, token=TOKEN.under(KEY)).secret(KEY)
        with pytest.raises(NotActivated):
            chip.but(attestation_area=OTHER.attestation_area).open(text)

    def test_is_parsed_by_the_agent_plugin(self, title: str) -> None:
        text = text_of(replace(CHALLENGED, endorsement_key=FakeTPM.new(title=title).key))
        assert len(text) <= MAXIMUM_CHALLENGE_CHARACTERS
        challenge = parse_challenge(text)
        assert challenge.token == str(TOKEN.under(KEY))
        assert challenge.pcr_selection == SELECTION

    def test_shows_no_secret(self, title: str) -> None:
        challenged = replace(CHALLENGED, endorsement_key=FakeTPM.new(title=title).key)
        secret, text = replace(challenged, token=TOKEN.under(KEY)).secret(KEY), text_of(challenged)
        raw = b"".join(
            base64.b64decode(json.loads(text)[key]) for key in (wire.CREDENTIAL_BLOB_KEY, wire.ENCRYPTED_SECRET_KEY)
        )
        for hidden in (secret, KEY):
            assert hidden[:8] not in raw
            assert hidden.hex() not in text


def test_another_chip_cannot_open_it() -> None:
    with pytest.raises(NotActivated):
        OTHER.but(attestation_area=CHIP.attestation_area).open(text_of())


def test_a_challenge_is_never_the_same_twice() -> None:
    assert text_of(number=1) != text_of(number=2)
    assert CHIP.open(text_of(number=1)) == CHIP.open(text_of(number=2))
