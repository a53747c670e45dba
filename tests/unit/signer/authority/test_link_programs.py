"""Test T11 of the rotation's design: what real programs make of link certificates.

Go and OpenSSL must agree with `presented_by`, so that its answer may stand for what clients accept. All programs must
accept a good link. Of wrong links, some programs refuse more than they need to, and some accept more: see `LENIENT` and
`STOPPED_BY_WRONG_LINKS`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from signer.authority import Presented, ServerNames, Validity, presented_by
from signer.authority.der import read_blocks
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.tls_programs.programs import CLIENT_VERIFIERS, SERVER_VERIFIERS, Program
from tests.support.tls_programs.questions import AcceptsClient, AcceptsServer
from tests.support.tls_programs.server import ChainServer
from tests.unit.signer.authority.chains import (
    CLIENT,
    DAY,
    Authority,
    forged,
    leaf,
    new_old,
    of_cluster_api,
    of_our_own,
    old_new,
    successor,
)
from tests.unit.signer.authority.support import Made, ec_key, pem_key, rsa_key

pytestmark = pytest.mark.slow

PINNED: Final = ("openssl", "python")
"""The programs that continuous integration always has."""
ACCEPTED_BY: Final = {
    Presented.OLD: {"old", "old, new", "new, old"},
    Presented.OLD_LINKED: {"old", "new", "old, new", "new, old"},
    Presented.NEW: {"new", "old, new", "new, old"},
    Presented.NEW_LINKED: {"old", "new", "old, new", "new, old"},
    Presented.FOREIGN: set[str](),
}


def current_time() -> datetime:
    """In whole seconds: the programs have no other clock."""
    return datetime.now(UTC).replace(microsecond=0)


EQUAL_SUBJECTS: Final = "equal subjects, other algorithm"
KINDS: Final = ("rsa", "ecdsa", EQUAL_SUBJECTS)
BEYOND_PATH_LENGTH: Final = "new, link, path length 0"
LINK_FOR_CLIENTS: Final = "old, link for clients"
STOPPED_BY_WRONG_LINKS: Final = ("gnutls-cli", "java")
"""They follow the presented chain and refuse it at a wrong link, even if they know the CA that signed the leaf."""
LOGIN_BY_OLD_WITH_NEW: Final = "client of old, OldWithNew"
LENIENT: Final = {("java", LINK_FOR_CLIENTS), ("java", BEYOND_PATH_LENGTH), ("java", LOGIN_BY_OLD_WITH_NEW)}
"""Java does not look at the extended key usage of a CA, nor at the path length of a trust anchor."""
LENIENT_WITH_EQUAL_SUBJECTS: Final = {
    (program, BEYOND_PATH_LENGTH) for program in ("openssl", "python", "curl", "node", "java")
}
"""RFC 5280 6.1.4 (l) does not count a certificate whose subject is its issuer. Go counts it."""


@dataclass(frozen=True)
class Pair:
    """The CAs of one rotation."""

    old: Authority
    new: Authority

    @property
    def trust(self) -> dict[str, bytes]:
        old, new = self.old.pem, self.new.pem
        return {"old": old, "new": new, "old, new": old + new, "new, old": new + old}


@dataclass(frozen=True)
class Row:
    """A chain, and how it must be classified."""

    name: str
    pair: Pair
    chain: bytes
    key: bytes
    expected: Presented
    has_wrong_link: bool

    def answers(self, program: str, trust: str, *, equal_subjects: bool) -> set[bool]:
        """The right answers of a program that trusts these CAs: whether it accepts the chain."""
        right = {trust in ACCEPTED_BY[self.expected]}
        if self.has_wrong_link and program in STOPPED_BY_WRONG_LINKS:
            right |= {False}
        if (program, self.name) in LENIENT | (LENIENT_WITH_EQUAL_SUBJECTS if equal_subjects else set()):
            right |= {True}
        return right


def pairs(kind: str, now: datetime) -> dict[int | None, Pair]:
    """By the old CA's path length."""
    keys = [ec_key(number) if kind == "ecdsa" else rsa_key(number=number) for number in range(3)]
    names = "kubernetes-oldoldol" if kind == "ecdsa" else "kubernetes"
    olds = {
        0: of_cluster_api(key=keys[0], now=now),
        None: of_our_own(names, keys[1], now=now),
        1: of_our_own(names, keys[2], path_length=1, now=now),
    }
    if kind == EQUAL_SUBJECTS:
        new = of_our_own("kubernetes", ec.generate_private_key(ec.SECP384R1()), now=now)
        return {length: Pair(old, new) for length, old in olds.items()}
    new = successor(olds[0], now=now)
    return {length: Pair(old, new) for length, old in olds.items()}


def server_rows(kind: str, now: datetime) -> Iterator[Row]:
    made = pairs(kind, now)
    third = of_our_own("third", ec_key(9), now=now)
    first = made[0]
    old, new = first.old, first.new

    def row(name: str, pair: Pair, certificate: Made, *links: bytes, expected: Presented) -> Row:
        chain, key = certificate.pem + b"".join(links), pem_key(certificate.key)
        linked = expected in (Presented.OLD_LINKED, Presented.NEW_LINKED)
        return Row(name, pair, chain, key, expected, has_wrong_link=bool(links) and not linked)

    by_old, by_new = leaf(old, now=now), leaf(new, now=now)
    link = old_new(old, new, now=now)
    ended = forged(link.certificate, new, validity=Validity(now - 2 * DAY, now - DAY))
    by_third = forged(link.certificate, third)
    of_third = forged(link.certificate, new, subject_public_key_info=third.certificate.subject_public_key_info)
    for_clients = forged(link.certificate, new, extensions=(CLIENT,))
    networks = tuple(ipaddress.ip_network(text) for text in ("127.0.0.0/8", "10.96.0.1/32"))
    limited = old_new(old, new, now=now, names=ServerNames(("localhost", "kubernetes.default.svc"), networks))
    elsewhere = old_new(old, new, now=now, names=ServerNames(("localhost",), networks))
    yield row("old", first, by_old, expected=Presented.OLD)
    yield row("old, link", first, by_old, link.certificate_pem, expected=Presented.OLD_LINKED)
    yield row("old, link that has ended", first, by_old, ended.certificate_pem, expected=Presented.OLD)
    yield row("old, link by a third CA", first, by_old, by_third.certificate_pem, expected=Presented.OLD)
    yield row("old, link of a third key", first, by_old, of_third.certificate_pem, expected=Presented.OLD)
    yield row(LINK_FOR_CLIENTS, first, by_old, for_clients.certificate_pem, expected=Presented.OLD)
    yield row("old, link for its names", first, by_old, limited.certificate_pem, expected=Presented.OLD_LINKED)
    yield row("old, link for other names", first, by_old, elsewhere.certificate_pem, expected=Presented.OLD)
    yield row("new", first, by_new, expected=Presented.NEW)
    yield row("third", first, leaf(third, now=now), link.certificate_pem, expected=Presented.FOREIGN)
    for length in (None, 1):
        pair = made[length]
        upward = new_old(pair.old, pair.new, now=now).certificate_pem
        yield row(f"new, link, path length {length}", pair, by_new, upward, expected=Presented.NEW_LINKED)
    upward = beyond_path_length(made[None], old)
    yield row(BEYOND_PATH_LENGTH, first, by_new, upward, expected=Presented.NEW)


def beyond_path_length(possible: Pair, old: Authority) -> bytes:
    """The NewWithOld that a CA of Cluster API should not issue."""
    link = new_old(possible.old, possible.new, now=current_time()).certificate
    identifier = old.certificate.subject_key_identifier
    assert identifier is not None
    value = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    return forged(link, old, issuer=old.certificate.subject, extensions=(value,)).certificate_pem


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rows(kind: str) -> list[Row]:
    return list(server_rows(kind, current_time()))


@pytest.fixture(scope="module")
def servers(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Row, int]]]:
    with ExitStack() as stack:
        running = []
        for row in rows:
            server = ChainServer(tmp_path_factory.mktemp("server"), row.chain, row.key)
            running.append((row, stack.enter_context(server).port))
        yield running


def answers_of(program: Program, ask: str, folder: Path, questions: list[object]) -> list[str]:
    try:
        return list(getattr(program, ask)(folder, questions))
    except MissingPart as missing:
        if program.name in PINNED:
            skip_or_fail(missing)
        pytest.skip(str(missing))


def test_the_classifier(rows: list[Row]) -> None:
    for row in rows:
        chain = [block.content for block in read_blocks(row.chain, maximum_bytes=1 << 16, maximum_blocks=8)]
        pair = row.pair
        found = presented_by(chain, old=pair.old.certificate, new=pair.new.certificate, now=current_time())
        assert found is row.expected, row.name


@pytest.mark.parametrize("program", SERVER_VERIFIERS, ids=lambda program: program.name)
def test_servers(program: Program, kind: str, servers: list[tuple[Row, int]], tmp_path: Path) -> None:
    asked = [
        (row, trust, AcceptsServer(port, row.chain, pem))
        for row, port in servers
        for trust, pem in row.pair.trust.items()
    ]
    answers = answers_of(program, "servers", tmp_path, [question for *_, question in asked])
    wrong = [
        (row.name, f"client knows {trust}", answer or "accepted")
        for (row, trust, _), answer in zip(asked, answers, strict=True)
        if (not answer) not in row.answers(program.name, trust, equal_subjects=kind == EQUAL_SUBJECTS)
    ]
    assert wrong == []


@pytest.mark.parametrize("program", CLIENT_VERIFIERS, ids=lambda program: program.name)
def test_clients(program: Program, kind: str, tmp_path: Path) -> None:
    now = current_time()
    made = pairs(kind, now)
    old, new = made[0].old, made[0].new
    by_old, by_new = leaf(old, CLIENT, now=now), leaf(new, CLIENT, now=now)
    key = pem_key(by_old.key)
    down = by_old.pem + old_new(old, new, now=now).certificate_pem
    lenient = LENIENT | (LENIENT_WITH_EQUAL_SUBJECTS if kind == EQUAL_SUBJECTS else set())
    asked = [
        (LOGIN_BY_OLD_WITH_NEW, new.pem, False, down),
        ("client of old, server knows it", old.pem, True, down),
        (BEYOND_PATH_LENGTH, old.pem, False, by_new.pem + beyond_path_length(made[None], old)),
    ]
    for length in (None, 1):
        pair = made[length]
        up = by_new.pem + new_old(pair.old, pair.new, now=now).certificate_pem
        asked.append((f"path length {length}", pair.old.pem, True, up))
        asked.append((f"path length {length}, server knows the new CA", pair.new.pem, True, up))
    questions: list[object] = [AcceptsClient(chain, key, trust) for _, trust, _, chain in asked]
    wrong = [
        (name, answer or "accepted")
        for (name, _, right, _), answer in zip(asked, answers_of(program, "clients", tmp_path, questions), strict=True)
        if (not answer) is not right and (program.name, name) not in lenient
    ]
    assert wrong == []
