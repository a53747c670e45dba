"""The first source that says anything decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import AnswerNotRecorded, AttestationRequest, DocumentKind
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources import (
    CertificateState,
    Inventory,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    MachineAnnotation,
    NoInformation,
    SourceName,
    SourcesInOrder,
    SourceUnavailable,
    Unclear,
    Undetermined,
)
from attestors.tpm.endorsement_key_sources.order import _ask
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls
from tests.unit.attestors.tpm.endorsement_key_sources.support import (
    CHIP,
    NOT_VERIFIED,
    OTHER,
    Cluster,
    annotated,
    at_once,
    machine,
    request,
)


@dataclass
class Says:
    """A source that says always the same."""

    said: KeySourceAnswer | Exception
    asked: list[object] = field(default_factory=list)
    name = SourceName.INVENTORY

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        self.asked.append((endorsement_key, certificate))
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


OWNED: Final = KeyConfirmed(SourceName.INVENTORY)
OTHERS: Final = KeyContradicted("another")
NOTHING: Final = NoInformation("nothing")
UNCLEAR: Final = Unclear("unclear")
ANSWERS: Final[Mapping[str, KeySourceAnswer]] = {
    "owned": OWNED,
    "others": OTHERS,
    "nothing": NOTHING,
    "unclear": UNCLEAR,
}


def ask(*sources: Says) -> Any:
    return at_once(SourcesInOrder(sources).ask(request(), CHIP.key, NOT_VERIFIED))


@pytest.mark.parametrize("then", ANSWERS)
@pytest.mark.parametrize("first", [OWNED, OTHERS], ids=["owned", "others"])
def test_any_definite_answer_decides(first: KeySourceAnswer, then: str) -> None:
    last = Says(ANSWERS[then])
    assert ask(Says(NOTHING), Says(first), last) == first
    assert last.asked == []


def test_without_information_the_next_source_decides() -> None:
    last = Says(OWNED)
    assert ask(Says(NOTHING), Says(NOTHING), last) == OWNED
    assert last.asked == [(CHIP.key, NOT_VERIFIED)]


def test_no_source_has_information() -> None:
    assert ask(Says(NoInformation("a")), Says(NoInformation("b"))) == Undetermined(("a", "b"))


@pytest.mark.parametrize("then", ANSWERS)
def test_no_source_is_asked_after_an_unclear_one(then: str) -> None:
    last = Says(ANSWERS[then])
    assert ask(Says(NOTHING), Says(UNCLEAR), last) == Undetermined(("nothing", "unclear"))
    assert last.asked == []


def test_what_is_unclear_says_when_to_look_again() -> None:
    later = timedelta(seconds=42)
    assert ask(Says(NOTHING), Says(Unclear("unclear", later))) == Undetermined(("nothing", "unclear"), later)


@pytest.mark.parametrize("error", [SourceUnavailable("later"), ConnectionError(), ValueError()], ids=repr)
def test_an_unavailable_source_is_waited_for(error: Exception) -> None:
    last = Says(OWNED)
    with pytest.raises(type(error)):
        ask(Says(NOTHING), Says(error), last)
    assert last.asked == []


class TestLook:
    """What can be told at once."""

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            (CHIP.fingerprint, KeyConfirmed),
            (OTHER.fingerprint, KeyContradicted),
            (None, Undetermined),
            ("x", Undetermined),
        ],
        ids=["owned", "others", "nothing", "unclear"],
    )
    def test_the_machine_itself(self, said: str | None, expected: type) -> None:
        last = Says(OTHERS)
        asked = request(machine(said))
        found = SourcesInOrder((MachineAnnotation(), last)).check_locally(asked, CHIP.key)
        assert isinstance(found, expected)
        if isinstance(found, Undetermined):
            alone = MachineAnnotation().check_locally(asked, CHIP.key)
            assert isinstance(alone, NoInformation | Unclear)
            assert found.lacking == (alone.message,)
        assert last.asked == []

    def test_only_where_it_is_the_first(self) -> None:
        cluster = Cluster(annotated(OTHER.fingerprint))
        sources = SourcesInOrder((Inventory(DocumentKind.SECRET, "inventory"), MachineAnnotation()))
        assert sources.check_locally(request(machine(OTHER.fingerprint), cluster), CHIP.key) == Undetermined(())
        assert cluster.asked == []


@given(st.lists(st.text("abc ", max_size=600), min_size=1, max_size=5), st.integers(60, 500))
def test_all_that_is_lacking_fits(lacking: list[str], room: int) -> None:
    text = Undetermined(tuple(lacking)).within(room)
    assert len(text) <= room
    if len("; ".join(lacking)) <= room:
        assert text == "; ".join(lacking)
    else:
        assert text.count("; ") == len(lacking) - 1
        assert "..." in text


@pytest.mark.parametrize(
    ("lacking", "room", "text"),
    [
        (("abcd",), 4, "abcd"),
        (("abcde",), 4, "a..."),
        (("abc", "x" * 9, "y" * 9), 15, "abc; x...; y..."),
        (("abcd", "abcd"), 10, "abcd; abcd"),
    ],
    ids=["just-fits", "one-too-many", "what-is-left-over-is-shared", "both-fit"],
)
def test_no_room_is_wasted(lacking: tuple[str, ...], room: int, text: str) -> None:
    assert Undetermined(lacking).within(room) == text


class TestNoted:
    """What a source makes of others' words is kept, and judged by again without asking."""

    @pytest.mark.parametrize("source", [SourceName.INVENTORY, SourceName.GCP_SHIELDED_VM], ids=lambda name: name.value)
    @pytest.mark.parametrize(
        "said",
        [
            KeyConfirmed(SourceName.GCP_SHIELDED_VM),
            KeyContradicted("another"),
            NoInformation("nothing"),
            Unclear("unclear", timedelta(seconds=42)),
        ],
        ids=["owned", "others", "nothing", "unclear"],
    )
    def test_an_answer_is_the_same_again(self, source: SourceName, said: KeySourceAnswer) -> None:
        recorded_calls = CallRecorder()
        asked = Says(said)
        asked.name = source
        first = at_once(_ask(asked, request(recorded_calls=recorded_calls), CHIP.key, NOT_VERIFIED))
        assert first == said
        noted = json.loads(json.dumps(recorded_calls.recorded))
        assert [entry["question"] for entry in noted] == [f"endorsement key source {source.value}"]
        nobody = Says(AssertionError("asked"))
        nobody.name = source
        assert at_once(_ask(nobody, request(recorded_calls=ReplayedCalls(noted)), CHIP.key, NOT_VERIFIED)) == said

    @pytest.mark.parametrize(
        "source",
        [
            SourceName.MACHINE_ANNOTATION,
            SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION,
            SourceName.TRUST_ON_FIRST_USE,
        ],
        ids=lambda name: name.value,
    )
    def test_what_the_core_notes_is_asked_for_again(self, source: SourceName) -> None:
        recorded_calls = CallRecorder()
        asked = Says(OWNED)
        asked.name = source
        assert at_once(_ask(asked, request(recorded_calls=recorded_calls), CHIP.key, NOT_VERIFIED)) == OWNED
        assert recorded_calls.recorded == []

    @pytest.mark.parametrize(
        "written",
        [
            {},
            {"said": "Perhaps"},
            {"said": "Owned", "source": "Somebody"},
            {"said": "Owned"},
            {"said": "OwnedByOthers", "message": 1},
            {"said": "NotSaid", "message": None},
            {"said": "Unclear", "message": ["m"], "retryAfterSeconds": 1},
            {"said": "Unclear", "message": "m"},
            "KeyConfirmed",
        ],
        ids=range(9),
    )
    def test_an_answer_of_another_form_is_none(self, written: object) -> None:
        noted = [{"question": "endorsement key source Inventory", "answer": written}]
        with pytest.raises(AnswerNotRecorded, match="is malformed"):
            at_once(_ask(Says(OWNED), request(recorded_calls=ReplayedCalls(noted)), CHIP.key, NOT_VERIFIED))


def test_what_is_unclear_is_looked_at_again_soon() -> None:
    assert Unclear("unclear").retry_after == timedelta(seconds=10)


def test_a_long_sentence_does_not_shorten_the_others() -> None:
    text = Undetermined(("short", "x" * 900, "also short")).within(100)
    assert text == "short; " + "x" * (100 - 4 - 15 - 3) + "...; also short"
