from __future__ import annotations

import base64
import subprocess
import warnings
from datetime import timedelta
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat, load_pem_private_key
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, ExtensionOID
from hypothesis import example, given
from hypothesis import strategies as st

from signer.authority import (
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
    IssuingSet,
    KeyWithheld,
    der,
    issue,
    load_authority_certificates,
    load_certificate_authority,
)
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.authority.support import (
    NOW,
    Made,
    capi_secret,
    ec_key,
    key_usage,
    make,
    openssl,
    pem_key,
    request,
    rsa_key,
    unavailable,
    with_serial_number,
)

Reason = CertificateAuthorityUnavailableReason
POLICY = der.object_identifier("1.2.3.4")


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> None:
    warnings.simplefilter("error")


def hashes_of(secret: dict[str, bytes]) -> frozenset[str]:
    return load_certificate_authority(secret, now=NOW).ca_certificate_hashes


def hash_of(made: Made) -> str:
    (only,) = hashes_of({"tls.crt": made.pem, "tls.key": pem_key(made.key)})
    return only


@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("key", [rsa_key(), ec_key()], ids=["rsa", "ecdsa"])
def test_what_cluster_api_writes(key: object) -> None:
    authority = load_certificate_authority(capi_secret(key=key), now=NOW)
    assert authority.trusted == ()
    assert len(authority.ca_certificate_hashes) == 1


def test_the_hash_is_the_one_of_kubeadm(tmp_path: Path) -> None:
    """The pipeline of kubeadm's documentation for --discovery-token-ca-cert-hash, in OpenSSL."""
    secret = capi_secret(key=rsa_key())
    (tmp_path / "ca.crt").write_bytes(secret["tls.crt"])
    public_key = openssl("x509", "-pubkey", "-noout", "-in", str(tmp_path / "ca.crt"))
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=public_key.encode(), capture_output=True, check=True
    ).stdout
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-r"], input=der, capture_output=True, check=True
    ).stdout.split()[0]
    assert hashes_of(secret) == {"sha256:" + digest.decode()}


@pytest.mark.parametrize(
    ("key", "form"),
    [
        (rsa_key(), PrivateFormat.TraditionalOpenSSL),
        (rsa_key(), PrivateFormat.PKCS8),
        (ec_key(), PrivateFormat.TraditionalOpenSSL),
        (ec_key(), PrivateFormat.PKCS8),
    ],
    ids=["pkcs1", "pkcs8-rsa", "sec1", "pkcs8-ecdsa"],
)
def test_forms_of_the_private_key(key: object, form: PrivateFormat) -> None:
    secret = capi_secret(key=key) | {"tls.key": b"Bag Attributes\n  x\n" + pem_key(key, form) + b"\n"}
    loaded = load_certificate_authority(secret, now=NOW)
    assert not isinstance(loaded.private_key, KeyWithheld)
    assert loaded.private_key.public_key() == loaded.certificate.public_key


def test_slow_keys() -> None:
    quick = [rsa_key(), ec_key()]
    for key in quick:
        assert not load_certificate_authority(capi_secret(key=key), now=NOW).is_slow_to_sign
    made = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P384, now=NOW)
    assert load_certificate_authority(made.secret_data, now=NOW).is_slow_to_sign


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [EncryptionAlgorithm.RSA_3072, EncryptionAlgorithm.RSA_4096])
def test_large_keys_are_slow(algorithm: EncryptionAlgorithm) -> None:
    made = new_cluster_certificate_authority(algorithm, now=NOW)
    assert load_certificate_authority(made.secret_data, now=NOW).is_slow_to_sign


class TestChain:
    """Which CAs name the cluster."""

    root = make("root", ec_key(1), usage=key_usage(key_cert_sign=True))
    middle = make("middle", ec_key(2), root)
    own = make("own", ec_key(3), middle)
    foreign = make("foreign", ec_key(4))

    def test_an_intermediate_and_its_issuers_in_any_order(self) -> None:
        expected = {hash_of(self.own), hash_of(self.middle), hash_of(self.root)}
        assert hashes_of(self.own.secret(self.middle, self.root)) == expected
        assert hashes_of(self.own.secret(self.root, self.middle)) == expected

    def test_a_foreign_authority_does_not_count(self) -> None:
        secret = self.own.secret(self.foreign, self.middle, self.root)
        assert hash_of(self.foreign) not in hashes_of(secret)
        loaded = load_certificate_authority(secret, now=NOW)
        assert [ca.public_key_hash for ca in loaded.trusted] == [hash_of(self.middle), hash_of(self.root)]

    def test_a_foreign_authority_of_the_issuers_name_does_not_count(self) -> None:
        impostor = make("middle", ec_key(5))
        assert hashes_of(self.own.secret(impostor)) == {hash_of(self.own)}

    def test_an_authority_below_ours_does_not_count(self) -> None:
        below = make("below", ec_key(6), self.own)
        assert hashes_of(self.own.secret(below)) == {hash_of(self.own)}

    def test_a_gap_ends_the_chain(self) -> None:
        assert hashes_of(self.own.secret(self.root)) == {hash_of(self.own)}

    @pytest.mark.parametrize(
        "options",
        [
            {"ca": False},
            {"ca": None},
            {"usage": key_usage(key_cert_sign=False)},
            {"path_length": 0},
            {"not_after": NOW},
            {"not_before": NOW + timedelta(seconds=1)},
            {"key": rsa_key(1024)},
            {"key": ed25519.Ed25519PrivateKey.generate()},
        ],
        ids=["not-ca", "no-constraints", "key-usage", "path-length", "expired", "future", "weak", "ed25519"],
    )
    def test_an_issuer_that_may_not_issue_does_not_count(self, options: dict[str, object]) -> None:
        issuer = make("issuer", **{"key": ec_key(7), **options})  # type: ignore[arg-type]
        child = make("child", ec_key(8), issuer)
        assert hashes_of(child.secret(issuer)) == {hash_of(child)}

    def test_an_issuer_counts_from_the_moment_that_it_is_valid(self) -> None:
        issuer = make("issuer", ec_key(7), not_before=NOW)
        child = make("child", ec_key(8), issuer)
        assert hashes_of(child.secret(issuer)) == {hash_of(child), hash_of(issuer)}

    def test_path_length_counts_from_the_leaf(self) -> None:
        root = make("r", ec_key(1), path_length=1)
        middle = make("m", ec_key(2), root, path_length=1)
        own = make("o", ec_key(3), middle, path_length=0)
        assert hashes_of(own.secret(middle, root)) == {hash_of(own), hash_of(middle)}

    @pytest.mark.usefixtures("release")
    def test_serial_number_zero_on_both_sides(self) -> None:
        root = Made(self.root.certificate, self.root.key)
        own = make("own", ec_key(3), root)
        texts = [
            b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"
            for der in (with_serial_number(own, 0, ec_key(1)), with_serial_number(root, 0, ec_key(1)))
        ]
        secret = {"tls.crt": b"".join(texts), "tls.key": pem_key(own.key)}
        assert hashes_of(secret) == {hash_of(own), hash_of(root)}

    def test_repeating_the_certificate_changes_nothing(self) -> None:
        assert load_certificate_authority(self.own.secret(self.own), now=NOW).trusted == ()


class TestListed:
    """The Secret's other certificates: known, and not accepted."""

    own, chained, other, another = TestChain.own, TestChain.middle, TestChain.foreign, make("another", ec_key(9))

    def listed(self, secret: dict[str, bytes]) -> set[str]:
        loaded = load_certificate_authority(secret, now=NOW)
        assert not loaded.listed & loaded.ca_certificate_hashes
        withheld = load_authority_certificates(secret, now=NOW)
        assert (withheld.listed, withheld.trusted) == (loaded.listed, loaded.trusted)
        return set(loaded.listed)

    def test_nothing_beside_the_authority(self) -> None:
        assert self.listed(self.own.secret()) == set()
        assert self.listed(self.own.secret(self.own)) == set()

    def test_beside_it_in_tls_crt(self) -> None:
        assert self.listed(self.own.secret(self.other, self.chained)) == {hash_of(self.other)}

    def test_one_that_has_run_out(self) -> None:
        old = make("old", ec_key(9), not_after=NOW)
        assert self.listed(self.own.secret(old)) == {hash_of(self.another)}, (
            "the hash is of the key, and the key the same"
        )

    def test_in_ca_crt(self) -> None:
        bundle = self.own.pem + self.other.pem + self.another.pem
        assert self.listed(self.own.secret() | {"ca.crt": bundle}) == {hash_of(self.other), hash_of(self.another)}

    def test_what_ca_crt_lists_is_not_accepted_although_ours_chains_to_it(self) -> None:
        secret = self.own.secret() | {"ca.crt": self.chained.pem}
        assert self.listed(secret) == {hash_of(self.chained)}
        assert hashes_of(secret) == {hash_of(self.own)}

    @pytest.mark.parametrize("text", [b"", b"\n", b"no PEM", b"x" * (64 * 1024 + 1), TestChain.foreign.pem * 17])
    def test_a_ca_crt_that_cannot_be_read_changes_nothing(self, text: bytes) -> None:
        assert self.listed(self.own.secret(self.other) | {"ca.crt": text}) == {hash_of(self.other)}

    def test_a_block_of_ca_crt_that_cannot_be_read_is_left_out(self) -> None:
        broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        assert self.listed(self.own.secret() | {"ca.crt": broken + self.other.pem}) == {hash_of(self.other)}


class TestBundle:
    """Bundles of a change of CA, in any order: the certificate with the Secret's key signs."""

    old, new, root = make("old", ec_key(1)), make("new", ec_key(2)), make("root", ec_key(3))
    child = make("child", ec_key(4), root)

    @pytest.mark.parametrize("signing", [old, new], ids=["old", "new"])
    @pytest.mark.parametrize("bundle", [old.pem + new.pem, new.pem + old.pem], ids=["old first", "new first"])
    def test_the_keys_certificate_signs(self, bundle: bytes, signing: Made) -> None:
        loaded = load_certificate_authority({"tls.crt": bundle, "tls.key": pem_key(signing.key)}, now=NOW)
        other = self.new if signing is self.old else self.old
        assert loaded.ca_certificate_hashes == {hash_of(signing)}
        assert loaded.listed == {hash_of(other)}

    def test_the_issuer_may_stand_first(self) -> None:
        secret = {"tls.crt": self.root.pem + self.child.pem, "tls.key": pem_key(self.child.key)}
        loaded = load_certificate_authority(secret, now=NOW)
        assert loaded.certificate.public_key_hash == hash_of(self.child)
        assert loaded.ca_certificate_hashes == {hash_of(self.child), hash_of(self.root)}


class TestRefusals:
    def test_nothing_there(self) -> None:
        for data in ({}, {"tls.crt": b""}, {"tls.crt": b" \n", "tls.key": b"x"}):
            assert "tls.crt" in unavailable(data, Reason.CERTIFICATE_MISSING).message

    @pytest.mark.parametrize("key", [None, b"", b"\n"])
    def test_no_private_key(self, key: bytes | None) -> None:
        secret = capi_secret()
        del secret["tls.key"]
        if key is not None:
            secret["tls.key"] = key
        error = unavailable(secret, Reason.KEY_MISSING)
        assert error.reason == "CertificateAuthorityKeyMissing"
        assert "tls.key" in error.message

    @pytest.mark.parametrize(
        "text",
        [
            b"garbage",
            pem_key(ec_key()),
            capi_secret()["tls.crt"] + b"garbage",
            capi_secret()["tls.crt"] + pem_key(ec_key()),
            capi_secret()["tls.crt"].replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE"),
            b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            capi_secret()["tls.crt"] + b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            capi_secret()["tls.crt"] * 17,
            capi_secret()["tls.crt"] + b"\n" * 65536,
        ],
    )
    def test_unreadable_certificate(self, text: bytes) -> None:
        error = unavailable(capi_secret() | {"tls.crt": text}, Reason.INVALID)
        assert "tls.crt" in error.message

    @pytest.mark.parametrize(
        "made",
        [
            make("leaf", ec_key(), ca=False),
            make("v3 without constraints", ec_key(), ca=None),
            make("no keyCertSign", ec_key(), usage=key_usage(key_cert_sign=False)),
        ],
    )
    def test_not_an_authority(self, made: Made) -> None:
        assert "basicConstraints" in unavailable(made.secret(), Reason.NOT_AN_AUTHORITY).message

    def test_a_bundle_without_the_keys_certificate_is_a_mismatch(self) -> None:
        bundle = make("one", ec_key(1)).pem + make("other", ec_key(2)).pem
        unavailable({"tls.crt": bundle, "tls.key": pem_key(ec_key(3))}, Reason.KEY_MISMATCH)

    def test_the_keys_certificate_must_be_an_authority_wherever_it_stands(self) -> None:
        leaf = make("leaf", ec_key(2), ca=False)
        secret = {"tls.crt": make("ca", ec_key(1)).pem + leaf.pem, "tls.key": pem_key(leaf.key)}
        unavailable(secret, Reason.NOT_AN_AUTHORITY)

    @pytest.mark.parametrize("key", [rsa_key(number=1), ec_key(9), ec_key()], ids=["rsa", "ecdsa", "other-kind"])
    def test_mismatch(self, key: object) -> None:
        secret = capi_secret(key=rsa_key()) | {"tls.key": pem_key(key)}
        unavailable(secret, Reason.KEY_MISMATCH)

    def test_unknown_critical_extension(self) -> None:
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
        unavailable(make("ca", ec_key(), extra=((extension, True),)).secret(), Reason.INVALID)
        load_certificate_authority(make("ca", ec_key(), extra=((extension, False),)).secret(), now=NOW)

    @pytest.mark.parametrize(
        "extension",
        [
            x509.NameConstraints([x509.DirectoryName(x509.Name([]))], None),
            x509.NameConstraints(None, [x509.DNSName("example.com"), x509.DirectoryName(x509.Name([]))]),
            x509.IssuerAlternativeName([x509.DNSName("ca.example")]),
            x509.TLSFeature([x509.TLSFeatureType.status_request]),
            x509.PrecertPoison(),
        ],
        ids=lambda extension: type(extension).__name__,
    )
    def test_a_critical_extension_that_no_api_server_processes(self, extension: x509.ExtensionType) -> None:
        """Go refuses all that such a CA signs; where it is not critical, it does not look."""
        said = unavailable(make("ca", ec_key(), extra=((extension, True),)).secret(), Reason.INVALID).message
        assert extension.oid.dotted_string in said
        if not isinstance(extension, x509.PrecertPoison):
            load_certificate_authority(make("ca", ec_key(), extra=((extension, False),)).secret(), now=NOW)

    @pytest.mark.parametrize(
        "extension",
        [
            x509.NameConstraints([x509.DNSName("corp.example"), x509.IPAddress(IPv4Network("10.0.0.0/8"))], None),
            x509.NameConstraints(None, [x509.RFC822Name("b.example"), x509.UniformResourceIdentifier("c.example")]),
            x509.CertificatePolicies([x509.PolicyInformation(x509.ObjectIdentifier("1.2.3.4"), None)]),
            x509.PolicyConstraints(0, None),
            x509.InhibitAnyPolicy(0),
            x509.AuthorityInformationAccess(
                [x509.AccessDescription(AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier("http://x"))]
            ),
            x509.AuthorityKeyIdentifier(b"k", None, None),
            x509.SubjectKeyIdentifier(b"k"),
            x509.CRLDistributionPoints(
                [x509.DistributionPoint([x509.UniformResourceIdentifier("http://x")], None, None, None)]
            ),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]),
            x509.SubjectAlternativeName([x509.DNSName("ca.example")]),
            x509.UnrecognizedExtension(ExtensionOID.POLICY_MAPPINGS, der.sequence(der.sequence(*2 * (POLICY,)))),
        ],
        ids=lambda extension: type(extension).__name__,
    )
    def test_a_critical_extension_that_api_servers_process(self, extension: x509.ExtensionType) -> None:
        load_certificate_authority(make("ca", ec_key(), extra=((extension, True),)).secret(), now=NOW)

    def test_validity(self) -> None:
        secret = make("ca", ec_key(), not_before=NOW, not_after=NOW + timedelta(hours=1)).secret()
        second = timedelta(seconds=1)
        load_certificate_authority(secret, now=NOW)
        load_certificate_authority(secret, now=NOW + timedelta(hours=1) - second)
        unavailable(secret, Reason.NOT_YET_VALID, now=NOW - second)
        unavailable(secret, Reason.EXPIRED, now=NOW + timedelta(hours=1))

    def test_kinds_and_sizes_of_keys(self) -> None:
        assert "1024" in unavailable(make("ca", rsa_key(1024)).secret(), Reason.KEY_WEAK).message
        ed = ed25519.Ed25519PrivateKey.generate()
        assert "Ed25519" in unavailable(make("ca", ed).secret(), Reason.KEY_UNSUPPORTED).message
        assert "tls.key" in unavailable(capi_secret() | {"tls.key": pem_key(ed)}, Reason.KEY_UNSUPPORTED).message

    def test_other_curves(self, tmp_path: Path) -> None:
        key, certificate = str(tmp_path / "key"), str(tmp_path / "crt")
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp256k1", "-nodes"),
            *("-subj", "/CN=x", "-days", "3650", "-keyout", key, "-out", certificate),
        )
        secret = {"tls.crt": Path(certificate).read_bytes(), "tls.key": Path(key).read_bytes()}
        unavailable(secret, Reason.KEY_UNSUPPORTED)

    def test_a_key_bound_to_pss(self, tmp_path: Path) -> None:
        key, certificate = tmp_path / "key", tmp_path / "crt"
        openssl(
            *("req", "-x509", "-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048", "-nodes"),
            *("-subj", "/CN=x", "-days", "3650", "-keyout", str(key), "-out", str(certificate)),
        )
        secret = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}
        now = x509.load_pem_x509_certificate(secret["tls.crt"]).not_valid_before_utc
        unavailable(secret, Reason.KEY_UNSUPPORTED, now=now)
        # The same key in its common form: what it signs would not verify with the certificate.
        plain = load_pem_private_key(secret["tls.key"], None)
        said = unavailable({**secret, "tls.key": pem_key(plain)}, Reason.KEY_UNSUPPORTED, now=now)
        assert "tls.crt" in said.message

    @pytest.mark.parametrize("pkcs8", [False, True])
    def test_large_primes_are_refused_before_they_are_checked(
        self, monkeypatch: pytest.MonkeyPatch, pkcs8: bool
    ) -> None:
        """The key's length does not show them: everything else in it may be one octet long. It took 3 seconds."""

        def load(*_: object, **__: object) -> None:
            raise AssertionError("handed to the library")

        monkeypatch.setattr("signer.authority.private_key.load_der_private_key", load)
        prime = der.encode(der.Tag.INTEGER, b"\x00" + b"\xff" * 512)
        numbers = [
            der.integer(0),
            der.integer(1),
            der.integer(65537),
            der.integer(1),
            prime,
            prime,
            *[der.integer(1)] * 3,
        ]
        key = der.sequence(*numbers)
        if pkcs8:
            algorithm = der.sequence(der.object_identifier("1.2.840.113549.1.1.1"), der.encode(0x05, b""))
            key = der.sequence(der.integer(0), algorithm, der.octet_string(key))
        label = b"PRIVATE KEY" if pkcs8 else b"RSA PRIVATE KEY"
        text = b"-----BEGIN " + label + b"-----\n" + base64.encodebytes(key) + b"-----END " + label + b"-----\n"
        unavailable(capi_secret() | {"tls.key": text}, Reason.KEY_UNSUPPORTED)

    def test_an_enormous_key_is_refused_before_its_primes_are_checked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def load(*_: object, **__: object) -> None:
            raise AssertionError("handed to the library")

        monkeypatch.setattr("signer.authority.private_key.load_der_private_key", load)
        text = b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(bytes(4600)) + b"-----END PRIVATE KEY-----\n"
        unavailable(capi_secret() | {"tls.key": text}, Reason.KEY_UNSUPPORTED)

    @pytest.mark.parametrize("arguments", [("-traditional",), ()], ids=["traditional", "pkcs8"])
    def test_encrypted(self, tmp_path: Path, arguments: tuple[str, ...]) -> None:
        (tmp_path / "plain").write_bytes(pem_key(rsa_key()))
        encrypted = openssl(*("pkey", "-in", str(tmp_path / "plain"), "-aes128", "-passout", "pass:secret", *arguments))
        unavailable(capi_secret(key=rsa_key()) | {"tls.key": encrypted.encode()}, Reason.KEY_ENCRYPTED)

    @pytest.mark.parametrize(
        "text",
        [
            b"garbage",
            pem_key(ec_key()) + b"garbage",
            pem_key(ec_key()) * 2,
            b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + pem_key(ec_key()),
            ec_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
            b"-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----\n",
            pem_key(ec_key())[:-40],
        ],
    )
    def test_unreadable_key(self, text: bytes) -> None:
        error = unavailable(capi_secret() | {"tls.key": text}, Reason.KEY_INVALID)
        assert "tls.key" in error.message


def test_neither_representation_nor_errors_hold_the_key() -> None:
    secret = capi_secret()
    body = secret["tls.key"].splitlines()[1][:20].decode()
    assert "private_key" not in repr(load_certificate_authority(secret, now=NOW))
    error = unavailable(secret | {"tls.key": secret["tls.key"] + b"garbage"}, Reason.KEY_INVALID)
    assert body not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


GOOD = capi_secret()


def _mutated(text: bytes) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda position, value: text[:position] + bytes([value]) + text[position + 1 :],
        st.integers(0, len(text) - 1),
        st.integers(0, 255),
    )


def _armoured(label: bytes) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=200).map(
        lambda content: b"-----BEGIN %s-----\n" % label + base64.encodebytes(content) + b"-----END %s-----\n" % label
    )


@given(
    certificate=st.binary(max_size=200)
    | _armoured(b"CERTIFICATE")
    | _mutated(GOOD["tls.crt"])
    | st.just(GOOD["tls.crt"]),
    key=st.binary(max_size=200) | _armoured(b"PRIVATE KEY") | _mutated(GOOD["tls.key"]) | st.just(GOOD["tls.key"]),
)
@example(certificate=b"", key=b"")
def test_arbitrary_bytes_end_in_an_authority_or_in_the_error(certificate: bytes, key: bytes) -> None:
    warnings.simplefilter("error")
    try:
        loaded = load_certificate_authority({"tls.crt": certificate, "tls.key": key}, now=NOW)
    except CertificateAuthorityUnavailable:
        return
    assert not isinstance(loaded.private_key, KeyWithheld)
    assert loaded.private_key.public_key() == ec_key().public_key()


def test_without_its_private_key_a_cluster_has_the_same_names_and_issues_nothing() -> None:
    secret = capi_secret(key=ec_key())
    whole = load_certificate_authority(secret, now=NOW)
    withheld = load_authority_certificates({"tls.crt": secret["tls.crt"]}, now=NOW)
    assert withheld.ca_certificate_hashes == whole.ca_certificate_hashes
    assert not withheld.is_slow_to_sign
    with pytest.raises(IssuanceRefused) as refused:
        issue(IssuingSet.of(withheld), request())
    assert refused.value.reason == IssuanceRefusedReason.KEY_WITHHELD


def test_without_its_private_key_an_authority_that_has_run_out_is_none() -> None:
    secret = capi_secret(key=ec_key())
    with pytest.raises(CertificateAuthorityUnavailable):
        load_authority_certificates(secret, now=NOW + timedelta(days=40_000))
