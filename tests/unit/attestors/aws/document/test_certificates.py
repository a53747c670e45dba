"""The certificates of the Regions: those that are shipped are AWS's, and those of the operator add to them."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.aws.document import (
    RegionCertificateMissing,
    RegionCertificatesUnreadable,
    load_region_certificates,
    shipped_certificates,
)
from attestors.aws.document.certificates import SHIPPED_FOLDER, known_fingerprints
from attestors.aws.partitions import PARTITIONS, parse_region
from tests.support.aws_documents import Authority, authority

_PROVENANCE = (SHIPPED_FOLDER.parent / "PROVENANCE.md").read_text()
_NOT_SHIPPED = set(re.findall(r"^- `([a-z0-9-]+)`$", _PROVENANCE, re.MULTILINE))


@pytest.mark.parametrize("region", sorted(known_fingerprints()))
def test_shipped_certificate(region: str) -> None:
    """The very certificate whose fingerprint was written down from another source."""
    if region in _NOT_SHIPPED:
        with pytest.raises(RegionCertificateMissing, match=f"the AWS Region {region}: the operator can add"):
            shipped_certificates().of(parse_region(region))
        return
    (pinned,) = shipped_certificates().of(parse_region(region))
    certificate = x509.load_pem_x509_certificate((SHIPPED_FOLDER / f"{region}.pem").read_bytes())
    assert certificate.fingerprint(hashes.SHA256()).hex() == known_fingerprints()[region]
    assert pinned.fingerprint == known_fingerprints()[region]
    assert pinned.key == certificate.public_key()
    assert pinned.key.key_size == 2048


def test_what_is_shipped_and_what_is_not() -> None:
    shipped = set(shipped_certificates().by_region)
    assert shipped == {path.stem for path in SHIPPED_FOLDER.iterdir()}
    assert len(known_fingerprints()) == 39
    assert set(known_fingerprints()) - shipped == _NOT_SHIPPED
    assert len(_NOT_SHIPPED) == 3


def test_every_region_has_its_own_key() -> None:
    keys = [pinned.key.public_numbers().n for (pinned,) in shipped_certificates().by_region.values()]
    assert len(set(keys)) == len(keys) == 36


def test_partitions_of_the_known_regions() -> None:
    """Every partition that is not secret."""
    partitions = {parse_region(region).partition.name for region in known_fingerprints()}
    assert partitions == {partition.name for partition in PARTITIONS if not partition.name.startswith("aws-iso")}


def put(folder: Path, region: str, *authorities: Authority) -> None:
    content = b"".join(b"# for you\n" + one.certificate.public_bytes(Encoding.PEM) for one in authorities)
    (folder / f"{region}.pem").write_bytes(content)


class TestFolder:
    def test_adds_a_region(self, tmp_path: Path) -> None:
        put(tmp_path, "eu-west-7", authority("eu-west-7"))
        for folder in ("..data", "lost+found"):
            (tmp_path / folder).mkdir()
        (tmp_path / ".hidden").write_text("x")
        loaded = load_region_certificates(tmp_path)
        assert loaded.of(parse_region("eu-west-7")) == (authority("eu-west-7").pinned,)
        assert loaded.of(parse_region("eu-west-1")) == shipped_certificates().of(parse_region("eu-west-1"))

    def test_none(self) -> None:
        assert load_region_certificates().by_region == shipped_certificates().by_region

    @pytest.mark.parametrize("region", ["eu-west-1", "ap-southeast-6"], ids=["shipped", "only known"])
    def test_does_not_change_a_known_region(self, tmp_path: Path, region: str) -> None:
        put(tmp_path, region, authority("an attacker"))
        with pytest.raises(
            RegionCertificatesUnreadable, match=f"^{region}.pem is not the certificate that AWS is known"
        ):
            load_region_certificates(tmp_path)

    def test_does_not_add_to_a_shipped_one(self, tmp_path: Path) -> None:
        shipped = (SHIPPED_FOLDER / "eu-west-1.pem").read_bytes()
        (tmp_path / "eu-west-1.pem").write_bytes(
            shipped + authority("an attacker").certificate.public_bytes(Encoding.PEM)
        )
        with pytest.raises(RegionCertificatesUnreadable, match=r"^eu-west-1.pem is not the certificate"):
            load_region_certificates(tmp_path)

    def test_may_repeat_a_shipped_one(self, tmp_path: Path) -> None:
        (tmp_path / "eu-west-1.pem").write_bytes((SHIPPED_FOLDER / "eu-west-1.pem").read_bytes())
        assert load_region_certificates(tmp_path).by_region == shipped_certificates().by_region

    def test_changes_a_region_that_the_operator_names(self, tmp_path: Path) -> None:
        put(tmp_path, "eu-west-1", authority("old"), authority("new"))
        loaded = load_region_certificates(tmp_path, replacing=frozenset({"eu-west-1"}))
        assert loaded.of(parse_region("eu-west-1")) == (authority("old").pinned, authority("new").pinned)

    def test_as_much_as_there_may_be(self, tmp_path: Path) -> None:
        four = b"".join(authority(name).certificate.public_bytes(Encoding.PEM) for name in ("old", "new", "x", "y"))
        (tmp_path / "eu-west-7.pem").write_bytes(four.ljust(32 * 1024))
        assert len(load_region_certificates(tmp_path).of(parse_region("eu-west-7"))) == 4
        (tmp_path / "eu-west-7.pem").write_bytes(four.ljust(32 * 1024 + 1))
        with pytest.raises(RegionCertificatesUnreadable, match="must hold 1 to 4 certificates in PEM"):
            load_region_certificates(tmp_path)

    def test_too_many_files(self, tmp_path: Path) -> None:
        for area in ("us", "eu", "ap"):
            for number in range(1, 86):
                put(tmp_path, f"{area}-new-{number}", authority("x"))
        put(tmp_path, "sa-new-1", authority("x"))
        assert len(load_region_certificates(tmp_path).by_region) == 256 + 36
        put(tmp_path, "sa-new-2", authority("x"))
        with pytest.raises(RegionCertificatesUnreadable, match="must hold 1 to 256 certificates"):
            load_region_certificates(tmp_path)

    def test_must_have_what_is_to_be_replaced(self, tmp_path: Path) -> None:
        put(tmp_path, "eu-west-7", authority("eu-west-7"))
        for folder in (tmp_path, None):
            with pytest.raises(
                RegionCertificatesUnreadable, match=r"^eu-west-1 is to be replaced, but there is no eu-we"
            ):
                load_region_certificates(folder, replacing=frozenset({"eu-west-1"}))

    @pytest.mark.parametrize(
        "name", ["certificate.pem", "eu-west-1.crt", "EU-WEST-1.pem", "eu-west-1 .pem", "eu-west-1", "us-west.pem"]
    )
    def test_file_that_is_not_named_for_a_region(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(authority("x").certificate.public_bytes(Encoding.PEM))
        with pytest.raises(RegionCertificatesUnreadable, match="is not named for an AWS Region, such as"):
            load_region_certificates(tmp_path)

    def test_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RegionCertificatesUnreadable, match="No such file or directory"):
            load_region_certificates(tmp_path / "nowhere")

    def test_empty(self, tmp_path: Path) -> None:
        with pytest.raises(RegionCertificatesUnreadable, match="must hold 1 to 256 certificates"):
            load_region_certificates(tmp_path)

    @pytest.mark.parametrize(
        ("content", "match"),
        [
            (b"", "must hold 1 to 4 certificates in PEM"),
            (authority("x").der, "must hold 1 to 4 certificates in PEM"),
            (5 * authority("x").certificate.public_bytes(Encoding.PEM), "must hold 1 to 4 certificates in PEM"),
            (
                authority("x").certificate.public_bytes(Encoding.PEM) + b"#" * 40000,
                "must hold 1 to 4 certificates in PEM",
            ),
            (
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "holds a certificate that cannot be read",
            ),
            (
                authority("weak", bits=1024).certificate.public_bytes(Encoding.PEM),
                "has no RSA key of 2048 to 8192 bits",
            ),
        ],
        ids=["empty", "DER", "five", "large", "no certificate", "weak key"],
    )
    def test_file_that_cannot_be_used(self, tmp_path: Path, content: bytes, match: str) -> None:
        (tmp_path / "eu-west-7.pem").write_bytes(content)
        with pytest.raises(RegionCertificatesUnreadable, match=f"^eu-west-7.pem {match}"):
            load_region_certificates(tmp_path)

    def test_certificate_of_another_kind_of_key(self, tmp_path: Path) -> None:
        key = ed25519.Ed25519PrivateKey.generate()
        name = authority("x").certificate.subject
        start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + datetime.timedelta(days=1))
        certificate = builder.sign(key, None)
        (tmp_path / "eu-west-7.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        with pytest.raises(RegionCertificatesUnreadable, match=r"^eu-west-7.pem has no RSA key"):
            load_region_certificates(tmp_path)
