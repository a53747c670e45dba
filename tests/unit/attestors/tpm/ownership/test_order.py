"""The first source that says anything decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import AttestationRequest, DocumentKind
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.ownership import (
    CannotBeAskedNow,
    CertificateStanding,
    Inventory,
    MachineAnnotation,
    NobodySays,
    NotSaid,
    Owned,
    OwnedByOthers,
    Ownership,
    SourceName,
    SourcesInOrder,
    Unclear,
)
from tests.unit.attestors.tpm.ownership.support import (
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

    said: Ownership | Exception
    asked: list[object] = field(default_factory=list)
    name = SourceName.INVENTORY

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateStanding
    ) -> Ownership:
        self.asked.append((endorsement_key, certificate))
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


OWNED: Final = Owned(SourceName.INVENTORY)
OTHERS: Final = OwnedByOthers("another")
NOTHING: Final = NotSaid("nothing")
UNCLEAR: Final = Unclear("unclear")
ANSWERS: Final[Mapping[str, Ownership]] = {
    "owned": OWNED,
    "others": OTHERS,
    "nothing": NOTHING,
    "unclear": UNCLEAR,
}


def ask(*sources: Says) -> Any:
    return at_once(SourcesInOrder(sources).ask(request(), CHIP.key, NOT_VERIFIED))


@pytest.mark.parametrize("then", ANSWERS)
@pytest.mark.parametrize("first", [OWNED, OTHERS], ids=["owned", "others"])
def test_whatever_is_said_decides(first: Ownership, then: str) -> None:
    last = Says(ANSWERS[then])
    assert ask(Says(NOTHING), Says(first), last) == first
    assert last.asked == []


def test_who_says_nothing_leaves_it_to_the_next() -> None:
    last = Says(OWNED)
    assert ask(Says(NOTHING), Says(NOTHING), last) == OWNED
    assert last.asked == [(CHIP.key, NOT_VERIFIED)]


def test_nobody_says_anything() -> None:
    assert ask(Says(NotSaid("a")), Says(NotSaid("b"))) == NobodySays(("a", "b"))


@pytest.mark.parametrize("then", ANSWERS)
def test_behind_what_is_unclear_nobody_is_asked(then: str) -> None:
    last = Says(ANSWERS[then])
    assert ask(Says(NOTHING), Says(UNCLEAR), last) == NobodySays(("nothing", "unclear"))
    assert last.asked == []


def test_what_is_unclear_says_when_to_look_again() -> None:
    later = timedelta(seconds=42)
    assert ask(Says(NOTHING), Says(Unclear("unclear", later))) == NobodySays(("nothing", "unclear"), later)


@pytest.mark.parametrize("error", [CannotBeAskedNow("later"), ConnectionError(), ValueError()], ids=repr)
def test_who_cannot_be_asked_now_is_waited_for(error: Exception) -> None:
    last = Says(OWNED)
    with pytest.raises(type(error)):
        ask(Says(NOTHING), Says(error), last)
    assert last.asked == []


class TestLook:
    """What can be told at once."""

    @pytest.mark.parametrize(
        ("said", "expected"),
        [(CHIP.fingerprint, Owned), (OTHER.fingerprint, OwnedByOthers), (None, NobodySays), ("x", NobodySays)],
        ids=["owned", "others", "nothing", "unclear"],
    )
    def test_the_machine_itself(self, said: str | None, expected: type) -> None:
        last = Says(OTHERS)
        found = SourcesInOrder((MachineAnnotation(), last)).look(request(machine(said)), CHIP.key)
        assert isinstance(found, expected)
        assert last.asked == []

    def test_only_where_it_is_the_first(self) -> None:
        cluster = Cluster(annotated(OTHER.fingerprint))
        sources = SourcesInOrder((Inventory(DocumentKind.SECRET, "inventory"), MachineAnnotation()))
        assert sources.look(request(machine(OTHER.fingerprint), cluster), CHIP.key) == NobodySays(())
        assert cluster.asked == []


@given(st.lists(st.text("abc ", max_size=600), min_size=1, max_size=5), st.integers(60, 500))
def test_all_that_is_lacking_fits(lacking: list[str], room: int) -> None:
    text = NobodySays(tuple(lacking)).within(room)
    assert len(text) <= room
    if len("; ".join(lacking)) <= room:
        assert text == "; ".join(lacking)
    else:
        assert text.count("; ") == len(lacking) - 1
        assert "..." in text


def test_a_long_one_takes_nobodys_room() -> None:
    text = NobodySays(("short", "x" * 900, "also short")).within(100)
    assert text == "short; " + "x" * (100 - 4 - 15 - 3) + "...; also short"
