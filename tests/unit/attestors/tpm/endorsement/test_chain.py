"""Which chains of issuers are accepted, which are not, and what a person is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from attestors.tpm.endorsement import (
    AuthorityMissing,
    AuthorityOutsideValidity,
    AuthorityRefused,
    CertificateUnreadable,
    SearchExhausted,
    SignatureRefused,
)
from signer.authority.der import integer
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    AUTHORITY,
    ENDORSEMENT,
    INTERMEDIATE_NAME,
    ROOT_NAME,
    Attempt,
    authority_draft,
    elliptic_key,
    endorsement,
    intermediate,
    root,
    rsa_key,
)

UTF8_STRING = 0x0C
MAXIMUM_ISSUERS = 8
MAXIMUM_SIGNATURES = 16
MAXIMUM_SENT_CERTIFICATES = 8
MAXIMUM_SENT_BYTES = 32 * 1024


def by_root(**changes: Any) -> Attempt:
    """An endorsement key certificate that the root issued itself."""
    return Attempt(endorsement(signer=elliptic_key("root"), issuer=ROOT_NAME, **changes), intermediates=[])


def ladder(length: int, path_lengths: Sequence[int | None] = ()) -> Attempt:
    """The root, ``length`` intermediates, and the endorsement key; ``path_lengths`` from the root on."""
    limits = [*path_lengths, *[None] * (length + 1)]
    names = [ROOT_NAME, *(write.common_name(f"Step {number}") for number in range(length - 1)), INTERMEDIATE_NAME]
    keys = [elliptic_key("root"), *(elliptic_key(f"step {number}") for number in range(length - 1))]
    keys.append(elliptic_key("intermediate"))
    steps = [
        authority_draft(
            names[number],
            names[number - 1],
            keys[number],
            extensions=(write.authority_constraints(limits[number]), AUTHORITY[1]),
        ).signed(keys[number - 1], write.SHA256_ECDSA)
        for number in range(1, length + 1)
    ]
    top = root(extensions=(write.authority_constraints(limits[0]), AUTHORITY[1]))
    return Attempt(roots=[top], intermediates=steps)


def test_intermediates_may_come_from_the_node_in_any_shape() -> None:
    authority = intermediate()
    others = endorsement(elliptic_key("other"))
    for sent in ([authority], [others + authority], [b"\x00" * 9 + others + b"\xff" * 50 + authority + b"\x00" * 9]):
        assert Attempt(intermediates=[], sent=sent).verify().root == "CN=Test endorsement root"


@pytest.mark.parametrize("behind", [b"\n", b"\r\n", b"\x00\n", b"X", b"\xff\xfe"])
def test_a_node_sends_nothing_but_padding_behind_them(behind: bytes) -> None:
    """Files that an operator keeps may have line ends; no TPM has. What stands behind them is not read."""
    others = endorsement(elliptic_key("other"))
    with pytest.raises(AuthorityMissing, match="certificates cannot be read: certificate 2 "):
        Attempt(intermediates=[], sent=[others + behind + intermediate()]).verify()


@pytest.mark.parametrize("sent", [b"a vendor's own", b"\x30\x03\x02\x01", b"\x30\x00", b"\x10\x01\x00"], ids=bytes.hex)
def test_what_of_them_cannot_be_read_is_none(sent: bytes) -> None:
    """A TPM may keep anything where they stand, nobody can take it away, and the operator may have what is needed."""
    Attempt(sent=[sent]).verify()
    Attempt(intermediates=[], sent=[intermediate() + sent]).verify()
    Attempt(intermediates=[], sent=[sent, intermediate()]).verify()
    Attempt(intermediates=[], sent=[endorsement(not_after=b"not a date") + intermediate()]).verify()
    with pytest.raises(
        AuthorityMissing, match=r"^The TPM's intermediate .* cannot be read: certificate 1 .*\. No endo"
    ):
        Attempt(intermediates=[], sent=[sent]).verify()


def test_the_first_unreadable_certificate_is_reported() -> None:
    """Whatever stands behind it, or in the next places of the TPM."""
    others, none, cut_short = endorsement(elliptic_key("other")), b"\x30\x00", b"\x30\x05"
    for sent in ([others + none, others], [others, others + none, b"", none], [others + none + cut_short]):
        with pytest.raises(AuthorityMissing, match="certificates cannot be read: certificate 2 "):
            Attempt(intermediates=[], sent=sent).verify()


def test_the_root_alone_may_issue() -> None:
    assert by_root().verify().issuer == "CN=Test endorsement root"


def test_a_pinned_intermediate_needs_no_root_and_no_good_signature() -> None:
    draft = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("intermediate"))
    pinned = draft.signed(elliptic_key("root"), write.SHA1_ECDSA)
    assert Attempt(roots=[pinned], intermediates=[]).verify().root == "CN=Test endorsement intermediate"
    with pytest.raises(SignatureRefused, match="SHA-1"):
        Attempt(intermediates=[pinned]).verify()


def test_a_missing_authority_is_named_and_where_to_get_it() -> None:
    hints = (write.authority_key_identifier(b"\xab\xcd"), write.issuer_location("https://ca.example/1.cer"))
    with pytest.raises(AuthorityMissing) as refused:
        Attempt(endorsement(extensions=(*ENDORSEMENT, *hints)), intermediates=[]).verify()
    error = refused.value
    assert (error.issuer, error.key_identifier, error.location) == (
        "CN=Test endorsement intermediate",
        "abcd",
        "https://ca.example/1.cer",
    )
    for part in (error.issuer, error.key_identifier, error.location):
        assert part is not None
        assert part in str(error)


def test_a_missing_authority_without_hints() -> None:
    with pytest.raises(
        AuthorityMissing, match="intermediate: get it from the TPM's manufacturer, and add it"
    ) as refused:
        Attempt(intermediates=[]).verify()
    assert (refused.value.key_identifier, refused.value.location) == (None, None)


def test_the_error_of_the_longest_attempt_is_reported() -> None:
    missing_root = authority_draft(
        INTERMEDIATE_NAME, write.common_name("Unknown root"), elliptic_key("intermediate")
    ).signed(elliptic_key("elsewhere"), write.SHA256_ECDSA)
    impostor = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("impostor"))
    junk = impostor.signed(elliptic_key("root"), write.SHA256_ECDSA)
    expired = intermediate(not_after=datetime(2025, 10, 20, tzinfo=UTC))
    for sent in ([junk, missing_root], [missing_root, junk], [missing_root, expired]):
        with pytest.raises(AuthorityMissing, match="Unknown root"):
            Attempt(intermediates=[], sent=sent).verify()
    for sent in ([junk, expired], [expired, junk], [expired, missing_root]):
        with pytest.raises(AuthorityOutsideValidity):
            Attempt(intermediates=[], sent=sent).verify()


def test_a_root_that_is_not_configured_is_not_trusted_because_it_was_sent() -> None:
    stranger = authority_draft(ROOT_NAME, ROOT_NAME, elliptic_key("stranger"))
    sent = stranger.signed(elliptic_key("stranger"), write.SHA256_ECDSA)
    certificate = endorsement(issuer=ROOT_NAME, signer=elliptic_key("stranger"))
    with pytest.raises(SignatureRefused):
        Attempt(certificate, intermediates=[]).verify()
    with pytest.raises((SignatureRefused, AuthorityMissing)):
        Attempt(certificate, intermediates=[], sent=[sent]).verify()


def test_a_signature_by_another_key_is_refused() -> None:
    words = "^The endorsement key certificate names .*: its signature does not verify with the issuer's key$"
    with pytest.raises(SignatureRefused, match=words):
        Attempt(endorsement(signer=elliptic_key("forger"))).verify()
    draft = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("intermediate"))
    forged = draft.signed(elliptic_key("forger"), write.SHA256_ECDSA)
    with pytest.raises(SignatureRefused, match="certificate of CN=Test endorsement intermediate"):
        Attempt(intermediates=[forged]).verify()


@pytest.mark.parametrize(
    "algorithm", [write.SHA256_ECDSA, write.SHA256_RSA, write.SHA256_PSS], ids=["EC", "RSA", "PSS"]
)
def test_another_authority_of_the_same_name_is_missing_where_key_identifiers_say_so(algorithm: write.Algorithm) -> None:
    """It is the operator's to add; a signature that is nobody's, or proves nothing, is refused all the same."""
    elliptic = algorithm is write.SHA256_ECDSA
    key = elliptic_key("another intermediate") if elliptic else rsa_key()
    known = intermediate(extensions=(*AUTHORITY, write.subject_key_identifier(b"known")))

    def attempt(identifier: bytes, algorithm: write.Algorithm = algorithm) -> Attempt:
        named = (*ENDORSEMENT, write.authority_key_identifier(identifier))
        return Attempt(endorsement(signer=key, algorithm=algorithm, extensions=named), intermediates=[known])

    with pytest.raises(AuthorityMissing, match="key identifier 616e6f74686572"):
        attempt(b"another").verify()
    without = dataclasses.replace(attempt(b"another"), intermediates=[intermediate()])
    for refused in (attempt(b"known"), attempt(b""), without):
        with pytest.raises(SignatureRefused):
            refused.verify()
    weak = write.SHA1_ECDSA if elliptic else write.SHA1_RSA
    with pytest.raises(SignatureRefused, match="SHA-1"):
        attempt(b"another", weak).verify()


def test_another_root_of_the_same_name_is_missing_too() -> None:
    """Such as the next generation's: what is missing is who issued the intermediate, the last of the path."""
    known = root(extensions=(*AUTHORITY, write.subject_key_identifier(b"first")))
    named = (*AUTHORITY, write.authority_key_identifier(b"next"))
    draft = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("intermediate"), extensions=named)
    by_next = draft.signed(elliptic_key("next root"), write.SHA256_ECDSA)
    for mine in ((), (write.authority_key_identifier(b"mine"),)):
        certificate = endorsement(extensions=(*ENDORSEMENT, *mine))
        with pytest.raises(AuthorityMissing) as refused:
            Attempt(certificate, roots=[known], intermediates=[by_next]).verify()
        assert (refused.value.issuer, refused.value.key_identifier) == ("CN=Test endorsement root", b"next".hex())


def test_names_are_compared_through_string_type_case_and_space() -> None:
    same = write.common_name("test  ENDORSEMENT intermediate ", tag=UTF8_STRING)
    Attempt(endorsement(issuer=same)).verify()
    for other in ("Test endorsement intermediate 2", "Test endorsementintermediate"):
        with pytest.raises(AuthorityMissing):
            Attempt(endorsement(issuer=write.common_name(other))).verify()


def test_the_right_key_identifier_is_tried_first_and_a_wrong_one_is_not_held_against_it() -> None:
    def candidate(label: str) -> bytes:
        extensions = (*AUTHORITY, write.subject_key_identifier(label.encode()))
        draft = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key(label), extensions=extensions)
        return draft.signed(elliptic_key("root"), write.SHA256_ECDSA)

    # The last signature that is tried is the root's on the intermediate.
    crowd = [candidate(f"crowd {number}") for number in range(MAXIMUM_SIGNATURES - 1)]
    right = candidate("intermediate")
    named = endorsement(extensions=(*ENDORSEMENT, write.authority_key_identifier(b"intermediate")))
    Attempt(named, intermediates=[*crowd, right]).verify()
    Attempt(intermediates=[*crowd[1:], right]).verify()
    with pytest.raises(SearchExhausted, match="too many of the same name"):
        Attempt(intermediates=[*crowd, right]).verify()
    misnamed = endorsement(extensions=(*ENDORSEMENT, write.authority_key_identifier(b"somebody else")))
    Attempt(misnamed).verify()


@pytest.mark.parametrize(
    ("extensions", "words"),
    [
        ((AUTHORITY[1],), "but is not a certificate authority"),
        ((write.basic_constraints(), AUTHORITY[1]), "but is not a certificate authority"),
        (None, "but is not a certificate authority"),
        ((AUTHORITY[0], write.key_usage(write.DIGITAL_SIGNATURE)), "lacks keyCertSign"),
        ((*AUTHORITY, write.purposes(write.AK_CERTIFICATE)), "is not an authority for endorsement keys"),
        (
            (*AUTHORITY, write.extension("2.5.29.30", b"\x30\x00", write.CRITICAL)),
            "unknown critical extension: 2.5.29.30",
        ),
    ],
    ids=["does not say", "says no", "no extensions", "key usage", "purpose", "critical"],
)
def test_an_issuer_that_may_not_issue_is_refused(extensions: tuple[bytes, ...] | None, words: str) -> None:
    with pytest.raises(AuthorityRefused, match=words):
        Attempt(intermediates=[], sent=[intermediate(extensions=extensions)]).verify()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (write.purposes(write.AK_CERTIFICATE), "is not an authority for endorsement keys"),
        (write.extension("2.5.29.30", b"\x30\x00", write.CRITICAL), "unknown critical extension: 2.5.29.30"),
    ],
    ids=["purpose", "critical"],
)
def test_the_same_holds_for_roots(more: bytes, words: str) -> None:
    with pytest.raises(AuthorityRefused, match=words):
        Attempt(roots=[root(extensions=(*AUTHORITY, more))]).verify()
    with pytest.raises(AuthorityRefused, match="lacks keyCertSign"):
        Attempt(roots=[root(extensions=(AUTHORITY[0], write.key_usage(write.DIGITAL_SIGNATURE)))]).verify()


@pytest.mark.parametrize(
    "extensions",
    [
        (AUTHORITY[0],),
        (*AUTHORITY, write.policies(write.CRITICAL)),
        (*AUTHORITY, write.purposes(write.EK_CERTIFICATE)),
        (*AUTHORITY, write.purposes("2.5.29.37.0")),
        (*AUTHORITY, write.purposes("1.3.6.1.4.1.311.122.2", write.EK_CERTIFICATE, critical=write.CRITICAL)),
    ],
    ids=["no key usage", "critical policies", "purpose", "any purpose", "two purposes"],
)
def test_what_genuine_issuers_do_is_accepted(extensions: tuple[bytes, ...]) -> None:
    Attempt(intermediates=[intermediate(extensions=extensions)]).verify()
    Attempt(roots=[root(extensions=extensions)]).verify()


@pytest.mark.parametrize("version", [1, 2])
def test_a_certificate_before_version_3_issues_as_a_configured_root_only(version: int) -> None:
    """It cannot say whether it is an authority; the operator does."""
    Attempt(roots=[root(version=version, extensions=None)]).verify()
    sent = intermediate(version=version, extensions=None)
    Attempt(roots=[sent], intermediates=[]).verify()
    with pytest.raises(AuthorityRefused, match="but is not a certificate authority"):
        Attempt(intermediates=[], sent=[sent]).verify()


def test_an_endorsement_key_certificate_issues_nothing() -> None:
    """Its subject is empty, so is the issuer's name of what its key may have signed."""
    genuine = endorsement(elliptic_key("genuine chip"))
    forged = endorsement(signer=elliptic_key("genuine chip"), issuer=write.EMPTY_NAME)
    with pytest.raises(AuthorityRefused, match="but is not a certificate authority"):
        Attempt(forged, sent=[genuine]).verify()


def test_path_length() -> None:
    ladder(1, [1]).verify()
    ladder(2, [2, 1]).verify()
    ladder(2, [None, 1, 0]).verify()
    for attempt in (ladder(1, [0]), ladder(2, [1]), ladder(2, [None, 0])):
        with pytest.raises(AuthorityRefused, match="authorities below it, and there are"):
            attempt.verify()


def test_self_issued_authorities_do_not_count_for_the_path_length() -> None:
    renewed = authority_draft(ROOT_NAME, ROOT_NAME, elliptic_key("renewed"))
    between = renewed.signed(elliptic_key("root"), write.SHA256_ECDSA)
    below = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("intermediate"))
    last = below.signed(elliptic_key("renewed"), write.SHA256_ECDSA)
    top = root(extensions=(write.authority_constraints(1), AUTHORITY[1]))
    Attempt(roots=[top], intermediates=[between, last]).verify()


def test_the_longest_chain() -> None:
    ladder(MAXIMUM_ISSUERS - 1).verify()
    with pytest.raises(AuthorityRefused, match=f"more than {MAXIMUM_ISSUERS} issuers"):
        ladder(MAXIMUM_ISSUERS).verify()


def test_a_ring_ends() -> None:
    one, two = write.common_name("One"), write.common_name("Two")
    ring = [
        authority_draft(one, two, elliptic_key("one")).signed(elliptic_key("two"), write.SHA256_ECDSA),
        authority_draft(two, one, elliptic_key("two")).signed(elliptic_key("one"), write.SHA256_ECDSA),
    ]
    with pytest.raises(AuthorityMissing):
        Attempt(endorsement(signer=elliptic_key("one"), issuer=one), intermediates=[], sent=ring).verify()


def test_a_maze_of_equal_names_is_left_early() -> None:
    """Every certificate could have issued every other: without the bound, factorially many paths."""
    name, key = write.common_name("Maze"), elliptic_key("maze")
    maze = b"".join(
        authority_draft(name, name, key, serial=integer(number)).signed(key, write.SHA256_ECDSA)
        for number in range(MAXIMUM_SENT_CERTIFICATES)
    )
    with pytest.raises(SearchExhausted, match=f"{MAXIMUM_SIGNATURES} signatures"):
        Attempt(endorsement(signer=key, issuer=name), sent=[maze]).verify()


def test_what_a_tpm_sends_and_the_operator_has_too_is_tried_once() -> None:
    """Where the root is missing or has run out, the search would end at its bound: a denial, and of another fault."""
    chain = ladder(5)
    both = dataclasses.replace(chain, sent=[b"".join(reversed(chain.intermediates)), chain.intermediates[0]])
    both.verify()
    stranger = authority_draft(write.common_name("Another root"), ROOT_NAME, elliptic_key("another root"))
    with pytest.raises(AuthorityMissing, match="by the name CN=Test endorsement root"):
        dataclasses.replace(both, roots=[stranger.signed(elliptic_key("root"), write.SHA256_ECDSA)]).verify()
    with pytest.raises(AuthorityOutsideValidity, match="root expired"):
        dataclasses.replace(both, roots=[root(not_after=datetime(2025, 10, 20, tzinfo=UTC))]).verify()


def test_expired_authorities() -> None:
    start, end = datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 10, 20, tzinfo=UTC)
    second = timedelta(seconds=1)
    old_intermediate = intermediate(not_before=start, not_after=end)
    old_root = root(not_before=start, not_after=end)
    for attempt in (Attempt(intermediates=[], sent=[old_intermediate]), Attempt(roots=[old_root])):
        for moment in (start, end):
            dataclasses.replace(attempt, at=moment).verify()
        with pytest.raises(AuthorityOutsideValidity, match="expired on 2025-10-20"):
            dataclasses.replace(attempt, at=end + second).verify()
        dataclasses.replace(attempt, at=end + second, accept_expired=True).verify()
        for accept_expired in (False, True):
            with pytest.raises(AuthorityOutsideValidity, match="not valid before 2025-01-01"):
                dataclasses.replace(attempt, at=start - second, accept_expired=accept_expired).verify()


def test_a_renewed_authority_of_the_same_name_is_found_behind_an_expired_one() -> None:
    expired = intermediate(not_after=datetime(2025, 10, 20, tzinfo=UTC))
    Attempt(intermediates=[expired], sent=[intermediate()]).verify()


def test_a_roots_own_signature_is_not_looked_at() -> None:
    draft = authority_draft(ROOT_NAME, ROOT_NAME, elliptic_key("root"))
    Attempt(roots=[draft.signed(elliptic_key("root"), write.SHA1_ECDSA)]).verify()
    Attempt(roots=[draft.signed(elliptic_key("somebody"), write.SHA256_ECDSA)]).verify()


def test_sent_certificates_are_bounded() -> None:
    authority = intermediate()
    full = authority * MAXIMUM_SENT_CERTIFICATES
    Attempt(intermediates=[], sent=[full]).verify()
    Attempt(intermediates=[], sent=[authority, b"\x00" * (MAXIMUM_SENT_BYTES - len(authority))]).verify()
    one = endorsement(elliptic_key("other"))
    others = one * MAXIMUM_SENT_CERTIFICATES
    for sent in ([one] * (MAXIMUM_SENT_CERTIFICATES - 1) + [authority], [others[len(one) :] + authority]):
        Attempt(intermediates=[], sent=sent).verify()
    for sent in ([others + authority], [others, authority]):
        with pytest.raises(AuthorityMissing, match="more than"):
            Attempt(intermediates=[], sent=sent).verify()
    with pytest.raises(CertificateUnreadable, match=f"larger than {MAXIMUM_SENT_BYTES} bytes"):
        Attempt(intermediates=[], sent=[authority, b"\x00" * (MAXIMUM_SENT_BYTES - len(authority) + 1)]).verify()
