"""Host keys in a CSR: what is read, what is refused, and that OpenSSH makes and reads the same proofs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.wire import certificate_request, provider_id
from attestors.wire.names import MAXIMUM_CERTIFICATE_REQUEST_BYTES, SSH_HOST_KEYS_OID
from attestors.wire.ssh.encoding import string
from attestors.wire.ssh.errors import SSHReason
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import RSAKey
from attestors.wire.ssh.signatures import PrivateKey, public_key_of
from attestors.wire.ssh.sshsig import Namespace, SSHSignature, parse_armored, sign_message
from attestors.wire.ssh_host_keys import (
    HOST_KEY_NAMESPACE,
    LARGEST_TRUST_VERSION,
    MAXIMUM_EXTENSION_BYTES,
    ClaimedHostKey,
    HostKeysClaim,
    HostKeysReason,
    HostKeysRefused,
    claim_through,
    claim_with,
    decode,
    encode,
    verify,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import SIGNERS, private_key, public_keys, ssh_keygen, write_private_key

REQUEST_KEY = ec.derive_private_key(4711, ec.SECP256R1())
SPKI = REQUEST_KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
KEY, OTHER = private_key("ed25519"), private_key("ed25519", 1)
CLAIM = claim_with(KEY, SPKI)
VALUE = encode(HostKeysClaim(7, (CLAIM,)))


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    length = bytes([len(content)]) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    if 0x80 <= len(content) < 0x100:
        length = bytes([0x81, len(content)])
    return bytes([tag]) + length + content


def pair(blob: bytes, proof: bytes) -> bytes:
    return der(0x30, der(0x04, blob), der(0x04, proof))


def sequence(*pairs: bytes, version: bytes = b"\x07") -> bytes:
    return der(0x30, der(0x02, version), der(0x30, *pairs))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(HostKeysRefused) as refused:
        call()
    assert str(refused.value).startswith(f"{refused.value.reason}: ")
    return refused.value.reason


def reading(value: bytes) -> str:
    return refusal(lambda: verify(decode(value), SPKI))


@pytest.mark.parametrize("name", SIGNERS)
def test_a_host_key_of_each_kind_is_proven(name: str) -> None:
    key = private_key(name)
    claim = decode(encode(HostKeysClaim(0, (claim_with(key, SPKI),))))
    assert verify(claim, SPKI) == (public_key_of(key),)


@pytest.mark.parametrize("names", [*itertools.combinations(SIGNERS, 3)])
def test_three_keys_are_read_in_order(names: tuple[str, ...]) -> None:
    value = encode(HostKeysClaim(2**40, tuple(claim_with(private_key(name), SPKI) for name in names)))
    assert verify(decode(value), SPKI) == tuple(public_key_of(private_key(name)) for name in names)
    assert encode(decode(value)) == value


def test_the_form_on_the_wire() -> None:
    assert sequence(pair(CLAIM.key.blob, CLAIM.proof.blob)) == VALUE
    assert len(CLAIM.proof.blob) == 207


def test_a_fido_key_is_no_host_key() -> None:
    for name in ("sk-ed25519", "sk-ecdsa"):
        key = public_keys()[name]
        assert reading(sequence(pair(key.blob, CLAIM.proof.blob))) == SSHReason.SECURITY_KEY_NOT_ALLOWED
        signed = replace(CLAIM.proof, public_key=key)
        assert refusal(lambda signed=signed: claim_through(lambda *_: signed, SPKI)) == (  # type: ignore[misc]
            SSHReason.SECURITY_KEY_NOT_ALLOWED
        )


def test_dsa_is_refused() -> None:
    blob = string(b"ssh-dss") + 4 * string(b"\x01" * 20)
    assert reading(sequence(pair(blob, CLAIM.proof.blob))) == SSHReason.KEY_TYPE_UNSUPPORTED


def test_short_rsa_keys_are_refused() -> None:
    key = rsa.generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    modulus = numbers.n.to_bytes(257, "big")
    blob = string(b"ssh-rsa") + string(b"\x01\x00\x01") + string(modulus)
    assert reading(sequence(pair(blob, CLAIM.proof.blob))) == SSHReason.KEY_TOO_WEAK
    assert refusal(lambda: claim_with(key, SPKI)) == SSHReason.KEY_TOO_WEAK


def test_bytes_behind_the_blob_are_refused() -> None:
    assert reading(sequence(pair(CLAIM.key.blob + b"\0", CLAIM.proof.blob))) == SSHReason.TRAILING_BYTES


def test_bytes_behind_the_proof_are_refused() -> None:
    assert reading(sequence(pair(CLAIM.key.blob, CLAIM.proof.blob + b"\0"))) == SSHReason.TRAILING_BYTES


def test_a_proof_by_another_key_is_refused() -> None:
    foreign = sign_message(OTHER, HOST_KEY_NAMESPACE, SPKI)
    assert reading(sequence(pair(CLAIM.key.blob, foreign.blob))) == SSHReason.SIGNED_BY_ANOTHER_KEY


def test_another_nodes_key_with_a_proof_in_its_name_is_refused() -> None:
    """The thief has no private key of the other host: it signs with its own, and writes the other's key beside it."""
    lying = replace(sign_message(OTHER, HOST_KEY_NAMESPACE, SPKI), public_key=CLAIM.key)
    assert reading(sequence(pair(CLAIM.key.blob, lying.blob))) == SSHReason.BAD_SIGNATURE


def test_a_proof_for_another_request_is_refused() -> None:
    """A copied extension: its proof is over the key of the request that it was copied from."""
    theirs = ec.generate_private_key(ec.SECP256R1()).public_key()
    spki = theirs.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert refusal(lambda: verify(decode(VALUE), spki)) == SSHReason.BAD_SIGNATURE


@pytest.mark.parametrize("namespace", ["file", "host-key@attestation.cluster.x-k8s.io.", "host-key@example.org"])
def test_a_proof_for_another_use_is_refused(namespace: str) -> None:
    proof = sign_message(KEY, Namespace(namespace), SPKI)
    assert reading(sequence(pair(CLAIM.key.blob, proof.blob))) == SSHReason.WRONG_NAMESPACE


def test_no_key_and_four_keys_are_refused() -> None:
    assert reading(sequence()) == HostKeysReason.NO_HOST_KEY
    assert refusal(lambda: HostKeysClaim(0, ())) == HostKeysReason.NO_HOST_KEY
    four = tuple(claim_with(private_key("ed25519", seed), SPKI) for seed in range(4))
    assert reading(sequence(*(pair(one.key.blob, one.proof.blob) for one in four))) == HostKeysReason.TOO_MANY_HOST_KEYS
    three = [pair(one.key.blob, one.proof.blob) for one in four[:3]]
    assert reading(sequence(*three, b"\x31\x00")) == HostKeysReason.TOO_MANY_HOST_KEYS  # whatever the fourth is
    assert refusal(lambda: HostKeysClaim(0, four)) == HostKeysReason.TOO_MANY_HOST_KEYS


def test_a_key_twice_is_refused() -> None:
    one = pair(CLAIM.key.blob, CLAIM.proof.blob)
    assert reading(sequence(one, one)) == HostKeysReason.HOST_KEY_REPEATED
    assert refusal(lambda: HostKeysClaim(0, (CLAIM, CLAIM))) == HostKeysReason.HOST_KEY_REPEATED


@pytest.mark.parametrize("version", [0, 1, 127, 128, 255, 256, 2**31, LARGEST_TRUST_VERSION])
def test_each_trust_version_is_read(version: int) -> None:
    value = encode(HostKeysClaim(version, (CLAIM,)))
    assert decode(value) == HostKeysClaim(version, (CLAIM,))
    assert encode(decode(value)) == value


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"", HostKeysReason.NOT_DER),
        (b"\xff", HostKeysReason.TRUST_VERSION_INVALID),  # -1
        (b"\x80" + bytes(7), HostKeysReason.TRUST_VERSION_INVALID),
        (b"\x00\x80" + bytes(7), HostKeysReason.TRUST_VERSION_INVALID),  # 2^63
        (b"\x00\x07", HostKeysReason.NOT_CANONICAL_DER),
        (b"\x00\x00", HostKeysReason.NOT_CANONICAL_DER),
    ],
)
def test_another_trust_version_is_refused(octets: bytes, reason: HostKeysReason) -> None:
    assert reading(sequence(pair(CLAIM.key.blob, CLAIM.proof.blob), version=octets)) == reason


@pytest.mark.parametrize("version", [-1, LARGEST_TRUST_VERSION + 1])
def test_a_trust_version_is_a_number_of_63_bits(version: int) -> None:
    assert refusal(lambda: HostKeysClaim(version, (CLAIM,))) == HostKeysReason.TRUST_VERSION_INVALID


def test_bytes_behind_the_der_are_refused() -> None:
    assert reading(VALUE + b"\0") == HostKeysReason.BYTES_AFTER_DER
    longer = der(0x30, der(0x04, CLAIM.key.blob), der(0x04, CLAIM.proof.blob), b"\x05\0")
    assert reading(sequence(longer)) == HostKeysReason.BYTES_AFTER_DER
    keys = der(0x30, pair(CLAIM.key.blob, CLAIM.proof.blob))
    assert reading(der(0x30, b"\x02\x01\x07", keys, b"\x05\0")) == HostKeysReason.BYTES_AFTER_DER


@pytest.mark.parametrize(
    "value",
    [
        b"\x30\x83\x00" + len(VALUE[3:]).to_bytes(2, "big") + VALUE[3:],  # a length of three bytes
        b"\x30\x82\x00\x7f" + bytes(0x7F),  # two where one byte does
        b"\x30\x81\x7f" + bytes(0x7F),
        b"\x30\x80" + VALUE[3:] + b"\0\0",  # indefinite
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x82\x01",
    ],
)
def test_another_encoding_of_a_length_is_refused(value: bytes) -> None:
    assert reading(value) == HostKeysReason.NOT_CANONICAL_DER


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x30",
        b"\x31" + VALUE[1:],
        VALUE[:-1],
        VALUE[VALUE.index(b"\x02\x01\x07") + 3 :],  # the list alone
        der(0x30, b"\x0a\x01\x07", der(0x30, pair(CLAIM.key.blob, CLAIM.proof.blob))),  # an ENUMERATED
        der(0x30, b"\x02\x01\x07"),
        sequence(der(0x04, b"")),
        sequence(der(0x30, der(0x03, CLAIM.key.blob), der(0x04, CLAIM.proof.blob))),
        sequence(der(0x30, der(0x04, CLAIM.key.blob))),
        sequence(der(0x30)),
    ],
)
def test_what_is_no_extension_of_this_kind_is_refused(value: bytes) -> None:
    assert reading(value) == HostKeysReason.NOT_DER


def test_too_large_an_extension_is_refused() -> None:
    assert reading(bytes(MAXIMUM_EXTENSION_BYTES + 1)) == HostKeysReason.EXTENSION_TOO_LARGE
    signature = replace(CLAIM.proof.signature, value=bytes(1024))
    keys = [RSAKey(65537, 2**8191 + number) for number in (1, 3)]
    large = [ClaimedHostKey(key, replace(CLAIM.proof, public_key=key, signature=signature)) for key in keys]
    assert refusal(lambda: encode(HostKeysClaim(0, tuple(large)))) == HostKeysReason.EXTENSION_TOO_LARGE


def test_the_largest_extension_fits_into_each_client_request() -> None:
    """With the longest names, and so in every one: the extension never costs a node its certificate."""
    for key in (REQUEST_KEY, private_key("nistp521")):
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        built = certificate_request.build(
            key,
            node_name="n" * 253,
            provider_id="p" * 512,
            further=[x509.UnrecognizedExtension(x509.ObjectIdentifier(SSH_HOST_KEYS_OID), bytes(6 * 1024))],
        )
        assert len(built) <= MAXIMUM_CERTIFICATE_REQUEST_BYTES
    large = certificate_request.TooManyNames
    with pytest.raises(large):
        certificate_request.build(
            REQUEST_KEY,
            node_name="n",
            provider_id="p",
            ip_addresses=[ip_address("192.0.2.1")],
            further=[x509.UnrecognizedExtension(x509.ObjectIdentifier(SSH_HOST_KEYS_OID), bytes(8 * 1024))],
        )


def test_api_servers_read_the_default_oid() -> None:
    assert provider_id.check_oid(SSH_HOST_KEYS_OID) == SSH_HOST_KEYS_OID


def openssh_signs(key: PrivateKey, folder: Path, message: bytes, namespace: str = HOST_KEY_NAMESPACE.text) -> str:
    file = write_private_key(folder / "key", key)
    (folder / "message").write_bytes(message)
    (folder / "message.sig").unlink(missing_ok=True)
    signed = ssh_keygen("-q", "-Y", "sign", "-f", file, "-n", namespace, folder / "message")
    assert signed.returncode == 0, signed.stderr
    return (folder / "message.sig").read_text()


@pytest.fixture(autouse=True, scope="module")
def _openssh() -> None:
    try:
        ssh_keygen("-?")
    except MissingPart as missing:
        skip_or_fail(missing)


@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(SIGNERS), message=st.binary(min_size=1, max_size=200))
def test_openssh_signs_and_we_read(tmp_path_factory: pytest.TempPathFactory, name: str, message: bytes) -> None:
    folder, key = tmp_path_factory.mktemp("sign"), private_key(name)

    def sign(namespace: Namespace, signed: bytes) -> SSHSignature:
        return parse_armored(openssh_signs(key, folder, signed, namespace.text))

    claim = decode(encode(HostKeysClaim(1, (claim_through(sign, message),))))
    assert verify(claim, message) == (public_key_of(key),)
    assert refusal(lambda: verify(claim, message + b"\0")) == SSHReason.BAD_SIGNATURE


@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(SIGNERS), message=st.binary(min_size=1, max_size=200))
def test_we_sign_and_openssh_reads(tmp_path_factory: pytest.TempPathFactory, name: str, message: bytes) -> None:
    folder = tmp_path_factory.mktemp("verify")
    claim = claim_with(private_key(name), message)
    (folder / "proof").write_text(claim.proof.armored)
    (folder / "allowed").write_text(f"node {key_line(claim.key)}\n")
    common = ("-f", folder / "allowed", "-I", "node", "-s", folder / "proof")

    def verified(namespace: str, content: bytes) -> int:
        found = ssh_keygen("-Y", "verify", *common, "-n", namespace, standard_input=content)
        return found.returncode

    assert verified(HOST_KEY_NAMESPACE.text, message) == 0
    assert verified("file", message) != 0
    assert verified(HOST_KEY_NAMESPACE.text, message + b"x") != 0


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_no_changed_byte_is_read_as_proven(data: st.DataObject) -> None:
    """Fuzz: a changed extension is refused, or proves nothing. The version alone is proven by the CSR's signature."""
    value = bytearray(encode(HostKeysClaim(7, (CLAIM, claim_with(OTHER, SPKI)))))
    version = value.index(b"\x02\x01\x07") + 2
    position = data.draw(st.integers(0, len(value) - 1).filter(lambda one: one != version))
    value[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(HostKeysRefused):
        verify(decode(bytes(value)), SPKI)


@settings(max_examples=300, deadline=None)
@given(value=st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda content: der(0x30, content))))
def test_what_is_read_is_written_alike(value: bytes) -> None:
    try:
        claim = decode(value)
    except HostKeysRefused:
        return
    assert encode(claim) == value


def test_claims_hold_the_key_of_the_proof() -> None:
    assert ClaimedHostKey(public_key_of(KEY), CLAIM.proof) == CLAIM
