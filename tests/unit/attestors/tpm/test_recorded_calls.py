"""A decision judged again from the answers that the audit log keeps: it is the same, and no secret is among them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import (
    AnswerNotRecorded,
    AttestationRequest,
    ChallengeIssued,
    Denied,
    NotProvableYet,
    VerifiedIdentity,
)
from attestors.tpm import wire
from attestors.tpm.endorsement import load_endorsement_authorities
from attestors.tpm.recorded_calls import (
    CHALLENGE_KEYS,
    CHALLENGE_QUESTION,
    FLAG,
    KEY_IS_KNOWN_QUESTION,
    KEYS_QUESTION,
    QUOTE_QUESTION,
    TRUST_QUESTION,
)
from attestors.tpm.statement import decode_quote
from attestors.tpm.trust import Trust
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls
from tests.unit.attestors.tpm.endorsement.support import root
from tests.unit.attestors.tpm.fake_tpm import text
from tests.unit.attestors.tpm.fixtures import (
    AUTHORITIES,
    BINDING,
    CERTIFIED,
    CHIP,
    DESK,
    KEYS,
    MAKER,
    NO_SETTINGS,
    OTHER,
    FixedTrust,
    PluginHarness,
    at_once,
    no_keys,
)
from tests.unit.attestors.tpm.support import ECDSA, attestation_area, ecc_key

Fields = Mapping[str, str]
Noted = list[dict[str, Any]]


def judged(harness: PluginHarness, fields: Fields) -> tuple[object, Noted]:
    """What the half says, or the type of what it raises; and what is kept of what it was told."""
    recorded_calls = CallRecorder()
    said = _said(harness, replace(harness.request(fields), recorded_calls=recorded_calls))
    return said, json.loads(json.dumps(recorded_calls.recorded))


def again(harness: PluginHarness, fields: Fields, noted: Noted) -> object:
    """The same later, where there are no challenge keys."""
    return _said(harness.but(keys=no_keys), replace(harness.request(fields), recorded_calls=ReplayedCalls(noted)))


def _said(harness: PluginHarness, request: AttestationRequest) -> object:
    try:
        return at_once(harness.plugin.verify_client(request))
    except (BindingMismatch, MalformedEvidence, AnswerNotRecorded) as error:
        return type(error), str(error)


def answer(harness: PluginHarness = DESK, **changes: Any) -> dict[str, str]:
    return CHIP.answer(harness.challenge(), BINDING, **changes)


def over(extra_data: bytes) -> Callable[[bytes], bytes]:
    """A quote over something that the node made up."""
    return lambda quote: replace(decode_quote(quote), extra_data=extra_data).encode()


@pytest.mark.parametrize("harness", [DESK, CERTIFIED], ids=["no-authorities", "authorities"])
class TestAgain:
    def test_a_challenge_is_the_very_same(self, harness: PluginHarness) -> None:
        said, noted = judged(harness, CHIP.first())
        assert isinstance(said, ChallengeIssued)
        assert [entry["question"] for entry in noted] == [TRUST_QUESTION, CHALLENGE_QUESTION]
        assert again(harness, CHIP.first(), noted) == said

    def test_an_answer_under_the_newest_key(self, harness: PluginHarness) -> None:
        fields = answer(harness)
        said, noted = judged(harness, fields)
        assert isinstance(said, VerifiedIdentity)
        assert [entry["question"] for entry in noted] == [
            TRUST_QUESTION,
            KEY_IS_KNOWN_QUESTION,
            KEYS_QUESTION,
            QUOTE_QUESTION,
        ]
        assert again(harness, fields, noted) == said

    def test_an_answer_under_the_key_before(self, harness: PluginHarness) -> None:
        fields = answer(harness.but(keys=lambda: KEYS[1:]))
        said, noted = judged(harness, fields)
        assert isinstance(said, VerifiedIdentity)
        assert [entry["answer"] for entry in noted[1:]] == [True, 2, False, True]
        assert again(harness, fields, noted) == said

    @pytest.mark.parametrize(
        "extra_data", [b"", bytes(32), b"\xff" * 32, bytes(66)], ids=["none", "zeros", "ones", "long"]
    )
    def test_a_quote_over_what_the_node_made_up_stays_unproven(self, harness: PluginHarness, extra_data: bytes) -> None:
        """Else a node could have the log say something else than what was decided."""
        fields = answer(harness, mangle=over(extra_data))
        said, noted = judged(harness, fields)
        assert said == (BindingMismatch, "the evidence was made for another key, cluster or signer")
        assert [entry["answer"] for entry in noted[1:]] == [True, 2, False, False]
        assert again(harness, fields, noted) == said

    def test_an_answer_to_a_key_that_was_not_known(self, harness: PluginHarness) -> None:
        fields = answer(harness.but(keys=lambda: (b"o" * 32,)))
        said, noted = judged(harness, fields)
        assert isinstance(said, NotProvableYet)
        assert [entry["answer"] for entry in noted[1:]] == [False, 2, False, False]
        assert again(harness, fields, noted) == said

    def test_a_quote_that_is_none_matches_nothing(self, harness: PluginHarness) -> None:
        fields = answer(harness, mangle=lambda quote: quote[:-1])
        said, noted = judged(harness, fields)
        assert said == (MalformedEvidence, "TPMS_ATTEST: ends inside pcrDigest")
        assert again(harness, fields, noted) == said
        # Whatever a log says of it.
        noted.append({"question": QUOTE_QUESTION, "answer": True})
        assert again(harness, fields, noted) == said

    def test_a_log_that_counts_no_keys_proves_nothing(self, harness: PluginHarness) -> None:
        fields = answer(harness)
        _, noted = judged(harness, fields)
        noted[2]["answer"] = 0
        assert again(harness, fields, noted) == (BindingMismatch, "the quote answers no challenge of this controller")


def test_questions_are_those_of_logs_that_were_written() -> None:
    assert (TRUST_QUESTION, CHALLENGE_QUESTION, KEYS_QUESTION, KEY_IS_KNOWN_QUESTION, QUOTE_QUESTION) == (
        "endorsement authorities and deny list",
        "challenge",
        "number of challenge keys",
        "challenge key is known",
        "quote's challenge",
    )


def test_no_secret_is_kept() -> None:
    fields = answer(mangle=over(b"x" * 32))
    kept = json.dumps([judged(DESK, CHIP.first()), judged(DESK, fields)[1], judged(DESK, answer())[1]], default=str)
    secret = CHIP.open(DESK.challenge())
    expected = wire.qualifying_data(secret, BINDING.value)
    for hidden in (*KEYS, secret, expected):
        assert text(hidden) not in kept
        assert hidden.hex() not in kept
        assert repr(hidden)[2:-1] not in kept


class TestTrust:
    """Authorities by their digest; of the deny list whether it has this very key."""

    def test_is_noted_without_the_list(self) -> None:
        for harness, authorities in ((DESK, "none"), (CERTIFIED, MAKER.digest)):
            assert judged(harness, CHIP.first())[1][0] == {
                "question": TRUST_QUESTION,
                "answer": {"authorities": authorities, "denied": False},
            }

    @pytest.mark.parametrize("certified", [False, True])
    def test_a_denied_key_stays_denied_when_the_list_has_it_no_more(self, certified: bool) -> None:
        trust = (
            Trust(MAKER, frozenset({CHIP.fingerprint})) if certified else Trust(denied=frozenset({CHIP.fingerprint}))
        )
        harness = DESK.but(settings=replace(NO_SETTINGS, trust=FixedTrust(trust)))
        said, noted = judged(harness, CHIP.first())
        assert isinstance(said, Denied)
        assert said.reason == "EndorsementKeyDenied"
        assert noted == [
            {
                "question": TRUST_QUESTION,
                "answer": {"authorities": MAKER.digest if certified else "none", "denied": True},
            }
        ]
        assert again(CERTIFIED if certified else DESK, CHIP.first(), noted) == said

    def test_a_replay_uses_the_recorded_deny_list(self) -> None:
        said, noted = judged(DESK, CHIP.first())
        since = DESK.but(settings=replace(NO_SETTINGS, trust=FixedTrust(Trust(denied=frozenset({CHIP.fingerprint})))))
        assert again(since, CHIP.first(), noted) == said

    def test_a_replay_needs_the_same_authorities(self) -> None:
        _, noted = judged(CERTIFIED, CHIP.first())
        others = load_endorsement_authorities(roots=[root()])
        for trust in (Trust(others), Trust()):
            harness = CERTIFIED.but(settings=replace(AUTHORITIES, trust=FixedTrust(trust)))
            assert again(harness, CHIP.first(), noted) == (
                AnswerNotRecorded,
                "the endorsement authorities were others than those of --config",
            )

    def test_without_authorities_then_those_of_today_are_not_taken(self) -> None:
        uncertified = CHIP.but(certificate=b"")
        said, noted = judged(DESK, uncertified.first())
        assert isinstance(said, ChallengeIssued)
        assert again(CERTIFIED, uncertified.first(), noted) == said

    @pytest.mark.parametrize("denied", [1, "true", None])
    def test_only_true_is_denied(self, denied: object) -> None:
        said, noted = judged(DESK, CHIP.first())
        noted[0]["answer"]["denied"] = denied
        assert again(DESK, CHIP.first(), noted) == said

    @pytest.mark.parametrize(
        ("shown", "said"),
        [
            ("!", (MalformedEvidence, "field ekPublic is not base64")),
            (text(b"\x00"), (MalformedEvidence, "TPMT_PUBLIC: ends inside type")),
        ],
        ids=["no-base64", "no-structure"],
    )
    def test_a_key_that_cannot_be_read_is_on_no_list(self, shown: str, said: object) -> None:
        fields = {**CHIP.first(), wire.ENDORSEMENT_PUBLIC_FIELD: shown}
        live, noted = judged(DESK, fields)
        assert live == said
        assert noted[0]["answer"] == {"authorities": "none", "denied": False}
        assert again(DESK, fields, noted) == said

    def test_an_unsuitable_key_is_on_no_list(self) -> None:
        unsuitable = CHIP.but(endorsement_area=attestation_area(ecc_key(number=77), ECDSA))
        said, noted = judged(DESK, unsuitable.first())
        assert isinstance(said, Denied)
        assert said.reason == "UnsuitableTPMKey"
        assert again(DESK, unsuitable.first(), noted) == said


class TestForms:
    @pytest.mark.parametrize("number", [-1, 3, True, False, "1", 1.0, None])
    def test_another_number_of_keys_is_none(self, number: object) -> None:
        with pytest.raises(ValueError, match="not a number of keys"):
            CHALLENGE_KEYS.read(number)

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_keys_are_counted(self, number: int) -> None:
        assert CHALLENGE_KEYS.write((b"secret",) * number) == number
        assert CHALLENGE_KEYS.read(number) == (b"",) * number

    @pytest.mark.parametrize("known", [1, 0, "true", None])
    def test_a_key_is_known_or_not(self, known: object) -> None:
        with pytest.raises(TypeError, match="not true or false"):
            FLAG.read(known)
        assert [FLAG.read(one) for one in (True, False)] == [True, False]

    def test_a_challenge_that_is_no_text_was_not_recorded(self) -> None:
        _, noted = judged(DESK, CHIP.first())
        noted[1]["answer"] = 1
        said = again(DESK, CHIP.first(), noted)
        assert said == (AnswerNotRecorded, f"the answer about {CHALLENGE_QUESTION} is malformed")

    @pytest.mark.parametrize("matches", [1, "true", None, False])
    def test_only_true_matches(self, matches: object) -> None:
        fields = answer()
        _, noted = judged(DESK, fields)
        assert [entry["question"] for entry in noted[2:]] == [KEYS_QUESTION, QUOTE_QUESTION]
        noted[2]["answer"] = 1
        noted[3]["answer"] = matches
        said = again(DESK, fields, noted)
        assert said == (BindingMismatch, "the evidence was made for another key, cluster or signer")


def test_what_came_too_late_came_too_late() -> None:
    fields = answer()
    harness = DESK.but(now=DESK.now + timedelta(minutes=5))
    said, noted = judged(harness, fields)
    assert isinstance(said, Denied)
    assert said.reason == "ChallengeExpired"
    assert again(harness, fields, noted) == said


def test_another_chips_key_waits_or_is_refused_again() -> None:
    said, noted = judged(DESK, OTHER.first())
    assert isinstance(said, Denied | NotProvableYet)
    assert again(DESK, OTHER.first(), noted) == said
