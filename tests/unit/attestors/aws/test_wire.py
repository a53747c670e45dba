"""Names that both halves share, and how the binding is written."""

from __future__ import annotations

import pytest

from attestors.aws import wire
from attestors.wire.evidence import MalformedEvidence

_BINDING = bytes(range(32))
_DIGITS = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"


def test_both_ways_to_write_a_binding() -> None:
    assert wire.binding_text(_BINDING) == _DIGITS
    assert wire.parse_binding_text(_DIGITS) == _BINDING
    assert wire.audience(_BINDING) == f"https://attestation.cluster.x-k8s.io/binding/{_DIGITS}"
    assert wire.audience_binding(wire.audience(_BINDING)) == _BINDING


_OTHERS = ["", _DIGITS[:-2], _DIGITS + "20", _DIGITS.upper(), _DIGITS[:-1] + "\n", "\uff10" * 64, " " + _DIGITS]


@pytest.mark.parametrize("text", _OTHERS)
def test_a_binding_is_written_in_one_way_only(text: str) -> None:
    with pytest.raises(MalformedEvidence, match=r"^field callerIdentityBinding must be 64"):
        wire.parse_binding_text(text)
    with pytest.raises(MalformedEvidence, match="another audience"):
        wire.audience_binding("https://attestation.cluster.x-k8s.io/binding/" + text)


@pytest.mark.parametrize("audience", [_DIGITS, "sts.amazonaws.com", "https://attestation.example/binding/" + _DIGITS])
def test_an_audience_of_another_service(audience: str) -> None:
    with pytest.raises(MalformedEvidence, match="another audience"):
        wire.audience_binding(audience)
