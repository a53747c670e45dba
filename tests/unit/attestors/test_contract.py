from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from attestors.contract import (
    AssertedIdentity,
    AttestorDescription,
    AttestorSettings,
    ChallengeIssued,
    Denied,
    Freshness,
    InvalidOutcome,
    NotProvableYet,
    Security,
    VerifiedIdentity,
)
from tests.unit.attestors.support import PROVIDER_ID, binding_for

BAD_IDENTITIES = ["", "x" * 1025]
BAD_REASONS = [
    "",
    "lowerCase",
    "With Space",
    "With-Dash",
    "With\nNewline",
    "Trailing\n",
    "1Digit",
    "\u00c4rger",
    "A" * 65,
]
BAD_MESSAGES = ["", "x" * 513, "two\nlines", "bell\a", "zero\0", "\u202eright to left", "\ud800"]


def description(
    security: Security = Security.SECURE,
    *,
    provider: str = "",
    freshness: Freshness | None = None,
    evidence_versions: tuple[str, ...] = ("v1",),
) -> AttestorDescription:
    insecure = security is Security.INSECURE
    return AttestorDescription(
        provider or ("insecure" if insecure else "example"),
        security,
        evidence_versions,
        freshness or (Freshness.NONE if insecure else Freshness.TIMESTAMP),
    )


class TestAttestorDescription:
    @pytest.mark.parametrize("freshness", [Freshness.CHALLENGE, Freshness.TIMESTAMP])
    def test_a_secure_one_renews_and_serves(self, freshness: Freshness) -> None:
        described = description(freshness=freshness)
        assert described.renews
        assert described.serves

    def test_the_insecure_one_does_neither(self) -> None:
        described = description(Security.INSECURE)
        assert not described.renews
        assert not described.serves

    @pytest.mark.parametrize(("security", "provider"), [(Security.INSECURE, "lenient"), (Security.SECURE, "insecure")])
    def test_only_the_attestor_of_that_name_is_insecure(self, security: Security, provider: str) -> None:
        with pytest.raises(InvalidOutcome, match=f"{provider} declares itself {security.value}"):
            description(security, provider=provider)

    def test_a_secure_one_without_freshness_cannot_exist(self) -> None:
        with pytest.raises(InvalidOutcome, match="by a challenge or by a timestamp"):
            description(freshness=Freshness.NONE)

    @pytest.mark.parametrize("freshness", [Freshness.CHALLENGE, Freshness.TIMESTAMP])
    def test_the_insecure_one_verifies_no_freshness(self, freshness: Freshness) -> None:
        with pytest.raises(InvalidOutcome, match=r"its freshness is Freshness\.NONE"):
            description(Security.INSECURE, freshness=freshness)

    @pytest.mark.parametrize("freshness", ["timestamp", True, 1])
    def test_freshness_is_no_text(self, freshness: object) -> None:
        """The text "none" would compare unequal to Freshness.NONE."""
        with pytest.raises(InvalidOutcome, match=r"Freshness\.CHALLENGE, TIMESTAMP or NONE"):
            description(freshness=freshness)  # type: ignore[arg-type]

    def test_one_that_reads_nothing_cannot_exist(self) -> None:
        with pytest.raises(InvalidOutcome, match="at least one evidence version"):
            description(evidence_versions=())

    @pytest.mark.parametrize("security", ["insecure", "Insecure", True, None])
    def test_security_is_no_text(self, security: object) -> None:
        """It would not be compared as what it says, and nobody would ask for the opt-ins of an insecure one."""
        with pytest.raises(InvalidOutcome, match=r"Security\.INSECURE"):
            description(security)  # type: ignore[arg-type]

    @pytest.mark.parametrize("version", ["1", "1.0", "V1", "v0", "v1.1", ""])
    def test_a_version_is_a_letter_and_a_number(self, version: str) -> None:
        """No evidence would ever be of it, and every request be denied for good."""
        with pytest.raises(InvalidOutcome, match='an evidence version is "v" and a number'):
            description(evidence_versions=("v1", version))

    @pytest.mark.parametrize("versions", ["v1", ["v1"], (1,)])
    def test_versions_are_a_tuple_of_texts(self, versions: object) -> None:
        with pytest.raises(InvalidOutcome, match="evidence_versions is a tuple of str"):
            description(evidence_versions=versions)  # type: ignore[arg-type]


class TestVerifiedIdentity:
    def test_carries_the_proof_and_says_nothing_of_names(self) -> None:
        expected = binding_for()
        identity = VerifiedIdentity(PROVIDER_ID, "id", expected.prove(expected.value))
        assert identity.binding.value == expected.value
        assert (identity.node_names, identity.dns_names, identity.ip_addresses) == ((), (), ())

    def test_cannot_be_made_without_a_proof(self) -> None:
        with pytest.raises(TypeError, match="binding"):
            VerifiedIdentity(PROVIDER_ID, "id")  # type: ignore[call-arg]

    @pytest.mark.parametrize(
        "binding", [binding_for(), binding_for().value, None, True], ids=["expected", "its value", "None", "True"]
    )
    def test_what_was_not_compared_is_no_proof(self, binding: object) -> None:
        """Most of all the request's own binding, which an attestor has in its hand and which holds the right value."""
        with pytest.raises(InvalidOutcome, match="ProvenBinding"):
            VerifiedIdentity(PROVIDER_ID, "id", binding)  # type: ignore[arg-type]

    @pytest.mark.parametrize("identity", BAD_IDENTITIES)
    def test_refuses_an_identity(self, identity: str) -> None:
        expected = binding_for()
        with pytest.raises(InvalidOutcome, match="1 to 1024"):
            VerifiedIdentity(PROVIDER_ID, identity, expected.prove(expected.value))

    @pytest.mark.parametrize("hardware", [None, b"chip", "x" * 1025], ids=["none", "bytes", "long"])
    def test_hardware_has_a_name_that_can_be_reserved(self, hardware: Any) -> None:
        expected = binding_for()
        for name in ("hardware", "hardware_identity"):
            with pytest.raises(InvalidOutcome, match="hardware"):
                VerifiedIdentity(PROVIDER_ID, "id", expected.prove(expected.value), **{name: hardware})

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("provider_id", b"test:///0"),
            ("provider_id", "test:///\udc80"),
            ("identity", b"digest"),
            ("identity", "\udc80"),
            ("node_names", "worker-1"),
            ("node_names", ["worker-1"]),
            ("node_names", (b"worker-1",)),
            ("node_names", ("\udc80",)),
            ("dns_names", "worker-1"),
            ("dns_names", (None,)),
            ("ip_addresses", ("10.0.0.1",)),
            ("ip_addresses", IPv4Address("10.0.0.1")),
        ],
    )
    def test_a_field_of_another_kind_is_the_attestors_defect(self, field: str, value: object) -> None:
        """It would be reserved, or compared, as something else than it says: for good, and at the node's cost."""
        expected = binding_for()
        whole = VerifiedIdentity(
            PROVIDER_ID,
            "id",
            expected.prove(expected.value),
            ("worker-1",),
            ("worker-1.example",),
            (IPv4Address("10.0.0.1"), IPv6Address("2001:db8::1")),
        )
        with pytest.raises(InvalidOutcome, match=f"^{field} is "):
            replace(whole, **{field: value})  # type: ignore[arg-type]


class TestAssertedIdentity:
    def test_the_longest_identity(self) -> None:
        assert AssertedIdentity(PROVIDER_ID, "x" * 1024).identity == "x" * 1024

    @pytest.mark.parametrize("identity", BAD_IDENTITIES)
    def test_refuses_an_identity(self, identity: str) -> None:
        with pytest.raises(InvalidOutcome, match="1 to 1024"):
            AssertedIdentity(PROVIDER_ID, identity)

    @pytest.mark.parametrize(("provider_id", "identity"), [(b"test:///0", "id"), (PROVIDER_ID, b"id")])
    def test_bytes_are_no_text(self, provider_id: object, identity: object) -> None:
        with pytest.raises(InvalidOutcome, match="is a str, not bytes"):
            AssertedIdentity(provider_id, identity)  # type: ignore[arg-type]

    def test_is_no_verified_identity(self) -> None:
        assert not issubclass(AssertedIdentity, VerifiedIdentity)
        assert not issubclass(VerifiedIdentity, AssertedIdentity)


class TestDenied:
    @pytest.mark.parametrize("reason", ["A", "EvidenceExpired", "TPM2Quote", "A" * 64])
    def test_accepts_a_reason(self, reason: str) -> None:
        assert Denied(reason, "x" * 512).reason == reason

    @pytest.mark.parametrize("reason", BAD_REASONS)
    def test_refuses_a_reason(self, reason: str) -> None:
        with pytest.raises(InvalidOutcome, match="CamelCase"):
            Denied(reason, "message")

    @pytest.mark.parametrize("message", BAD_MESSAGES)
    def test_refuses_a_message(self, message: str) -> None:
        with pytest.raises(InvalidOutcome, match="printable"):
            Denied("Reason", message)


class TestNotProvableYet:
    def test_is_asked_again_after_ten_seconds(self) -> None:
        assert NotProvableYet("Unreachable", "EC2 does not answer").retry_after == timedelta(seconds=10)

    @pytest.mark.parametrize("retry_after", [timedelta(seconds=1), timedelta(minutes=10)])
    def test_accepts_the_bounds(self, retry_after: timedelta) -> None:
        assert NotProvableYet("Unreachable", "later", retry_after).retry_after == retry_after

    @pytest.mark.parametrize(
        "retry_after",
        [timedelta(0), timedelta(seconds=-1), timedelta(milliseconds=999), timedelta(minutes=10, microseconds=1)],
    )
    def test_refuses_to_spin_or_to_sleep(self, retry_after: timedelta) -> None:
        with pytest.raises(InvalidOutcome, match="retry_after"):
            NotProvableYet("Unreachable", "later", retry_after)

    @pytest.mark.parametrize("reason", BAD_REASONS)
    def test_refuses_a_reason(self, reason: str) -> None:
        with pytest.raises(InvalidOutcome, match="CamelCase"):
            NotProvableYet(reason, "message")

    @pytest.mark.parametrize("message", BAD_MESSAGES)
    def test_refuses_a_message(self, message: str) -> None:
        with pytest.raises(InvalidOutcome, match="printable"):
            NotProvableYet("Reason", message)


class TestChallengeIssued:
    @pytest.mark.parametrize("length", [1, 16 * 1024])
    def test_accepts_the_bounds(self, length: int) -> None:
        assert len(ChallengeIssued("c" * length).challenge) == length

    @pytest.mark.parametrize("length", [0, 16 * 1024 + 1])
    def test_refuses_what_no_annotation_holds(self, length: int) -> None:
        with pytest.raises(InvalidOutcome, match="16384"):
            ChallengeIssued("c" * length)

    @pytest.mark.parametrize("challenge", [b"challenge", ["challenge"], "\ud800"])
    def test_is_text(self, challenge: Any) -> None:
        """Of bytes the node would read something else than it was challenged with, in a request that is denied."""
        with pytest.raises(InvalidOutcome, match="challenge is"):
            ChallengeIssued(challenge)


def test_outcomes_cannot_be_changed() -> None:
    outcome = Denied("Reason", "message")
    with pytest.raises(AttributeError):
        outcome.reason = "Other"  # type: ignore[misc]


def test_operator_settings_are_not_shown() -> None:
    """They may hold secrets."""
    assert "hunter2" not in repr(AttestorSettings(operator={"password": "hunter2"}))
