"""What a check said, with what holds for every message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, Defer, Deferred, Deny, Refused
from signer.rules.checks import Check, run_checks

Facts = TypeVar("Facts")


def refused(run: Callable[[Facts], object], facts: Facts) -> Deny:
    with pytest.raises(Refused) as caught:
        run(facts)
    assert_printable(str(caught.value))
    assert_printable(caught.value.deny.message)
    return caught.value.deny


def deferred(run: Callable[[Facts], object], facts: Facts) -> Defer:
    with pytest.raises(Deferred) as caught:
        run(facts)
    assert_printable(str(caught.value))
    assert_printable(caught.value.defer.message)
    return caught.value.defer


def all_of(checks: Iterable[Check[Facts]]) -> Callable[[Facts], None]:
    return lambda facts: run_checks(checks, facts)


def assert_printable(message: str) -> None:
    assert message
    assert message.isascii()
    assert message.isprintable()
    assert len(message) <= MAXIMUM_MESSAGE_CHARACTERS
