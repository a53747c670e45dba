"""T10: three real etcd members while their CA changes, in the order of a rotation and in a wrong one."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import pytest

from signer.authority import load_certificate_authority
from signer.authority.successor import AuthorityKind, new_authority
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.etcd_members import Caller, EtcdMembers, Member
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NOT_VERIFIED: Final = "failed to verify client certificate"
UNKNOWN: Final = "certificate signed by unknown authority"


@pytest.fixture(scope="module")
def old() -> CertificateAuthority:
    return CertificateAuthority.like_cluster_api()


@pytest.fixture(scope="module")
def new(old: CertificateAuthority) -> CertificateAuthority:
    """As the controller makes it."""
    now = datetime.now(UTC)
    present = load_certificate_authority({"tls.crt": old.certificate_pem, "tls.key": old.key_pem}, now=now)
    made = new_authority(AuthorityKind.ETCD, "abcdefgh", like=present.certificate, now=now)
    return CertificateAuthority.from_pem(made.certificate_pem, made.private_key_pem)


@pytest.fixture
def etcd(old: CertificateAuthority) -> Iterator[EtcdMembers]:
    try:
        running = EtcdMembers(find_control_plane().etcd, old)
    except MissingPart as missing:
        skip_or_fail(missing)
    with running:
        yield running


def write(member: Member, caller: Caller, key: str) -> None:
    """Write through this member. During an election, members accept nothing; without a quorum, none is elected."""

    def accepted() -> bool:
        with contextlib.suppress(ValueError, TimeoutError):
            member.put(caller, key)
            return True
        return False

    wait_until(accepted, f"member {member.name} accepts a write")


def one_by_one(etcd: EtcdMembers, caller: Caller, change: Callable[[Member], None]) -> None:
    """Replace each member's files and restart it, as a rollout does; the two others always have a quorum."""
    for number, member in enumerate(etcd.members):
        others = [one for one in etcd.members if one is not member]
        etcd.stop(member)
        change(member)
        etcd.wait_healthy(caller, others)
        for other in others:
            write(other, caller, f"while {number} restarts")
        etcd.start(member)
        etcd.wait_healthy(caller, [member])
        write(member, caller, f"after {number} has restarted")
    revisions = {member.revision(caller) for member in etcd.members}
    assert len(revisions) == 1


def refused(etcd: EtcdMembers, member: Member, caller: Caller) -> bool:
    """Whether the member refuses the client's certificate. It closes the connection, and says why in its log alone."""
    before = etcd.log(member).count(NOT_VERIFIED)
    try:
        member.put(caller, "refused")
    except (ssl.SSLError, ConnectionError):
        wait_until(lambda: etcd.log(member).count(NOT_VERIFIED) > before, "the member says why")
        return True
    return False


def test_the_authority_changes_without_a_lost_quorum(
    etcd: EtcdMembers, old: CertificateAuthority, new: CertificateAuthority
) -> None:
    of_old, of_new = Caller(old, (old, new)), Caller(new, (old, new))
    assert all(refused(etcd, member, of_new) for member in etcd.members)

    # etcd reads what it trusts at its start alone: a file does nothing to a running member.
    first = etcd.members[0]
    first.trust(old, new)
    assert refused(etcd, first, of_new)
    one_by_one(etcd, of_old, lambda member: member.trust(old, new))
    for member in etcd.members:
        write(member, of_new, "by the new CA")
        assert member.issuer(of_old) == old.name

    # Its certificate is read at each handshake.
    for member in etcd.members:
        member.present(new)
        assert member.issuer(Caller(old, (new,))) == new.name
        etcd.wait_healthy(of_old)
    for member in etcd.members:
        write(member, Caller(old, (new,)), "by the old CA still")
        write(member, Caller(new, (new,)), "by the new CA")
    one_by_one(etcd, of_new, lambda member: None)

    one_by_one(etcd, Caller(new, (new,)), lambda member: member.trust(new))
    assert all(refused(etcd, member, of_old) for member in etcd.members)


def test_a_member_that_trusts_the_old_authority_alone_gets_nowhere(
    etcd: EtcdMembers, old: CertificateAuthority, new: CertificateAuthority
) -> None:
    """The wrong order: new certificates appear before all members trust the new CA. Two of three still do."""
    both = Caller(old, (old, new))
    *quorum, late = etcd.members
    for member in quorum:
        etcd.stop(member)
        member.trust(old, new)
        etcd.start(member)
        etcd.wait_healthy(both)
    for member in quorum:
        member.present(new)
    etcd.stop(late)
    etcd.wait_healthy(both, quorum)
    etcd.start(late)
    wait_until(lambda: UNKNOWN in etcd.log(late), "the late member refuses its peers")
    assert not late.is_healthy(both)
    for member in quorum:
        write(member, both, "without the late member")

    etcd.stop(late)
    late.trust(old, new)
    etcd.start(late)
    etcd.wait_healthy(both)
    assert len({member.revision(both) for member in etcd.members}) == 1
