"""Values of SSH for property tests."""

from __future__ import annotations

import ipaddress
from typing import Final

from hypothesis import strategies as st

from attestors.wire.ssh.certificate import FOREVER, Certificate, CertificateKind
from attestors.wire.ssh.keys import Ed25519Key, PublicKey
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    SerialRange,
)
from attestors.wire.ssh.options import CriticalOption, Extension, ForceCommand, SourceAddress, VerifyRequired
from attestors.wire.ssh.principals import (
    HostAddress,
    HostName,
    HostPrincipal,
    LoginOnEveryNode,
    LoginOnNode,
    PlainPrincipal,
    UserPrincipal,
)
from tests.support.openssh import public_keys

_LAST_TIME: Final = 2**31 - 1
"""``ssh-keygen`` shows no later one."""
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))

keys: Final[st.SearchStrategy[PublicKey]] = st.one_of(
    st.sampled_from(list(public_keys().values())), st.builds(Ed25519Key, st.binary(min_size=32, max_size=32))
)
serials: Final = st.one_of(st.integers(1, 40), st.integers(1, 2**64 - 1), st.just(2**63 - 1))
logins: Final = st.text(_LETTERS + "._", min_size=1, max_size=12)
nodes: Final = st.builds(
    "{}.{}".format, st.text(_LETTERS, min_size=1, max_size=9), st.text(_LETTERS, min_size=1, max_size=9)
).filter(lambda name: not name.replace(".", "").isdigit())
user_principals: Final[st.SearchStrategy[UserPrincipal]] = st.one_of(
    st.builds(PlainPrincipal, logins), st.builds(LoginOnNode, logins, nodes), st.builds(LoginOnEveryNode, logins)
)
host_principals: Final[st.SearchStrategy[HostPrincipal]] = st.one_of(
    st.builds(HostName, nodes),
    st.builds(HostAddress, st.ip_addresses(v=4)),
    st.builds(HostAddress, st.integers(2**112, 2**128 - 1).map(ipaddress.IPv6Address)),
)
networks: Final = st.one_of(
    st.builds(
        lambda bits, length: ipaddress.IPv4Network((bits, length), strict=False),
        st.integers(0, 2**32 - 1),
        st.integers(1, 32),
    ),
    st.builds(
        lambda bits, length: ipaddress.IPv6Network((bits, length), strict=False),
        st.integers(2**112, 2**128 - 1),
        st.integers(16, 128),
    ),
)
critical_options: Final[st.SearchStrategy[tuple[CriticalOption, ...]]] = st.tuples(
    st.lists(st.builds(ForceCommand, st.text(_PRINTABLE, min_size=1, max_size=40)), max_size=1),
    st.lists(st.builds(SourceAddress, st.lists(networks, min_size=1, max_size=4, unique=True).map(tuple)), max_size=1),
    st.lists(st.just(VerifyRequired()), max_size=1),
).map(lambda found: (*found[0], *found[1], *found[2]))
extensions: Final[st.SearchStrategy[tuple[Extension, ...]]] = st.sets(st.sampled_from(list(Extension))).map(
    lambda found: tuple(sorted(found, key=lambda one: one.value))
)
key_ids: Final = st.text(_PRINTABLE.replace("\\", ""), max_size=40)


@st.composite
def certificates(draw: st.DrawFn, *, authority: PublicKey) -> Certificate:
    """A certificate of either kind."""
    kind = draw(st.sampled_from(CertificateKind))
    is_user = kind is CertificateKind.USER
    after = draw(st.one_of(st.just(0), st.integers(1, _LAST_TIME - 1)))
    principals = st.lists(user_principals if is_user else host_principals, max_size=6, unique_by=str)
    return Certificate(
        public_key=draw(keys),
        kind=kind,
        serial=draw(st.one_of(st.just(0), serials)),
        key_id=draw(key_ids),
        principals=tuple(draw(principals)),
        valid_after=after,
        valid_before=draw(st.one_of(st.just(FOREVER), st.integers(after + 1, _LAST_TIME))),
        authority=authority,
        critical_options=draw(critical_options) if is_user else (),
        extensions=draw(extensions) if is_user else (),
        nonce=draw(st.binary(min_size=32, max_size=32)),
    )


_ranges: Final = st.one_of(
    st.builds(SerialRange.single, serials),
    st.builds(lambda one, other: SerialRange(min(one, other), max(one, other)), serials, serials),
)


def revocation_lists(
    *, authorities: list[PublicKey], ids: list[str], subjects: list[PublicKey]
) -> st.SearchStrategy[RevocationList]:
    """Lists over these authorities, key ids and keys."""
    of_certificates = st.builds(
        CertificateRevocations,
        st.one_of(st.sampled_from(authorities), st.just(AnyAuthority())),
        st.lists(_ranges, max_size=4).map(tuple),
        st.lists(st.sampled_from(ids), max_size=3).map(tuple),
    )
    return st.builds(
        RevocationList,
        version=st.integers(0, 2**64 - 1),
        generated=st.integers(0, _LAST_TIME),
        comment=st.text(_LETTERS, max_size=10),
        certificates=st.lists(of_certificates, max_size=4).map(tuple),
        keys=st.lists(st.sampled_from(subjects), max_size=2).map(tuple),
        fingerprints=st.lists(st.sampled_from(subjects).map(Fingerprint.of), max_size=2).map(tuple),
    )
