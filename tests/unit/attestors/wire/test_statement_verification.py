"""Each rule of the verifier, with an attack that it stops."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestors.wire.statement import (
    AcceptedTrust,
    ClusterIdentity,
    ClusterTrust,
    ControllerPublicKeys,
    NotPinned,
    PinnedController,
    SignedStatement,
    StatementReason,
    StatementRefused,
    accept_controller_keys,
    accept_trust,
    authorities_in,
)
from attestors.wire.statement.verification import bundle_text
from signer.authority import CertificateAuthority
from signer.authority.statement_signing import StatementKeys
from signer.testing.certificates import EncryptionAlgorithm
from tests.support.statements import IDENTITY, NOW, ROTATION, authority, bundle_of, controller, signed, trust_of

OLD, NEW, THIEF = authority("old"), authority("new"), authority("thief")
PIN = PinnedController(IDENTITY, controller().public, 1)
BOTH = trust_of(NEW, OLD)
NO_CONTROLLER = StatementKeys(())
ELSEWHERE = ClusterIdentity(IDENTITY.namespace, "other", IDENTITY.uid)
MOVED = ClusterIdentity(IDENTITY.namespace, IDENTITY.name, "a-new-uid")


def accepted(
    statement: SignedStatement,
    *,
    trusts: tuple[CertificateAuthority, ...] = (OLD,),
    pin: PinnedController | NotPinned = PIN,
    last: int = 0,
    now: int = NOW,
) -> AcceptedTrust:
    known = authorities_in([one.certificate.der for one in trusts])
    return accept_trust(statement, trusted=known, pin=pin, last_sequence=last, now=now)


def reason(statement: SignedStatement, **known: Any) -> StatementReason:
    with pytest.raises(StatementRefused) as refused:
        accepted(statement, **known)
    assert str(refused.value).startswith(refused.value.reason)
    return refused.value.reason


def test_old_and_new_ca_and_the_controller_appoint_the_new_ca() -> None:
    found = accepted(signed(BOTH, OLD, NEW, sequence=7), last=6)
    assert (found.cluster, found.sequence, found.trust) == (IDENTITY, 7, BOTH)
    assert bundle_text(found) == BOTH.bundle


@pytest.mark.parametrize("algorithm", EncryptionAlgorithm)
def test_every_kind_of_ca_signs(algorithm: EncryptionAlgorithm) -> None:
    new = authority("new " + algorithm, algorithm)
    assert accepted(signed(trust_of(new, OLD), OLD, new)).sequence == 1
    assert accepted(signed(trust_of(OLD, new), new, OLD), trusts=(new,)).sequence == 1


def test_the_old_ca_is_dropped_by_the_word_of_the_new_one() -> None:
    assert accepted(signed(trust_of(NEW), NEW), trusts=(NEW, OLD)).trust.bundle == bundle_of(NEW)


def test_a_thief_with_the_old_ca_but_without_the_controller_key_appoints_nobody() -> None:
    statement = signed(trust_of(THIEF), OLD, THIEF, keys=NO_CONTROLLER)
    assert reason(statement) is StatementReason.NOT_SIGNED_BY_CONTROLLER
    assert accepted(statement, pin=NotPinned()).sequence == 1, "only the pin stops it"


def test_another_controllers_signature_is_none() -> None:
    statement = signed(trust_of(THIEF), OLD, THIEF, keys=controller("x"))
    assert reason(statement) is StatementReason.NOT_SIGNED_BY_CONTROLLER


def test_a_controller_without_a_trusted_ca_appoints_nobody() -> None:
    assert reason(signed(trust_of(NEW), NEW)) is StatementReason.NOT_SIGNED_BY_TRUSTED_CA


def test_the_new_ca_must_have_signed() -> None:
    assert reason(signed(BOTH, OLD)) is StatementReason.NOT_SIGNED_BY_NEW_CA


def test_a_ca_that_is_trusted_but_expired_appoints_nobody() -> None:
    expired = authority("expired", start=NOW - 10 * 86400, days=5)
    statement = signed(BOTH, expired, NEW)
    assert reason(statement, trusts=(expired,)) is StatementReason.NOT_SIGNED_BY_TRUSTED_CA


@pytest.mark.parametrize("last", [7, 8, 2**50])
def test_a_replayed_statement_is_refused(last: int) -> None:
    assert reason(signed(BOTH, OLD, NEW, sequence=7), last=last) is StatementReason.REPLAYED


@pytest.mark.parametrize("cluster", [ELSEWHERE, MOVED])
def test_a_statement_about_another_cluster_is_refused(cluster: ClusterIdentity) -> None:
    assert reason(signed(BOTH, OLD, NEW, cluster=cluster)) is StatementReason.WRONG_CLUSTER


def test_a_statement_lives_from_its_beginning_to_its_end() -> None:
    statement = signed(BOTH, OLD, NEW, not_before=NOW, not_after=NOW + 100)
    assert accepted(statement, now=NOW - 300).sequence == 1
    assert reason(statement, now=NOW - 301) is StatementReason.NOT_YET_VALID
    assert accepted(statement, now=NOW + 99).sequence == 1
    assert reason(statement, now=NOW + 100) is StatementReason.EXPIRED


def test_a_swapped_bundle_breaks_the_signatures() -> None:
    good = signed(BOTH, OLD, NEW)
    swapped = SignedStatement(replace(good.statement, payload=trust_of(THIEF, OLD)), good.signatures)
    assert reason(swapped) is StatementReason.BAD_SIGNATURE


@pytest.mark.parametrize("field", ["sequence", "not_before", "not_after"])
def test_every_field_is_signed(field: str) -> None:
    good = signed(BOTH, OLD, NEW)
    other = replace(good.statement, **{field: getattr(good.statement, field) + 1})
    assert reason(SignedStatement(other, good.signatures)) is StatementReason.BAD_SIGNATURE


def test_a_signature_under_another_keys_name_is_refused() -> None:
    good = signed(BOTH, OLD, NEW)
    names = [one.key for one in good.signatures]
    moved = tuple(replace(one, key=key) for one, key in zip(good.signatures, names[1:] + names[:1], strict=True))
    forged = SignedStatement(good.statement, tuple(sorted(moved, key=lambda one: one.key.text)))
    assert reason(forged) is StatementReason.BAD_SIGNATURE


def test_signatures_of_unknown_keys_do_not_count() -> None:
    assert accepted(signed(BOTH, OLD, NEW, THIEF)).sequence == 1


def test_a_certificate_that_is_no_ca_is_no_bundle() -> None:
    leaf = _certificate(ec.generate_private_key(ec.SECP256R1()), ca=False, signs=True)
    with pytest.raises(StatementRefused, match="CA:TRUE") as refused:
        accepted(signed(ClusterTrust(ROTATION, leaf + bundle_of(OLD)), OLD))
    assert refused.value.reason is StatementReason.BAD_BUNDLE


@pytest.mark.parametrize(
    "bundle",
    [
        bundle_of(OLD, OLD),
        bundle_of(OLD)[:-40],
        "text\n" + bundle_of(OLD),
        bundle_of(OLD).replace("CERTIFICATE", "PUBLIC KEY"),
        "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n",
        bundle_of(*(authority(f"ca {number}") for number in range(9))),
    ],
)
def test_a_bundle_is_strict_pem_of_different_cas(bundle: str) -> None:
    assert reason(signed(ClusterTrust(ROTATION, bundle), OLD)) is StatementReason.BAD_BUNDLE


@pytest.mark.parametrize("start", [NOW - 10 * 86400, NOW + 2 * 86400])
def test_a_ca_outside_its_validity_is_no_bundle(start: int) -> None:
    outside = authority("outside", start=start, days=5)
    assert reason(signed(trust_of(outside, OLD), OLD, outside)) is StatementReason.BAD_BUNDLE


@pytest.mark.parametrize(
    ("key", "usage", "message"),
    [
        (lambda: rsa.generate_private_key(65537, 1024), True, "unsupported key"),  # noqa: S505
        (lambda: rsa.generate_private_key(65537, 4352), True, "unsupported key"),
        (lambda: ec.generate_private_key(ec.SECP256K1()), True, "unsupported key"),
        (lambda: ec.generate_private_key(ec.SECP256R1()), False, "may not sign certificates"),
    ],
    ids=["weak", "slow", "curve", "usage"],
)
def test_a_ca_with_another_key_or_use_is_no_bundle(key: Any, usage: bool, message: str) -> None:
    bundle = _certificate(key(), ca=True, signs=usage) + bundle_of(OLD)
    with pytest.raises(StatementRefused, match=message) as refused:
        accepted(signed(ClusterTrust(ROTATION, bundle), OLD))
    assert refused.value.reason is StatementReason.BAD_BUNDLE


def test_controller_keys_are_no_trust() -> None:
    assert reason(signed(controller().public, OLD)) is StatementReason.WRONG_KIND


# The pin.


def pinned(
    statement: SignedStatement,
    pin: PinnedController | NotPinned = PIN,
    trusts: tuple[CertificateAuthority, ...] = (OLD,),
) -> PinnedController:
    known = authorities_in([one.certificate.der for one in trusts])
    return accept_controller_keys(statement, trusted=known, pin=pin, now=NOW)


def pin_reason(statement: SignedStatement, **known: Any) -> StatementReason:
    with pytest.raises(StatementRefused) as refused:
        pinned(statement, **known)
    return refused.value.reason


def test_a_node_without_a_pin_takes_the_keys_that_its_ca_signs() -> None:
    assert pinned(signed(controller().public, OLD, sequence=3), NotPinned()) == replace(PIN, sequence=3)


def test_keys_that_the_ca_has_not_signed_are_refused() -> None:
    planted = signed(controller("x").public, THIEF, keys=controller("x"))
    assert pin_reason(planted, pin=NotPinned()) is StatementReason.NOT_SIGNED_BY_TRUSTED_CA


def test_each_listed_key_must_have_signed() -> None:
    foreign = ControllerPublicKeys((*controller("x").public.keys, *controller().public.keys))
    assert pin_reason(signed(foreign, OLD, sequence=2)) is StatementReason.NOT_SIGNED_BY_NEW_CONTROLLER_KEY


def test_the_same_keys_change_nothing() -> None:
    assert pinned(signed(PIN.keys, OLD, sequence=9)) is PIN
    assert pinned(signed(PIN.keys, OLD, sequence=1)) is PIN


def test_the_pinned_key_hands_over_to_the_next() -> None:
    both = controller("d", "c")
    rotated = pinned(signed(both.public, OLD, keys=both, sequence=2))
    assert rotated.keys == both.public
    alone = controller("d")
    assert pinned(signed(alone.public, OLD, keys=alone, sequence=3), pin=rotated).keys == alone.public


def test_a_thief_with_the_ca_replaces_no_pin() -> None:
    planted = signed(controller("x").public, OLD, keys=controller("x"), sequence=2)
    assert pin_reason(planted) is StatementReason.NOT_SIGNED_BY_CONTROLLER


def test_former_keys_do_not_come_back() -> None:
    both = controller("d", "c")
    now = PinnedController(IDENTITY, controller("d").public, 3)
    assert pin_reason(signed(both.public, OLD, keys=both, sequence=3), pin=now) is StatementReason.REPLAYED


def test_the_cluster_keeps_its_name_and_may_get_another_uid() -> None:
    assert pinned(signed(PIN.keys, OLD, sequence=2, cluster=MOVED)) == PinnedController(MOVED, PIN.keys, 2)
    assert pin_reason(signed(PIN.keys, OLD, sequence=2, cluster=ELSEWHERE)) is StatementReason.WRONG_CLUSTER


def test_keys_expire_too() -> None:
    late = signed(controller().public, OLD, not_before=NOW - 100, not_after=NOW)
    assert pin_reason(late, pin=NotPinned()) is StatementReason.EXPIRED


def test_trust_is_no_controller_key() -> None:
    assert pin_reason(signed(BOTH, OLD, NEW)) is StatementReason.WRONG_KIND


def _certificate(key: Any, *, ca: bool, signs: bool) -> str:
    """A self-signed certificate, valid now."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:node-1")])
    begin = datetime.fromtimestamp(NOW, UTC) - timedelta(hours=1)
    rest = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=signs, **rest), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode("ascii")
