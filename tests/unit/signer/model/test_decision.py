from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, Approve, Deferred, Refused, printable
from signer.model.reasons import Reason
from tests.unit.signer.builders import journal_entry
from tests.unit.signer.outcomes import assert_printable

ANY_TEXT = st.text(st.characters(), min_size=1, max_size=2000)


@given(ANY_TEXT)
def test_messages_are_bounded_printable_ascii(text: str) -> None:
    assert_printable(printable(text))
    for error in (Refused(Reason.INVALID_SUBJECT, text), Deferred(Reason.MACHINE_PAUSED, text)):
        assert_printable(str(error))
    assert_printable(Refused(Reason.INVALID_SUBJECT, text).deny.message)
    assert_printable(Deferred(Reason.MACHINE_PAUSED, text).defer.message)


def test_printable() -> None:
    assert MAXIMUM_MESSAGE_CHARACTERS == 1024
    assert printable("a ~b\\n") == "a ~b\\n"
    assert printable("\n\x1b\x7f\u202e\ud800\U0001f600\0") == r"\n\x1b\x7f\u202e\ud800\U0001f600\x00"
    assert printable("x" * 2000) == "x" * MAXIMUM_MESSAGE_CHARACTERS
    assert printable("\0" * 1024) == (r"\x00" * 1024)[:MAXIMUM_MESSAGE_CHARACTERS]


def test_refused() -> None:
    refused = Refused(Reason.INVALID_SUBJECT, "m\n", {"a": "b"})
    assert str(refused) == r"InvalidSubject: m\n"
    assert (refused.deny.reason, refused.deny.message, dict(refused.deny.annotations)) == (
        "InvalidSubject",
        r"m\n",
        {"a": "b"},
    )
    assert dict(Refused(Reason.INVALID_SUBJECT, "m").deny.annotations) == {}


def test_deferred() -> None:
    deferred = Deferred(Reason.MACHINE_PAUSED, "m\n", timedelta(seconds=3))
    assert str(deferred) == r"MachinePaused: m\n"
    assert (deferred.defer.reason, deferred.defer.message, deferred.defer.retry_after) == (
        "MachinePaused",
        r"m\n",
        timedelta(seconds=3),
    )
    assert Deferred(Reason.MACHINE_PAUSED, "m").defer.retry_after is None
    assert Deferred(Reason.MACHINE_PAUSED, "m").defer.waits_for == ()
    assert Deferred(Reason.NODE_NAME_BLOCKED, "m", waits_for=("x:///1",)).defer.waits_for == ("x:///1",)


def test_no_certificate_is_shown() -> None:
    assert "certificate=" not in repr(Approve("n1", Reason.ATTESTED, "attested", journal_entry(), b"certificate"))
