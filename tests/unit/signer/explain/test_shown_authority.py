"""What explanations take from the policy's status: a person may have written anything there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.decision.host_certificates import NoSigningHostAuthority, ShownHostAuthority
from signer.explain.shown_authority import shown_host_authority
from signer.model.ssh_access import BreakGlassKey, NoRotationPeriod, SSHSettings
from tests.support.openssh import private_key, public_keys

USER, HOST, NEXT, BREAK_GLASS = (public_key_of(private_key("ed25519", seed)) for seed in range(300, 304))
SETTINGS: Final = SSHSettings(timedelta(days=1), (BreakGlassKey(key_line(BREAK_GLASS)),), NoRotationPeriod())


def shown(status: str = "True", **ssh: Any) -> dict[str, Any]:
    condition = {"type": "SSHAuthoritiesAvailable", "status": status, "reason": "Why", "message": "it is so"}
    found = {
        "trustVersion": 7,
        "userAuthorities": [{"publicKey": key_line(USER)}],
        "hostAuthorities": [{"publicKey": key_line(one)} for one in (HOST, NEXT)],
    }
    return {"status": {"conditions": [{"type": "Ready", "status": "True"}, condition], "ssh": found | ssh}}


def test_the_first_host_authority_signs() -> None:
    found = shown_host_authority(shown(), SETTINGS)
    assert isinstance(found, ShownHostAuthority)
    assert found.public_key == HOST
    assert (found.trust.host_authorities, found.trust.version) == ((HOST, NEXT), 7)
    assert found.trust.all_user_authorities == (USER, BREAK_GLASS)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({}, "condition SSHAuthoritiesAvailable: the policy's status lacks it"),
        (shown("False"), "condition SSHAuthoritiesAvailable: Why: it is so"),
        (shown("Unknown"), "condition SSHAuthoritiesAvailable: Why: it is so"),
        (shown(hostAuthorities=[]), "status.ssh of the policy does not show them"),
        (shown(trustVersion="7"), "status.ssh of the policy does not show them"),
        (shown(hostAuthorities=[{"publicKey": "x"}]), "status.ssh of the policy cannot be read: "),
        (shown(hostAuthorities=["x"]), "status.ssh of the policy cannot be read: "),
        (shown(userAuthorities=[]), "status.ssh of the policy cannot be read: "),
        (shown(userAuthorities=[{"publicKey": key_line(HOST)}]), "status.ssh of the policy cannot be read: "),
        (
            shown(hostAuthorities=[{"publicKey": key_line(one)} for one in list(public_keys().values())[:5]]),
            "status.ssh of the policy cannot be read: ",
        ),
    ],
)
def test_what_shows_none(policy: dict[str, Any], why: str) -> None:
    found = shown_host_authority(policy, SETTINGS)
    assert isinstance(found, NoSigningHostAuthority)
    assert found.message.startswith(why)
