"""The real ``ssh-keygen`` reads what is written here, and the reverse. Many values share a call, which takes 10 ms."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.wire.ssh.certificate import (
    FOREVER,
    Certificate,
    CertificateKind,
    SignedCertificate,
    parse_certificate_file,
)
from attestors.wire.ssh.encoding import string, strings, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_file
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import (
    CertificateRevocations,
    RevocationList,
    SerialRange,
    encode_revocation_list,
    parse_revocation_list,
)
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from attestors.wire.ssh.sshsig import Namespace, SSHSignature, parse_armored, sign_message, verify_message
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import SIGNERS, blocks, find_openssh, private_key, public_keys, ssh_keygen, write_private_key
from tests.unit.attestors.wire.ssh.strategies import certificates, revocation_lists
from tests.unit.attestors.wire.ssh.test_certificate import USER
from tests.unit.attestors.wire.ssh.test_krl import HEADER, section
from tests.unit.attestors.wire.ssh.test_signatures import touched

pytestmark = pytest.mark.slow

KEYS: Final = public_keys()
AUTHORITY: Final = private_key("ed25519", 1)
OTHER_AUTHORITY: Final = private_key("nistp384", 1)
NAMESPACE: Final = Namespace("host-key@attestation.example")
MESSAGE: Final = b"the SubjectPublicKeyInfo\n"
A_FEW: Final = settings(max_examples=10, suppress_health_check=list(HealthCheck))
SOME: Final = settings(max_examples=50, suppress_health_check=list(HealthCheck))
_HEADINGS: Final = ("Principals:", "Critical Options:", "Extensions:")
_KINDS: Final = {CertificateKind.USER: "user", CertificateKind.HOST: "host"}


@pytest.fixture(scope="module", autouse=True)
def _ssh_keygen() -> None:
    try:
        find_openssh("ssh-keygen")
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ssh")


def signed(certificate: Certificate, by: PrivateKey = AUTHORITY) -> SignedCertificate:
    return SignedCertificate(certificate, sign(by, certificate.signed_bytes))


# Certificates


def time_of(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def validity_of(certificate: Certificate) -> str:
    """As ``sshkey_format_cert_validity`` writes it."""
    after, before = certificate.valid_after, certificate.valid_before
    if before == FOREVER:
        return f"after {time_of(after)}" if after else "forever"
    return f"from {time_of(after)} to {time_of(before)}" if after else f"before {time_of(before)}"


def shown(certificate: Certificate) -> dict[str, object]:
    """What ``ssh-keygen -L`` must say."""
    options = [f"{option.name.value} {option.value[4:].decode()}".strip() for option in certificate.critical_options]
    return {
        "Type": f"{certificate.public_key.key_type.certificate_type} {_KINDS[certificate.kind]} certificate",
        "Public key": certificate.public_key.fingerprint,
        "Signing CA": certificate.authority.fingerprint,
        "Key ID": f'"{certificate.key_id}"',
        "Serial": str(certificate.serial),
        "Valid": validity_of(certificate),
        "Principals": list(map(str, certificate.principals)),
        "Critical Options": options,
        "Extensions": [extension.value for extension in certificate.extensions],
    }


def listed(text: str) -> Iterator[dict[str, object]]:
    """What it says, a dictionary for each certificate."""
    for _, *lines in blocks(text, ("/", "(stdin)")):
        found: dict[str, object] = {}
        under = ""
        for line in lines:
            name, colon, value = line.strip().partition(": ")
            if line.strip().removesuffix(" (none)") in _HEADINGS:
                under = line.strip().partition(":")[0]
                found[under] = []
            elif line.startswith(" " * 16):
                entries = found[under]
                assert isinstance(entries, list)
                entries.append(line.strip())
            else:
                assert colon, line
                found[name] = value.split(" ")[1] if name in ("Public key", "Signing CA") else value
        yield found


def assert_listed_alike(folder: Path, found: list[SignedCertificate]) -> None:
    file = folder / "certificates"
    file.write_text("".join(f"{one.line}\n" for one in found))
    done = ssh_keygen("-L", "-f", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(listed(done.stdout)) == [shown(one.certificate) for one in found]


@A_FEW
@given(found=st.lists(certificates(authority=public_key_of(AUTHORITY)), min_size=15, max_size=40))
def test_certificates_are_listed_alike(folder: Path, found: list[Certificate]) -> None:
    """Test 2: every key type, serials, options, principals. ``ssh-keygen`` verifies the signature, too."""
    assert_listed_alike(folder, [signed(one) for one in found])


def test_every_type_under_every_authority_with_0_1_and_256_principals(folder: Path) -> None:
    found = []
    for number, name in enumerate(SIGNERS):
        by = private_key(name, 1)
        for key in KEYS.values():
            principals = tuple(PlainPrincipal(f"u{n}") for n in range((0, 1, 256)[number % 3]))
            one = replace(USER, public_key=key, authority=public_key_of(by), principals=principals, serial=2**64 - 1)
            found.append(signed(replace(one, extensions=tuple(Extension)), by))
    assert_listed_alike(folder, found)


def test_certificates_by_fido_authorities(folder: Path) -> None:
    """A break-glass authority may be a token; ``ssh-keygen`` verifies its signature."""
    found = []
    for name in ("sk-ed25519", "sk-ecdsa"):
        certificate = replace(USER, public_key=KEYS["rsa-3072"], authority=KEYS[name])
        _, signature = touched(name, certificate.signed_bytes)
        found.append(SignedCertificate(certificate, signature))
        found[-1].verify()
    assert_listed_alike(folder, found)


def test_ssh_keygen_notices_a_wrong_signature(folder: Path) -> None:
    """Or the tests above would show less than they say."""
    forged = SignedCertificate(USER, sign(OTHER_AUTHORITY, USER.signed_bytes))
    (folder / "forged").write_text(f"{forged.line}\n")
    assert ssh_keygen("-L", "-f", folder / "forged").returncode != 0


@pytest.mark.parametrize("kind", ["user", "host"])
def test_certificates_of_ssh_keygen_are_read(folder: Path, kind: str) -> None:
    authority = write_private_key(folder / f"authority-{kind}", AUTHORITY)
    files = []
    for name, key in KEYS.items():
        file = folder / f"{kind}-{name}.pub"
        file.write_text(f"{key_line(key)} a comment\n")
        files.append(file)
    more = (
        ["-h", "-n", "worker-1,192.0.2.7,2001:db8::7"]
        if kind == "host"
        else [
            *("-n", "root,admin", "-O", "clear", "-O", "permit-pty", "-O", "source-address=192.0.2.0/24,2001:db8::/32"),
            *("-O", "force-command=ls -l", "-O", "verify-required", "-O", "permit-X11-forwarding"),
        ]
    )
    done = ssh_keygen("-s", authority, "-I", "a key id", "-z", "+41", "-V", "20200101:20300101", *more, *files)
    assert done.returncode == 0, done.stderr
    found = [parse_certificate_file(file.with_name(f"{file.stem}-cert.pub").read_bytes()) for file in files]
    for one in found:
        one.verify()
    assert [one.certificate.public_key for one in found] == list(KEYS.values())
    assert_listed_alike(folder, found)


def test_public_keys_of_ssh_keygen_are_read(folder: Path) -> None:
    for kind, bits in (("ed25519", ()), ("ecdsa", ("-b", "521")), ("rsa", ("-b", "3072"))):
        file = folder / f"made-{kind}"
        assert ssh_keygen("-q", "-t", kind, *bits, "-N", "", "-C", "alice@laptop", "-f", file).returncode == 0
        key = parse_key_file(file.with_suffix(".pub").read_bytes())
        assert key.fingerprint in ssh_keygen("-l", "-f", file).stdout


# Revocation lists


class Queried:
    """Certificates and keys in files, about which ``ssh-keygen -Q`` is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values: list[PublicKey | Certificate] = list(KEYS.values())
        for by in (AUTHORITY, OTHER_AUTHORITY):
            for serial in (0, 1, 2, 7, 20, 33, 2**63 - 1, 2**64 - 1):
                names = ("a", "b", "grant/c")
                key = list(KEYS.values())[serial % len(KEYS)]
                self.values.append(
                    replace(USER, serial=serial, public_key=key, authority=public_key_of(by), key_id=names[serial % 3])
                )
        self.files = []
        for number, value in enumerate(self.values):
            file = folder / f"queried-{number}.pub"
            by = (
                AUTHORITY
                if isinstance(value, Certificate) and value.authority == public_key_of(AUTHORITY)
                else OTHER_AUTHORITY
            )
            line = signed(value, by).line if isinstance(value, Certificate) else key_line(value)
            file.write_text(f"{line} c\n")
            self.files.append(file)

    def by_openssh(self, file: Path) -> list[bool]:
        """Which are revoked."""
        done = ssh_keygen("-Q", "-f", file, *self.files)
        answers = [line.rsplit(": ", 1)[1] for line in done.stdout.splitlines()]
        assert set(answers) <= {"REVOKED", "ok"}
        assert done.returncode == int("REVOKED" in answers), done.stderr
        return [answer == "REVOKED" for answer in answers]

    def by_us(self, revocations: RevocationList) -> list[bool]:
        """Which are revoked."""
        return [is_revoked(revocations, value) for value in self.values]


def is_revoked(revocations: RevocationList, value: PublicKey | Certificate) -> bool:
    try:
        revocations.require_not_revoked(value)
    except SSHRefused:
        return True
    return False


@pytest.fixture(scope="module")
def queried(folder: Path) -> Queried:
    return Queried(folder)


LISTS: Final = revocation_lists(
    authorities=[public_key_of(AUTHORITY), public_key_of(OTHER_AUTHORITY)],
    ids=["a", "b", "grant/c", "unused"],
    subjects=[*KEYS.values(), public_key_of(OTHER_AUTHORITY)],
)


@SOME
@given(revocations=LISTS)
def test_revocation_lists_are_read_alike(queried: Queried, revocations: RevocationList) -> None:
    """Test 3: serials, ranges, key ids, keys and fingerprints, of one authority or of all."""
    file = queried.folder / "written.krl"
    file.write_bytes(encode_revocation_list(revocations))
    assert queried.by_openssh(file) == queried.by_us(revocations)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    serials=st.sets(st.one_of(st.integers(1, 40), st.integers(2**63 - 9, 2**63 + 9)), max_size=30),
    first=st.integers(1, 2**64 - 2),  # ssh-keygen takes no range of one number
    name=st.sampled_from(["a", "b", "grant/c"]),
)
def test_lists_of_ssh_keygen_are_read(queried: Queried, serials: set[int], first: int, name: str) -> None:
    """Which writes bitmaps, too."""
    folder = queried.folder
    (folder / "authority.pub").write_text(f"{key_line(public_key_of(AUTHORITY))}\n")
    lines = [f"serial: {serial}" for serial in sorted(serials)]
    lines += [f"serial: {first}-{min(first + 90, 2**64 - 1)}", f"id: {name}"]
    (folder / "specification").write_text("\n".join(lines) + f"\nsha256: {key_line(KEYS['nistp521'])}\n")
    file = folder / "theirs.krl"
    done = ssh_keygen(
        "-k", "-f", file, "-z", "12", "-s", folder / "authority.pub", folder / "specification", queried.files[0]
    )
    assert done.returncode == 0, done.stderr
    found = parse_revocation_list(file.read_bytes())
    assert (found.version, len(found.keys), len(found.fingerprints)) == (12, 1, 1)
    assert queried.by_us(found) == queried.by_openssh(file)
    file.write_bytes(encode_revocation_list(found))
    assert queried.by_us(found) == queried.by_openssh(file)


def test_bitmaps_of_ssh_keygen_are_read(queried: Queried) -> None:
    """Every second serial number makes one."""
    folder = queried.folder
    (folder / "authority.pub").write_text(f"{key_line(public_key_of(AUTHORITY))}\n")
    (folder / "odd").write_text("".join(f"serial: {serial}\n" for serial in range(1, 800, 2)))
    file = folder / "bitmap.krl"
    assert ssh_keygen("-k", "-f", file, "-s", folder / "authority.pub", folder / "odd").returncode == 0
    assert len(file.read_bytes()) < 400
    found = parse_revocation_list(file.read_bytes())
    assert found.certificates[0].serials == tuple(map(SerialRange.single, range(1, 800, 2)))


@pytest.mark.parametrize(
    "part",
    [b"\x20" + string(uint64(0)), b"\x21" + string(uint64(0) + uint64(5)), b"\x21" + string(uint64(5) + uint64(4))],
    ids=["serial 0", "from serial 0", "backwards"],
)
def test_what_is_refused_here_makes_openssh_refuse_the_whole_list(queried: Queried, part: bytes) -> None:
    """So that it must never be written: 255 means that sshd would refuse every login."""
    file = queried.folder / "invalid.krl"
    file.write_bytes(HEADER + section(part))
    assert ssh_keygen("-Q", "-f", file, queried.files[0]).returncode == 255
    with pytest.raises(SSHRefused):
        parse_revocation_list(file.read_bytes())


def test_a_list_with_ten_thousand_key_ids(queried: Queried) -> None:
    names = tuple(f"grant/{n}" for n in range(10_000))
    revocations = RevocationList(1, 1, certificates=(CertificateRevocations(public_key_of(AUTHORITY), key_ids=names),))
    file = queried.folder / "long.krl"
    file.write_bytes(encode_revocation_list(revocations))
    assert queried.by_openssh(file) == queried.by_us(revocations)
    assert parse_revocation_list(HEADER + section(b"\x23" + string(strings([b"x"])))).entries == 1


# SSHSIG


def allowed_signers(folder: Path, namespace: Namespace = NAMESPACE) -> Path:
    file = folder / "allowed-signers"
    file.write_text("".join(f'{name} namespaces="{namespace.text}" {key_line(key)}\n' for name, key in KEYS.items()))
    return file


def ask_openssh(folder: Path, name: str, signature: SSHSignature, message: bytes = MESSAGE) -> tuple[int, int]:
    """Exit codes of ``-Y check-novalidate`` and ``-Y verify``."""
    file = folder / f"{name}.sig"
    file.write_text(signature.armored)
    common = ("-n", NAMESPACE.text, "-s", file)
    checked = ssh_keygen("-Y", "check-novalidate", *common, standard_input=message)
    verified = ssh_keygen(*("-Y", "verify", "-f", allowed_signers(folder), "-I", name), *common, standard_input=message)
    return checked.returncode, verified.returncode


@pytest.mark.parametrize("name", SIGNERS)
def test_our_signatures_are_verified_by_ssh_keygen(folder: Path, name: str) -> None:
    signature = sign_message(private_key(name), NAMESPACE, MESSAGE)
    assert ask_openssh(folder, name, signature) == (0, 0)
    assert ask_openssh(folder, name, signature, b"another") == (255, 255)


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_signatures_of_fido_tokens_are_verified_by_both(folder: Path, name: str) -> None:
    """The message that the token signs is taken from a signature by an ordinary key."""
    template = sign_message(private_key("ed25519"), NAMESPACE, MESSAGE)
    data = b"SSHSIG" + strings(
        (NAMESPACE.text.encode(), b"", template.hash_algorithm.value.encode(), hashlib.sha512(MESSAGE).digest())
    )
    key, signature = touched(name, data)
    found = replace(template, public_key=key, signature=signature)
    verify_message(found, key, NAMESPACE, MESSAGE)
    assert ask_openssh(folder, name, found) == (0, 0)


def test_signatures_of_ssh_keygen_are_verified_here(folder: Path) -> None:
    messages = []
    for name in SIGNERS:
        key = write_private_key(folder / f"signer-{name}", private_key(name))
        message = folder / f"message-{name}"
        message.write_bytes(MESSAGE)
        done = ssh_keygen("-Y", "sign", "-f", key, "-n", NAMESPACE.text, message)
        assert done.returncode == 0, done.stderr
        messages.append(message)
    for name, message in zip(SIGNERS, messages, strict=True):
        found = parse_armored(message.with_name(f"{message.name}.sig").read_text())
        verify_message(found, KEYS[name], NAMESPACE, MESSAGE)
        with pytest.raises(SSHRefused) as refused:
            verify_message(found, KEYS[name], Namespace("git"), MESSAGE)
        assert refused.value.reason is SSHReason.WRONG_NAMESPACE
        assert base64.b64decode("".join(found.armored.splitlines()[1:-1])) == found.blob
