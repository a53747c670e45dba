from __future__ import annotations

from dataclasses import replace

import pytest

from attestors.wire.statement import accept_controller_keys, authorities_in
from attestors.wire.statement.verification import PinnedController
from signer.authority import CertificateAuthorityUnavailable, KeyWithheld
from signer.authority.statement_signing import StatementKeys
from signer.model.seal import ControllerKeys, KeyUse
from tests.support.statements import IDENTITY, NOW, authority, controller, signed, trust_of

CURRENT, PREVIOUS = b"c" * 32, b"p" * 32


def keys(*generations: bytes) -> StatementKeys:
    return StatementKeys.of(ControllerKeys(*generations).subkeys(KeyUse.STATEMENT))


def test_each_generation_has_its_key_and_the_current_is_first() -> None:
    both = keys(CURRENT, PREVIOUS).public.keys
    assert both == (*keys(CURRENT).public.keys, *keys(PREVIOUS).public.keys)
    assert len(set(both)) == 2


def test_the_key_of_a_controller_key_never_changes() -> None:
    """Nodes pinned it."""
    assert keys(CURRENT).public.keys[0].hex() == "546fe682ac05508abddd279cf82352f81cdefbbd3448144bffdf8b0aaeee1ab7"


def test_both_generations_sign_while_the_previous_is_kept() -> None:
    old = authority("old")
    rotated = keys(CURRENT, PREVIOUS)
    pin = PinnedController(IDENTITY, keys(PREVIOUS).public, 1)
    statement = signed(rotated.public, old, keys=rotated, sequence=2)
    trusted = authorities_in([old.certificate.der])
    assert accept_controller_keys(statement, trusted=trusted, pin=pin, now=NOW).keys == rotated.public


def test_a_ca_without_its_key_signs_nothing() -> None:
    withheld = replace(authority("old"), private_key=KeyWithheld())
    with pytest.raises(CertificateAuthorityUnavailable):
        signed(trust_of(withheld), withheld)


def test_one_ca_given_twice_signs_once() -> None:
    old = authority("old")
    assert len(signed(trust_of(old), old, old).signatures) == 1 + len(controller().private)


def test_keys_are_not_shown() -> None:
    assert repr(controller()) == "StatementKeys()"
