from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.names import CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION
from authenticator.model.answer import (
    Challenged,
    Issued,
    Outdated,
    Refused,
    Undecided,
    VersionUnsupported,
    read_answer,
)
from tests.unit.authenticator.builders import SWIFT

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n"
APPROVED = {"type": "Approved", "status": "True", "reason": "Attested"}
DENIED = {"type": "Denied", "status": "True", "reason": "NoMachine", "message": "no Machine has this provider ID"}
FAILED = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "no key usage"}
CHALLENGED = {"type": "Denied", "status": "True", "reason": "ChallengeIssued", "message": "answer the challenge"}
UNSUPPORTED = {"type": "Denied", "status": "True", "reason": "UnsupportedVersion", "message": "other versions"}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def request(*conditions: Any, certificate: Any = None, **annotations: str) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": list(conditions)}
    if certificate is not None:
        status["certificate"] = certificate
    return {"metadata": {"annotations": annotations}, "status": status}


def deep() -> list[Any]:
    """Nested more deeply than any text of it could be made."""
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


# Undecided


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"status": None},
        {"status": []},
        {"status": {"conditions": None}},
        {"status": {"conditions": {"type": "Approved"}}},
        {"status": {"conditions": ["Approved", None, ["Approved"], {"type": ["Approved"]}, {"type": None}]}},
        request({"type": "approved", "status": "True"}, certificate=encoded(CERTIFICATE)),
        request(APPROVED | {"status": "False"}, certificate=encoded(CERTIFICATE)),
        request(APPROVED | {"status": True}, certificate=encoded(CERTIFICATE)),
        request(certificate=encoded(CERTIFICATE)),
        request({"type": deep(), "status": "True"}, certificate=encoded(CERTIFICATE)),
    ],
)
def test_no_decision(found: dict[str, Any]) -> None:
    assert read_answer(found) == Undecided(approved=False)


@pytest.mark.parametrize("certificate", [None, "", 7, [], "no base64!", "YQ=", "\u00e4", "YQ==\n"])
def test_approved_and_not_signed_yet(certificate: Any) -> None:
    assert read_answer(request(APPROVED, certificate=certificate)) == Undecided(approved=True)


# Issued


@pytest.mark.parametrize("approval", [APPROVED, {"type": "Approved"}], ids=["status", "no-status-as-before-1.19"])
def test_issued(approval: dict[str, str]) -> None:
    assert read_answer(request(approval, certificate=encoded(CERTIFICATE))) == Issued(CERTIFICATE)


@pytest.mark.parametrize("refusal", [DENIED, FAILED])
def test_a_certificate_of_a_refused_request_is_none(refusal: dict[str, str]) -> None:
    for conditions in ([APPROVED, refusal], [refusal, APPROVED]):
        answer = read_answer(request(*conditions, certificate=encoded(CERTIFICATE)))
        assert answer == Refused(refusal["type"], refusal["reason"], refusal["message"])


# Refused


def test_denied_and_failed_say_why() -> None:
    assert read_answer(request(DENIED)) == Refused("Denied", "NoMachine", "no Machine has this provider ID")
    assert read_answer(request(FAILED)) == Refused("Failed", "SignerValidationFailure", "no key usage")
    assert str(read_answer(request(DENIED))) == "Denied with reason NoMachine: no Machine has this provider ID"


def test_a_denial_weighs_more_than_a_failure() -> None:
    assert read_answer(request(FAILED, DENIED)) == Refused("Denied", "NoMachine", "no Machine has this provider ID")


def test_the_first_condition_of_a_kind_counts() -> None:
    assert read_answer(request(DENIED, DENIED | {"reason": "Later"})) == read_answer(request(DENIED))


def test_a_withdrawn_condition_says_nothing() -> None:
    assert read_answer(request(DENIED | {"status": "False"}, APPROVED)) == Undecided(approved=True)


@pytest.mark.parametrize("text", [None, "", 7, ["x"], "\n\t"])
def test_a_refusal_without_words(text: Any) -> None:
    answer = read_answer(request(DENIED | {"reason": text, "message": text}))
    assert answer == Refused("Denied", "unknown", "no message was given")


def test_words_are_printable_and_bounded() -> None:
    answer = read_answer(request(DENIED | {"reason": "R" * 65, "message": "\033[2Jline\nline" + "m" * 600}))
    assert answer == Refused("Denied", "R" * 64, "[2Jline line" + "m" * (512 - 13))


def test_letters_of_all_languages_are_printable() -> None:
    assert read_answer(request(DENIED | {"message": " Ger\u00e4t \u00a0fehlt "})) == Refused(
        "Denied", "NoMachine", "Ger\u00e4t  fehlt"
    )


# Challenged, and other versions


def test_a_challenge() -> None:
    annotations = {CHALLENGE_ANNOTATION: "prove it"}
    assert read_answer(request(CHALLENGED, **annotations)) == Challenged("prove it")


def test_a_challenge_is_not_shown() -> None:
    assert "prove it" not in repr(Challenged("prove it"))


@pytest.mark.parametrize("challenge", [None, "", 7, ["x"], "c" * (16 * 1024 + 1)])
def test_a_challenge_that_is_none_is_a_refusal(challenge: Any) -> None:
    answer = read_answer(request(CHALLENGED, **{CHALLENGE_ANNOTATION: challenge}))
    assert answer == Refused("Denied", "ChallengeIssued", "answer the challenge")


def test_the_longest_challenge() -> None:
    text = "c" * (16 * 1024)
    assert read_answer(request(CHALLENGED, **{CHALLENGE_ANNOTATION: text})) == Challenged(text)
    assert read_answer(request(CHALLENGED, **{CHALLENGE_ANNOTATION: "c"})) == Challenged("c")


def test_the_versions_that_the_controller_reads() -> None:
    answer = read_answer(request(UNSUPPORTED, **{SUPPORTED_VERSIONS_ANNOTATION: "v1, v2 ,v3"}))
    assert answer == VersionUnsupported(("v1", "v2", "v3"))


def test_no_more_than_32_versions_are_looked_at() -> None:
    answer = read_answer(request(UNSUPPORTED, **{SUPPORTED_VERSIONS_ANNOTATION: ",".join(["v1"] * 40)}))
    assert answer == VersionUnsupported(("v1",) * 32)


@pytest.mark.parametrize("versions", [None, "", 7, ["v1"]])
def test_no_versions_are_a_refusal(versions: Any) -> None:
    answer = read_answer(request(UNSUPPORTED, **{SUPPORTED_VERSIONS_ANNOTATION: versions}))
    assert answer == Refused("Denied", "UnsupportedVersion", "other versions")


@pytest.mark.parametrize(
    "condition",
    [
        CHALLENGED | {"type": "Failed"},
        UNSUPPORTED | {"type": "Failed"},
        CHALLENGED | {"reason": "ChallengeFromTheFuture"},
        DENIED,
    ],
)
def test_annotations_mean_nothing_with_another_reason(condition: dict[str, str]) -> None:
    annotations = {CHALLENGE_ANNOTATION: "prove it", SUPPORTED_VERSIONS_ANNOTATION: "v2"}
    answer = read_answer(request(condition, **annotations))
    assert answer == Refused(condition["type"], condition["reason"], condition["message"])


def test_expired_evidence_has_its_own_answer() -> None:
    for reason in ("EvidenceExpired", "ChallengeExpired", "ChallengeOfAnotherCluster"):
        answer = read_answer(request(DENIED | {"reason": reason, "message": "it ran out\x1b"}))
        assert answer == Outdated(reason, "it ran out")
        assert str(answer) == f"Denied with reason {reason}: it ran out"


def test_what_failed_did_not_run_out() -> None:
    """Somebody else approved it."""
    answer = read_answer(request(DENIED | {"type": "Failed", "reason": "EvidenceExpired", "message": "m"}))
    assert answer == Refused("Failed", "EvidenceExpired", "m")


@pytest.mark.parametrize("metadata", [None, [], "text", {"annotations": None}, {"annotations": ["x"]}])
def test_metadata_that_is_none(metadata: Any) -> None:
    found = request(CHALLENGED) | {"metadata": metadata}
    assert read_answer(found) == Refused("Denied", "ChallengeIssued", "answer the challenge")


# Anything

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
some_conditions = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Approved", "Denied", "Failed"]) | json_values,
        "status": st.sampled_from(["True", "False"]) | json_values,
        "reason": st.sampled_from(["ChallengeIssued", "UnsupportedVersion"]) | json_values,
        "message": json_values,
    },
)
some_annotations = st.dictionaries(
    st.sampled_from([CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION]) | st.text(max_size=9), json_values
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"annotations": some_annotations | json_values}) | json_values,
        "status": st.fixed_dictionaries(
            {},
            optional={
                "conditions": st.lists(some_conditions | json_values, max_size=4) | json_values,
                "certificate": st.binary(max_size=9).map(encoded) | json_values,
            },
        )
        | json_values,
    },
)


@SWIFT
@given(objects | st.dictionaries(st.text(max_size=9), json_values))
def test_any_object_is_an_answer_and_only_an_approved_one_a_certificate(found: dict[str, Any]) -> None:
    answer = read_answer(found)
    assert isinstance(answer, Undecided | Issued | Challenged | VersionUnsupported | Refused)
    if isinstance(answer, Issued):
        kinds = {one.get("type") for one in found["status"]["conditions"] if isinstance(one, dict)}
        assert "Approved" in {kind for kind in kinds if isinstance(kind, str)}
        assert answer.certificate
