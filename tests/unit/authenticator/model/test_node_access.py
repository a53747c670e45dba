"""Which SSH certificates and which trust a node accepts; each refusal by its own reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.node_access import NodeAccess, Trust
from attestors.wire.ssh.certificate import FOREVER, Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.errors import SSHReason
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.principals import HostName, PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of
from authenticator.model.node_access import AcceptedAccess, AccessReason, AccessRefused, UnknownTrust, accept_access
from authenticator.model.ssh_state import SSHState, digest_of
from tests.support.node_access import DAY, HOST_AUTHORITY, NOW, USER_AUTHORITY, certificate, signed, trust
from tests.support.openssh import private_key

KEY, OTHER_KEY = public_key_of(private_key("ed25519")), public_key_of(private_key("nistp256"))
THIEF = private_key("ed25519", 666)
UNKNOWN = UnknownTrust()
NOTHING = SSHState()
HELD = SSHState(trust_version=7, trust_digest=digest_of(trust()))


def accept(
    *certificates: SignedCertificate,
    state: SSHState = NOTHING,
    now: int = NOW,
    node: str = "worker-1",
    in_force: Trust | UnknownTrust = UNKNOWN,
    **changes: Any,
) -> AcceptedAccess:
    access = NodeAccess(certificates or (certificate(KEY),), trust(**changes))
    return accept_access(access, host_keys=(KEY, OTHER_KEY), node_name=node, state=state, in_force=in_force, now=now)


def refusal(*certificates: SignedCertificate, **changes: Any) -> str:
    with pytest.raises(AccessRefused) as refused:
        accept(*certificates, **changes)
    assert str(refused.value).startswith(f"{refused.value.reason}: ")
    return refused.value.reason


def test_a_certificate_for_this_node_is_accepted() -> None:
    both = (certificate(KEY), certificate(OTHER_KEY))
    assert accept(*both) == AcceptedAccess(both, trust())
    accept(certificate(KEY, valid_before=FOREVER))


def test_a_certificate_for_a_foreign_host_key_is_refused() -> None:
    foreign = public_key_of(private_key("ed25519", 5))
    assert refusal(certificate(foreign)) == AccessReason.FOREIGN_HOST_KEY
    assert refusal(certificate(KEY), certificate(foreign)) == AccessReason.FOREIGN_HOST_KEY


def test_an_unlisted_authority_is_refused() -> None:
    """Test 15, another CA; and test 22's reverse: the CA of users signs for a host."""
    assert refusal(certificate(KEY, authority=THIEF)) == AccessReason.UNKNOWN_AUTHORITY
    assert refusal(certificate(KEY, authority=USER_AUTHORITY)) == AccessReason.UNKNOWN_AUTHORITY


def test_a_signature_of_another_key_is_refused() -> None:
    made = certificate(KEY).certificate
    assert refusal(signed(made, THIEF)) == SSHReason.BAD_SIGNATURE
    assert refusal(replace(certificate(KEY), certificate=replace(made, serial=1))) == SSHReason.BAD_SIGNATURE


def test_a_certificate_without_this_nodes_name_is_refused() -> None:
    assert refusal(certificate(KEY, node="worker-2")) == AccessReason.OTHER_NODE
    assert refusal(certificate(KEY, principals=())) == AccessReason.OTHER_NODE
    assert refusal(certificate(KEY, principals=(HostName("worker-1.prod.team-a"),))) == AccessReason.OTHER_NODE


def test_a_users_certificate_is_refused() -> None:
    """Test 21. The text's parser refuses it, too."""
    made = Certificate(
        public_key=KEY,
        kind=CertificateKind.USER,
        serial=1,
        key_id="",
        principals=(PlainPrincipal("worker-1"),),
        valid_after=NOW - 60,
        valid_before=NOW + DAY,
        authority=public_key_of(HOST_AUTHORITY),
        nonce=bytes(32),
    )
    access = NodeAccess((certificate(KEY),), trust())
    object.__setattr__(access, "host_certificates", (signed(made, HOST_AUTHORITY),))
    with pytest.raises(AccessRefused) as refused:
        accept_access(access, host_keys=(KEY,), node_name="worker-1", state=SSHState(), in_force=UNKNOWN, now=NOW)
    assert refused.value.reason == AccessReason.NOT_A_HOST_CERTIFICATE


@pytest.mark.parametrize("behind", [0, 60, 299])
def test_a_clock_may_be_five_minutes_behind(behind: int) -> None:
    accept(certificate(KEY, valid_after=NOW), now=NOW - behind)


def test_a_certificate_that_begins_later_is_refused() -> None:
    assert refusal(certificate(KEY, valid_after=NOW), now=NOW - 301) == AccessReason.NOT_YET_VALID


def test_a_certificate_that_has_ended_is_refused() -> None:
    accept(certificate(KEY), now=NOW + 30 * DAY - 1)
    assert refusal(certificate(KEY), now=NOW + 30 * DAY) == AccessReason.EXPIRED


def test_the_version_of_the_trust_never_goes_back() -> None:
    accept(version=7, state=HELD)
    accept(version=8, state=HELD)
    assert refusal(version=6, state=HELD) == AccessReason.OLDER_TRUST
    assert refusal(version=6, state=HELD, in_force=trust(version=6)) == AccessReason.OLDER_TRUST
    assert refusal(state=HELD, in_force=trust(), user_authorities=(public_key_of(THIEF),)) == AccessReason.CHANGED_TRUST


def test_a_text_that_was_on_its_way_while_a_bundle_came() -> None:
    """Its certificates count under the newer trust, which stays."""
    leaked = (*trust().user_authorities, public_key_of(THIEF))
    found = accept(version=6, user_authorities=leaked, state=HELD, in_force=trust())
    assert found == AcceptedAccess((certificate(KEY),), trust()), "no authority of the older one counts again"


def test_an_older_text_brings_no_certificate_of_an_authority_that_was_dropped() -> None:
    thief = (host_key(public_key_of(THIEF)),)
    by_thief = certificate(KEY, authority=THIEF)
    accept(by_thief, version=8, host_authorities=thief, state=HELD, in_force=trust())
    for changes in ({"in_force": trust()}, {}):
        assert refusal(by_thief, version=6, host_authorities=thief, state=HELD, **changes) in (
            AccessReason.UNKNOWN_AUTHORITY,
            AccessReason.OLDER_TRUST,
        )
    assert (
        refusal(certificate(KEY, node="worker-2"), version=6, state=HELD, in_force=trust()) == AccessReason.OTHER_NODE
    )
    assert refusal(version=6, state=HELD, in_force=trust(), now=NOW + 30 * DAY) == AccessReason.EXPIRED


def test_a_version_stands_for_one_set_of_authorities() -> None:
    other = (public_key_of(THIEF),)
    assert refusal(state=HELD, user_authorities=other) == AccessReason.CHANGED_TRUST
    assert refusal(state=HELD, user_authorities=(*trust().user_authorities, *other)) == AccessReason.CHANGED_TRUST
    assert accept(state=HELD, version=8, user_authorities=other).trust.user_authorities == other
    more = trust(user_authorities=(*trust().user_authorities, *other))
    reordered = Trust(more.user_authorities[::-1], (), more.host_authorities, more.version)
    assert digest_of(more) == digest_of(reordered)


def test_an_online_authority_does_not_become_a_break_glass_one_under_the_same_version() -> None:
    online, break_glass = trust().user_authorities[0], public_key_of(private_key("ed25519", 201))
    held = trust(break_glass_authorities=(break_glass,))
    state = SSHState(held.version, digest_of(held))
    changed = {"user_authorities": (break_glass,), "break_glass_authorities": (online,)}
    assert refusal(state=state, **changed) == AccessReason.CHANGED_TRUST
    assert refusal(state=state, user_authorities=held.all_user_authorities) == AccessReason.CHANGED_TRUST
    assert accept(state=state, break_glass_authorities=(break_glass,)).trust == held
