from __future__ import annotations

import re

import pytest

from authenticator.model import failures
from authenticator.model.failures import ExitCode, Failure


def kinds(kind: type[Failure] = Failure) -> list[type[Failure]]:
    """Every failure of the model, itself and those below."""
    below = [one for child in kind.__subclasses__() for one in kinds(child)]
    return [one for one in (kind, *below) if one.__module__ == failures.__name__]


NUMBERS = {
    "Failure": 1,
    "InvalidConfiguration": 2,
    "UnreadableConfiguration": 10,
    "StillPending": 3,
    "ApiUnavailable": 4,
    "UntrustedServer": 5,
    "CredentialRefused": 6,
    "Denied": 7,
    "NoCredential": 8,
    "NoEvidence": 9,
    "StoreUnusable": 10,
}


def test_the_exit_codes_stay() -> None:
    """Scripts rely on the numbers."""
    assert {kind.__name__: int(kind.exit_code) for kind in kinds()} == NUMBERS
    assert (ExitCode.DONE, ExitCode.UNEXPECTED) == (0, 1)
    assert sorted(ExitCode) == list(range(13))


def test_the_table_says_the_same() -> None:
    table = dict(re.findall(r"^ +([A-Za-z]+) +(\d+) ", failures.__doc__ or "", re.MULTILINE))
    assert {name: int(number) for name, number in table.items()} == {
        name: number for name, number in NUMBERS.items() if name != "Failure"
    }


@pytest.mark.parametrize("kind", kinds())
def test_a_failure_keeps_its_message(kind: type[Failure]) -> None:
    assert str(kind("what is wrong, and what to do")) == "what is wrong, and what to do"
