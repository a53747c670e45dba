"""Reading the operator's authorities."""

from __future__ import annotations

import hashlib

import pytest

from attestors.tpm.endorsement import AuthoritiesUnreadable, authorities, load_endorsement_authorities
from attestors.wire import pem
from tests.unit.attestors.tpm.endorsement.support import Attempt, endorsement, intermediate, root

ROOT, INTERMEDIATE = root(), intermediate()


def as_pem(certificate: bytes, label: str = "CERTIFICATE") -> bytes:
    return pem.encode(pem.Block(label, certificate))


@pytest.mark.parametrize(
    "intermediates",
    [
        [as_pem(INTERMEDIATE)],
        [as_pem(ROOT) + b"\nCN=Test endorsement intermediate\n======\n" + as_pem(INTERMEDIATE)],
        [as_pem(INTERMEDIATE).replace(b"\n", b"\r\n")],
        [INTERMEDIATE],
        [ROOT + INTERMEDIATE],
        [INTERMEDIATE + b"\n"],
        [ROOT + b"\r\n" + INTERMEDIATE + b"\r\n"],
        [b"", as_pem(INTERMEDIATE), as_pem(INTERMEDIATE)],
    ],
    ids=[
        "PEM",
        "several with text between",
        "other line ends",
        "DER",
        "several in DER",
        "DER with a line end",
        "several in DER with line ends",
        "twice",
    ],
)
def test_files_of_any_kind(intermediates: list[bytes]) -> None:
    Attempt(roots=[as_pem(ROOT)], intermediates=intermediates).verify()


def test_the_same_certificate_twice_is_tried_once() -> None:
    once = load_endorsement_authorities(roots=[ROOT])
    assert load_endorsement_authorities(roots=[ROOT, as_pem(ROOT)]) == once
    assert [len(group) for group in once.roots.values()] == [1]


@pytest.mark.parametrize(
    ("roots", "intermediates", "words"),
    [
        ([], [], "No endorsement root authority is configured"),
        ([b""], [as_pem(ROOT)], "No endorsement root authority is configured"),
        ([ROOT, endorsement()], [], r"Endorsement roots, file 2: \(empty name\) is not a certificate authority"),
        ([root(extensions=())], [], "file 1: CN=Test endorsement root is not a certificate authority"),
        (
            [ROOT],
            [intermediate(version=1, extensions=None)],
            "Endorsement intermediates, file 1: CN=.* is not a certif",
        ),
        ([ROOT], [endorsement()], "Endorsement intermediates, file 1: .* is not a certificate authority"),
        ([as_pem(ROOT) + as_pem(endorsement())], [], "Endorsement roots, file 1, PEM block 2: .* is not a certificate"),
        ([as_pem(ROOT) + as_pem(b"garbage")], [], "Endorsement roots, file 1, PEM block 2: certificate 1 "),
        ([ROOT, b"garbage"], [], "Endorsement roots, file 2: certificate 1 "),
        ([ROOT], [INTERMEDIATE + b"garbage"], "Endorsement intermediates, file 1: certificate 2 "),
        ([as_pem(b"garbage")], [], "file 1: certificate 1 "),
        ([as_pem(ROOT)[:-30]], [], "not a certificate or has no end"),
        ([as_pem(ROOT) + as_pem(b"key", "PRIVATE KEY")], [], "not a certificate or has no end"),
        ([as_pem(ROOT).replace(b"\nM", b"\n!")], [], "not base64"),
        ([as_pem(ROOT).replace(b"-----\n", b"-----\n!!!!", 1)], [], "not base64"),
    ],
)
def test_what_cannot_be_used_is_named(roots: list[bytes], intermediates: list[bytes], words: str) -> None:
    with pytest.raises(AuthoritiesUnreadable, match=words):
        load_endorsement_authorities(roots=roots, intermediates=intermediates)


def test_files_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "_MAXIMUM_AUTHORITIES", 3)
    monkeypatch.setattr(authorities, "_MAXIMUM_BYTES", len(as_pem(ROOT)) * 6)
    load_endorsement_authorities(roots=[ROOT * 3], intermediates=[as_pem(INTERMEDIATE)] * 3)
    for roots in ([ROOT * 4], [as_pem(ROOT) * 4], [ROOT] * 4):
        with pytest.raises(AuthoritiesUnreadable, match="more than 3"):
            load_endorsement_authorities(roots=roots)
    with pytest.raises(AuthoritiesUnreadable, match="larger than"):
        load_endorsement_authorities(roots=[ROOT], intermediates=[as_pem(ROOT) * 6])


def test_expired_authorities_do_not_count_unless_the_operator_says_so() -> None:
    assert load_endorsement_authorities(roots=[ROOT]).accept_expired is False


def test_a_version_1_root() -> None:
    Attempt(roots=[root(version=1, extensions=None)]).verify()


def test_an_authority_with_an_odd_key_is_refused_when_it_is_configured() -> None:
    odd = root(key_information=b"\x30\x00")
    with pytest.raises(AuthoritiesUnreadable, match="malformed public key"):
        load_endorsement_authorities(roots=[odd])


def test_all_manufacturers_authorities_have_room_and_no_more() -> None:
    """The bounds themselves: 16 MiB, and 4,096 certificates of a kind."""
    room = 16 * 1024 * 1024 - len(ROOT)
    load_endorsement_authorities(roots=[ROOT], intermediates=[b"\x00" * room])
    with pytest.raises(AuthoritiesUnreadable, match="larger than 16777216 bytes"):
        load_endorsement_authorities(roots=[ROOT], intermediates=[b"\x00" * (room + 1)])
    assert authorities._MAXIMUM_AUTHORITIES == 4096


def test_they_are_not_shown() -> None:
    loaded = Attempt().authorities()
    assert repr(loaded) == f"EndorsementAuthorities(accept_expired=False, digest={loaded.digest!r})"


class TestDigest:
    """By which an audit log says that the same authorities counted."""

    def test_is_of_the_certificates_and_of_whether_they_may_have_expired(self) -> None:
        """As logs have it for ever."""
        one, other = (hashlib.sha256(certificate).hexdigest() for certificate in (ROOT, INTERMEDIATE))
        for accept_expired, first in ((False, ""), (True, "accept expired")):
            loaded = load_endorsement_authorities(
                roots=[ROOT, INTERMEDIATE], intermediates=[INTERMEDIATE], accept_expired=accept_expired
            )
            written = first + "".join(sorted((one, other))) + "\n" + other + "\n"
            assert loaded.digest == "sha256:" + hashlib.sha256(written.encode()).hexdigest()

    def test_is_the_same_in_whichever_files_and_order(self) -> None:
        once = load_endorsement_authorities(roots=[ROOT, INTERMEDIATE])
        assert load_endorsement_authorities(roots=[as_pem(INTERMEDIATE) * 2, ROOT]).digest == once.digest
