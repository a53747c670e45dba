"""How long tokens of MachinePools live."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from signer.model.bootstrap_token import (
    Extension,
    NeverExpires,
    TokenSecret,
)
from signer.rules.bootstrap_token import (
    EXTEND_BELOW,
    EXTEND_TO,
    SHORTEN_TO,
    Extend,
    NoChange,
    RemoveAnnotation,
    Shorten,
    token_change,
)
from tests.unit.signer.builders import NOW

# How long tokens live


def secret(left: timedelta = timedelta(minutes=15), **changes: Any) -> TokenSecret:
    made = TokenSecret("bootstrap-token-abc123", "abc123", "7", True, NOW + left, Extension.NONE)
    return replace(made, **changes)


def test_how_long_is_what_the_documents_say() -> None:
    hours = timedelta(hours=1)
    assert (12 * hours, 24 * hours, hours / 4) == (EXTEND_BELOW, EXTEND_TO, SHORTEN_TO)


def test_a_pools_token_is_extended_before_its_provider_rotates_it() -> None:
    assert token_change(secret(), wanted=True, now=NOW) == Extend(NOW + EXTEND_TO)
    assert token_change(secret(EXTEND_BELOW - timedelta(seconds=1)), wanted=True, now=NOW) == Extend(NOW + EXTEND_TO)
    assert token_change(secret(EXTEND_BELOW), wanted=True, now=NOW) == NoChange()


def test_one_that_has_run_out_is_not_brought_back() -> None:
    assert token_change(secret(timedelta(0)), wanted=True, now=NOW) == NoChange()


def test_one_that_authenticates_nobody_is_not_extended() -> None:
    assert token_change(secret(authenticates=False), wanted=True, now=NOW) == NoChange()


def test_one_without_an_end_is_left() -> None:
    for wanted in (True, False):
        assert token_change(secret(expiration=NeverExpires()), wanted=wanted, now=NOW) == NoChange()


def test_what_was_extended_is_cut_back() -> None:
    long = secret(timedelta(hours=20), extension=Extension.OURS)
    assert token_change(long, wanted=False, now=NOW) == Shorten(NOW + SHORTEN_TO)
    assert token_change(replace(long, authenticates=False), wanted=False, now=NOW) == Shorten(NOW + SHORTEN_TO)


def test_what_ends_soon_anyway_only_loses_its_mark() -> None:
    assert token_change(secret(SHORTEN_TO, extension=Extension.OURS), wanted=False, now=NOW) == RemoveAnnotation()
    assert (
        token_change(secret(extension=Extension.OURS), wanted=False, now=NOW + timedelta(days=1)) == RemoveAnnotation()
    )


def test_what_others_extended_is_theirs() -> None:
    assert token_change(secret(timedelta(days=30)), wanted=False, now=NOW) == NoChange()
    overwritten = secret(timedelta(days=30), extension=Extension.OVERWRITTEN)
    assert token_change(overwritten, wanted=False, now=NOW) == RemoveAnnotation()
    unending = replace(overwritten, expiration=NeverExpires())
    assert token_change(unending, wanted=False, now=NOW) == RemoveAnnotation()
    assert token_change(unending, wanted=True, now=NOW) == NoChange(), "it would be marked again at once"
