"""What may be issued: the profiles, one by one, on requests and on finished certificates."""

from __future__ import annotations

import ast
import ipaddress
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.wire.names import Purpose
from signer.authority import (
    CANARY,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    CertificateProfile,
    CertificateUsage,
    IssuanceRefused,
    IssuanceRefusedReason,
    IssuanceRequest,
    issue,
    profiles,
)
from signer.authority.profiles import BACKDATE, MAXIMUM_KUBELET_DURATION, MINIMUM_DURATION, CertificateContents
from signer.model.policy import MAXIMUM_CERTIFICATE_DURATION
from tests.unit.signer.authority.support import (
    CLIENT,
    NOW,
    SERVING,
    authority,
    capi_secret,
    ec_key,
    openssl,
    openssl_verify,
    request,
)

Reason = IssuanceRefusedReason
SIGNER: Final = Path(profiles.__file__).parents[1]
PROFILES: Final = (KUBELET_CLIENT, KUBELET_SERVING, CANARY)
CONTENTS: Final = {
    KUBELET_CLIENT.name: CertificateContents(
        organization="system:nodes",
        common_name="system:node:worker-1",
        usages=CLIENT,
        dns_names=(),
        ip_addresses=(),
        not_before=NOW - BACKDATE,
        not_after=NOW + timedelta(days=7),
    ),
    KUBELET_SERVING.name: CertificateContents(
        organization="system:nodes",
        common_name="system:node:worker-1",
        usages=SERVING,
        dns_names=("worker-1",),
        ip_addresses=(ipaddress.ip_address("10.1.2.3"),),
        not_before=NOW - BACKDATE,
        not_after=NOW + timedelta(days=7),
    ),
    CANARY.name: CertificateContents(
        organization="",
        common_name="node-attestation:ca-canary:one",
        usages=CLIENT,
        dns_names=(),
        ip_addresses=(),
        not_before=NOW - BACKDATE,
        not_after=NOW + MINIMUM_DURATION,
    ),
}


def canary(**changes: Any) -> IssuanceRequest:
    return request(
        **{
            "profile": CANARY,
            "organization": "",
            "subject_common_name": "node-attestation:ca-canary:one",
            "not_after": NOW + timedelta(minutes=10),
            **changes,
        }
    )


def refused_reason(profile: CertificateProfile, contents: CertificateContents) -> IssuanceRefusedReason:
    with pytest.raises(IssuanceRefused) as caught:
        profile.require(contents)
    return caught.value.reason


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("other", PROFILES, ids=lambda profile: profile.name)
def test_each_profile_allows_its_own_contents_alone(profile: CertificateProfile, other: CertificateProfile) -> None:
    if profile is other:
        profile.require(CONTENTS[other.name])
    else:
        with pytest.raises(IssuanceRefused):
            profile.require(CONTENTS[other.name])


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
class TestEveryProfile:
    def refused(self, profile: CertificateProfile, **changes: Any) -> IssuanceRefusedReason:
        return refused_reason(profile, replace(CONTENTS[profile.name], **changes))

    @pytest.mark.parametrize("organization", ["system:masters", "system:node", "system:nodes2", " "])
    def test_another_organization(self, profile: CertificateProfile, organization: str) -> None:
        assert self.refused(profile, organization=organization) is Reason.SUBJECT_INVALID

    @pytest.mark.parametrize("name", ["", "A", "a\n", "a..b", "a" * 254, "-a", "a b"])
    def test_another_name(self, profile: CertificateProfile, name: str) -> None:
        assert self.refused(profile, common_name=profile.user_prefix + name) is Reason.SUBJECT_INVALID
        assert self.refused(profile, common_name="x" + profile.user_prefix + "a") is Reason.SUBJECT_INVALID
        assert self.refused(profile, common_name="kubernetes-admin") is Reason.SUBJECT_INVALID

    @pytest.mark.parametrize("usage", list(CertificateUsage))
    def test_another_set_of_usages(self, profile: CertificateProfile, usage: CertificateUsage) -> None:
        usages = CONTENTS[profile.name].usages ^ {usage}
        if usage in profile.optional_usages:
            profile.require(replace(CONTENTS[profile.name], usages=usages))
        else:
            assert self.refused(profile, usages=usages) is Reason.USAGES_INVALID

    def test_valid_for_longer(self, profile: CertificateProfile) -> None:
        contents = CONTENTS[profile.name]
        longest = contents.not_before + BACKDATE + profile.maximum_duration
        profile.require(replace(contents, not_after=longest))
        assert self.refused(profile, not_after=longest + timedelta(seconds=1)) is Reason.VALIDITY_INVALID
        assert self.refused(profile, not_after=contents.not_before) is Reason.VALIDITY_INVALID

    def test_its_purpose_is_its_usage(self, profile: CertificateProfile) -> None:
        client = profile.purpose is Purpose.CLIENT
        assert profile.extended_usage is (CertificateUsage.CLIENT_AUTH if client else CertificateUsage.SERVER_AUTH)


@pytest.mark.parametrize("profile", [KUBELET_CLIENT, CANARY], ids=lambda profile: profile.name)
def test_alternative_names_where_there_are_none(profile: CertificateProfile) -> None:
    for changes in ({"dns_names": ("a",)}, {"ip_addresses": (ipaddress.ip_address("10.1.2.3"),)}):
        reason = refused_reason(profile, replace(CONTENTS[profile.name], **changes))
        assert reason is Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID


def test_a_kubelets_duration_is_what_a_policy_may_grant() -> None:
    assert MAXIMUM_KUBELET_DURATION == MAXIMUM_CERTIFICATE_DURATION


class TestCanary:
    def test_it_is_a_client_of_no_group_for_ten_minutes(self, tmp_path: Path) -> None:
        secret = capi_secret()
        pem = issue(authority(secret), canary())
        openssl_verify(tmp_path, secret["tls.crt"], pem, "sslclient")
        subject = openssl("x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", str(tmp_path / "leaf.pem"))
        assert subject.strip() == "subject=CN=node-attestation:ca-canary:one"
        assert CANARY.maximum_duration == timedelta(minutes=10)

    @pytest.mark.parametrize(
        ("reason", "changes"),
        [
            (Reason.SUBJECT_INVALID, {"organization": "system:nodes"}),
            (Reason.SUBJECT_INVALID, {"organization": "system:masters"}),
            (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:worker-1"}),
            (Reason.SUBJECT_INVALID, {"subject_common_name": "system:kube-controller-manager"}),
            (Reason.SUBJECT_INVALID, {"subject_common_name": "node-attestation:ca-canary:a.b"}),
            (Reason.USAGES_INVALID, {"usages": SERVING}),
            (Reason.USAGES_INVALID, {"usages": CLIENT | {CertificateUsage.KEY_ENCIPHERMENT}}),
            (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"dns_names": ("worker-1",)}),
            (Reason.VALIDITY_INVALID, {"not_after": NOW + timedelta(minutes=10, seconds=1)}),
        ],
    )
    def test_it_is_nothing_else(self, reason: IssuanceRefusedReason, changes: dict[str, Any]) -> None:
        with pytest.raises(IssuanceRefused) as caught:
            canary(**changes)
        assert caught.value.reason is reason


def test_a_profile_enforces_what_it_did_not_see_in_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the request's own checks passed by, the finished certificate would still be refused."""
    asked, issuing = request(), authority()
    object.__setattr__(asked, "organization", "system:masters")
    with pytest.raises(IssuanceRefused) as caught:
        issue(issuing, asked)
    assert caught.value.reason is Reason.SELF_CHECK_FAILED
    assert "SubjectInvalid" in caught.value.message


texts = st.text(st.characters(codec="ascii", min_codepoint=32), max_size=20)
names = st.one_of(
    texts,
    st.sampled_from([profile.user_prefix for profile in PROFILES]).flatmap(lambda prefix: texts.map(prefix.__add__)),
    st.sampled_from([contents.common_name for contents in CONTENTS.values()]),
)


@settings(max_examples=150)
@given(
    profile=st.sampled_from(PROFILES),
    organization=st.one_of(st.sampled_from(["", "system:nodes", "system:masters"]), texts),
    common_name=names,
    usages=st.frozensets(st.sampled_from(CertificateUsage)),
    dns_names=st.lists(st.one_of(texts, st.just("worker-1")), max_size=3).map(tuple),
    ip_addresses=st.lists(st.ip_addresses(), max_size=3).map(tuple),
    seconds=st.integers(-10, 400 * 86400),
)
def test_whatever_is_issued_is_what_its_profile_allows(
    profile: CertificateProfile, organization: str, common_name: str, seconds: int, **changes: Any
) -> None:
    asked = {"organization": organization, "subject_common_name": common_name, "profile": profile, **changes}
    try:
        made = request(not_before=NOW, not_after=NOW + timedelta(seconds=seconds), **asked)
    except IssuanceRefused:
        return
    certificate = x509.load_pem_x509_certificate(issue(authority(), made))
    profile.require_certificate(certificate)
    assert organization == profile.organization
    assert common_name.startswith(profile.user_prefix)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= profile.maximum_duration + BACKDATE


class TestFinishedCertificates:
    """`require_certificate` on certificates that `issue` would never make."""

    def builder(self, *, organization: str | None = "system:nodes", order: int = 1) -> x509.CertificateBuilder:
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, "system:node:worker-1")]
        if organization is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        return (
            x509.CertificateBuilder()
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]))
            .subject_name(x509.Name(attributes[::order]))
            .public_key(ec_key(50).public_key())
            .serial_number(1)
            .not_valid_before(NOW)
            .not_valid_after(NOW + timedelta(days=7))
        )

    def extensions(self, **changes: x509.ExtensionType | None) -> list[x509.ExtensionType]:
        kinds: dict[str, x509.ExtensionType | None] = {
            "constraints": x509.BasicConstraints(ca=False, path_length=None),
            "usage": self.key_usage(),
            "extended": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
            **changes,
        }
        return [kind for kind in kinds.values() if kind is not None]

    def key_usage(self, **changes: bool) -> x509.KeyUsage:
        kinds = {
            "digital_signature": True,
            "content_commitment": False,
            "key_encipherment": False,
            "data_encipherment": False,
            "key_agreement": False,
            "key_cert_sign": False,
            "crl_sign": False,
            "encipher_only": False,
            "decipher_only": False,
        }
        return x509.KeyUsage(**{**kinds, **changes})

    def judge(self, builder: x509.CertificateBuilder, extensions: list[x509.ExtensionType]) -> None:
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        KUBELET_CLIENT.require_certificate(builder.sign(ec_key(), hashes.SHA256()))

    def test_as_it_should_be(self) -> None:
        self.judge(self.builder(), self.extensions())

    @pytest.mark.parametrize(
        ("reason", "options"),
        [
            (Reason.SUBJECT_INVALID, {"organization": None}),
            (Reason.SUBJECT_INVALID, {"organization": "system:masters"}),
            (Reason.SUBJECT_INVALID, {"order": -1}),
        ],
    )
    def test_another_subject(self, reason: IssuanceRefusedReason, options: dict[str, Any]) -> None:
        with pytest.raises(IssuanceRefused) as caught:
            self.judge(self.builder(**options), self.extensions())
        assert caught.value.reason is reason

    @pytest.mark.parametrize(
        "usage", ["content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign"]
    )
    def test_a_usage_that_no_profile_has(self, usage: str) -> None:
        with pytest.raises(IssuanceRefused, match="a usage"):
            self.judge(self.builder(), self.extensions(usage=self.key_usage(**{usage: True})))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"constraints": x509.BasicConstraints(ca=True, path_length=None)}, "CA:TRUE"),
            ({"constraints": None}, "no BasicConstraints"),
            ({"usage": None}, "no KeyUsage"),
            ({"extended": None}, "no ExtendedKeyUsage"),
            ({"extended": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])}, "a usage"),
            ({"more": x509.OCSPNoCheck()}, "an extension"),
            ({"more": x509.SubjectAlternativeName([x509.RFC822Name("a@example.org")])}, "an alternative name"),
        ],
    )
    def test_another_extension(self, changes: dict[str, x509.ExtensionType | None], said: str) -> None:
        with pytest.raises(IssuanceRefused, match=said):
            self.judge(self.builder(), self.extensions(**changes))


def test_profiles_are_made_in_one_place() -> None:
    """A profile is permission to issue: one made elsewhere has to be seen here."""
    made = [
        (str(file.relative_to(SIGNER)), node.lineno)
        for file in sorted(SIGNER.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == CertificateProfile.__name__
    ]
    assert [file for file, _ in made] == ["authority/profiles.py"] * len(PROFILES)


def test_every_constraint_is_stated() -> None:
    """None has a default that a new profile could get by being forgotten."""
    assert not [field.name for field in fields(CertificateProfile) if field.default is not field.default_factory]
