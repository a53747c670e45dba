from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import provider_id
from attestors.wire.names import PROVIDER_ID_OID
from attestors.wire.provider_id import (
    MAXIMUM_OIDS,
    InvalidOID,
    InvalidProviderID,
    check_oid,
    check_provider_id,
    read_oids,
)
from tests.unit.attestors.support import PATIENT

LONGEST = "x://" + "a" * 508

provider_ids = st.from_regex(r"[\x21-\x7e]|[\x21-\x7e][\x20-\x7e]{0,510}[\x21-\x7e]", fullmatch=True)


def utf8_string(content: bytes) -> bytes:
    """DER by hand (X.690 section 8.1.3)."""
    size = len(content)
    if size < 0x80:
        return b"\x0c" + bytes([size]) + content
    if size < 0x100:
        return b"\x0c\x81" + bytes([size]) + content
    return b"\x0c\x82" + size.to_bytes(2, "big") + content


@pytest.mark.parametrize(
    "text",
    [
        "aws:///eu-central-1a/i-0123456789abcdef0",
        "aws:///eu-central-1a/fargate-ip-192-0-2-7.eu-central-1.compute.internal",
        "gce://project/europe-west3-a/node-1",
        "azure:///subscriptions/0/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n",
        "azure:///subscriptions/0/resourceGroups/rg_(1)/providers/Microsoft.Compute/virtualMachineScaleSets/s/virtualMachines/0",
        "metal3://d668eb95-5df6-4c10-a01a-fc69f4299fc6",
        "metal3://namespace/host/machine",
        "vsphere://4237c2a3-8c4a-4b1f-9b5f-0d1f0d1f0d1f",
        "openstack:///5f2a9d3c-8a55-4a3e-9a3f-0f1c3a526e4b",
        "openstack://RegionOne/5f2a9d3c-8a55-4a3e-9a3f-0f1c3a526e4b",
        "cn-hangzhou.i-bp1",
        "alicloud://cn-hangzhou.i-v98dklsmnxkkgiiil7",
        "maas:///default/abc123",
        "maas:///Rack 1/abc123",
        "maas:////abc123",
        "oci://ocid1.instance.oc1.iad.aaaaaaaa",
        "ocid1.instance.oc1.iad.aaaaaaaa",
        "ibm://a0bc0c5466544e968bff315fba51e594///c0d19dnd0uii3pk7po40/kube-c0d19dnd0uii3pk7po40-edge-0000024c",
        "ibmpowervs://eu-de/eu-de-1/0f1c3a52-6e4b/1f2d1c0a",
        "hcloud://1234567",
        "hrobot://321",
        "hcloud://bm-321",
        "digitalocean://64011171",
        "packet://0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "equinixmetal://0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "linode://12345678",
        "vultr://0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "scaleway://instance/fr-par-1/0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "exoscale://3d7ac8fe-72e2-4a2b-8cd8-542f25e89a97",
        "upcloud:////00b3dc8c-0000-4000-8000-000000000000",
        "qcloud:///800005/ins-2jv4wpmr",
        "proxmox://0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "nutanix://0f1c3a52-6e4b-4f57-8a0e-1f2d1c0a7b11",
        "elf://0F1C3A52-6E4B-4F57-8A0E-1F2D1C0A7B11",
        "kubevirt://machine-1",
        "tinkerbell://tink-system/hw-1",
        "byoh://host-1/a1b2c3",
        "docker:////quick-start-md-0-x7k2p",
        "kind://docker/kind/kind-worker",
        "k3s://node-1",
        "eks-hybrid:///eu-central-1/cluster/mi-0123456789abcdef0",
        "fakeCloud://Node 1",
        "AWS://x",
        "1aws://x",
        "aws:/x",
        "aws://",
        "://x",
        "x",
        "a  b",
        "a+b.c-d0://!~",
        LONGEST,
    ],
)
def test_accepts_what_cluster_api_providers_write(text: str) -> None:
    assert check_provider_id(text) == text
    assert provider_id.decode(utf8_string(text.encode())) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "   ",
        " aws://x",
        "aws://x ",
        "aws://x\n",
        "aws://x\r\n",
        "\naws://x",
        "aws://x\ty",
        "aws://x\0",
        "aws://x\x1b[2J",
        "aws://x\x7f",
        "aws://x\x85",
        "aws://x\u00a0y",
        "aws://x\u00ady",
        "aws://x\u200b",
        "aws://x\u2028y",
        "aws://\ufb01x",
        "\u0430ws://x",
        "aws:\u2215\u2215x",
        "\ufeffaws://x",
        "aws://\u00e9",
        "aws://\u202ex",
        "\uff41ws://x",
        LONGEST + "a",
    ],
)
def test_refuses_what_is_no_provider_id(text: str) -> None:
    with pytest.raises(InvalidProviderID):
        check_provider_id(text)
    with pytest.raises(InvalidProviderID):
        provider_id.encode(text)
    with pytest.raises(InvalidProviderID):
        provider_id.decode(utf8_string(text.encode()))


@PATIENT
@given(provider_ids)
def test_writes_der_and_reads_it_back(text: str) -> None:
    encoded = provider_id.encode(text)
    assert encoded == utf8_string(text.encode())
    assert provider_id.decode(encoded) == text


CONTENT = b"aws:///a/i-1"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(CONTENT, id="no-der"),
        pytest.param(utf8_string(CONTENT) + b"\0", id="zero-byte-behind"),
        pytest.param(utf8_string(CONTENT) * 2, id="two-strings"),
        pytest.param(utf8_string(CONTENT)[:-1], id="truncated"),
        pytest.param(b"\x16" + utf8_string(CONTENT)[1:], id="ia5-string"),
        pytest.param(b"\x13" + utf8_string(CONTENT)[1:], id="printable-string"),
        pytest.param(b"\x04" + utf8_string(CONTENT)[1:], id="octet-string"),
        pytest.param(b"\x30\x0e" + utf8_string(CONTENT), id="in-a-sequence"),
        pytest.param(b"\x0c\x81\x0c" + CONTENT, id="long-form-of-a-short-length"),
        pytest.param(b"\x0c\x82\x00\x0c" + CONTENT, id="longer-form-of-a-short-length"),
        pytest.param(b"\x0c\x88" + b"\xff" * 8 + CONTENT, id="a-length-beyond-all-memory"),
        pytest.param(b"\x2c\x80" + utf8_string(CONTENT) + b"\0\0", id="indefinite-length"),
        pytest.param(b"\x2c\x0e" + utf8_string(CONTENT), id="constructed"),
        pytest.param(utf8_string(b"aws://\xff\xfe"), id="not-utf8"),
        pytest.param(utf8_string(b"aws://\xc0\xaf"), id="overlong-utf8"),
        pytest.param(utf8_string(b"aws://\xed\xa0\x80"), id="surrogate"),
        pytest.param(b"\x0c\x84\xff\xff\xff\xff" + CONTENT, id="length-of-four-gigabytes"),
        pytest.param(utf8_string(b"x://" + b"a" * 60_000), id="far-too-long"),
    ],
)
def test_refuses_every_other_encoding(value: bytes) -> None:
    with pytest.raises(InvalidProviderID):
        provider_id.decode(value)


@PATIENT
@given(
    st.binary(max_size=64)
    | st.tuples(st.sampled_from([b"\x0c", b"\x2c", b"\x1f\x0c"]), st.binary(max_size=40)).map(b"".join)
)
def test_any_bytes_are_refused_or_are_what_would_be_written(value: bytes) -> None:
    try:
        text = provider_id.decode(value)
    except InvalidProviderID:
        return
    assert provider_id.encode(text) == value


@PATIENT
@given(st.data(), provider_ids)
def test_a_changed_byte_is_refused_or_changes_the_provider_id(data: st.DataObject, text: str) -> None:
    encoded = provider_id.encode(text)
    position = data.draw(st.integers(0, len(encoded) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != encoded[position]))
    with contextlib.suppress(InvalidProviderID):
        assert provider_id.decode(encoded[:position] + bytes([byte]) + encoded[position + 1 :]) != text


def test_says_that_bytes_follow() -> None:
    with pytest.raises(InvalidProviderID, match="bytes after the UTF8String"):
        provider_id.decode(utf8_string(CONTENT) + b"\0")


ASSIGNED = "1.3.6.1.4.1.57683.9"
KNOWN_TO_THE_LIBRARY = sorted(
    oid.dotted_string for oid in vars(ExtensionOID).values() if isinstance(oid, x509.ObjectIdentifier)
)


LONGEST_OIDS = ["1.2" + ".2147483647" * 12 + ".16383", "1.2" + ".268435455" * 15 + ".16383"]
"""63 bytes in DER."""


@pytest.mark.parametrize(
    "text",
    [*LONGEST_OIDS, PROVIDER_ID_OID, ASSIGNED, "1.2.3", "0.39.1", "2.999.2147483647", "2.2147483567.1", "2.5.290.1"],
)
def test_oids_that_a_request_may_use(text: str) -> None:
    assert check_oid(text) == text == x509.ObjectIdentifier(text).dotted_string


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2", "1", "3.1.1", "1.40.1", "0.40.1", "1.2.03", "1.2.", ".1.2", "1..2", "1.2.x", "1.2.3 ", " 1.2.3"),
        *("1.2.3\n", "1.2.-3", "1.2.\u0663", "1.2.3,1.2.4", "1.2." + "9" * 11, "1.2" + ".1" * 30, "oid:1.2.3"),
    ],
)
def test_no_oids(text: str) -> None:
    with pytest.raises(InvalidOID, match="is no OID: numbers with dots between them, such as"):
        check_oid(text)


@pytest.mark.parametrize("text", ["1.2.2147483648", "1.2.3.4294967296", "2.2147483568.1", "2.25.9999999999"])
def test_oids_that_no_api_server_reads(text: str) -> None:
    """Go says "base 128 integer too large", and the API server refuses the whole request."""
    with pytest.raises(InvalidOID, match=f"^{text} has a number in it that is larger than API servers read"):
        check_oid(text)


@pytest.mark.parametrize("text", [f"{longest}.0" for longest in LONGEST_OIDS] + ["1.2" + ".2147483647" * 18])
def test_oids_that_are_too_long_for_the_library(text: str) -> None:
    with pytest.raises(ValueError, match="error parsing asn1 value"):
        x509.ObjectIdentifier(text)
    with pytest.raises(InvalidOID, match=r"\.\.\. is longer than 63 bytes in DER$"):
        check_oid(text)


@pytest.mark.parametrize(
    "text", [*KNOWN_TO_THE_LIBRARY, "2.5.29.17", "2.5.29.1000", "1.3.6.1.5.5.7.1.24", "2.16.840.1.113730.1.1"]
)
def test_oids_of_other_extensions(text: str) -> None:
    """What the library reads as something else gives no provider ID, and what an API server reads is judged there."""
    assert len(KNOWN_TO_THE_LIBRARY) > 20
    with pytest.raises(InvalidOID, match="is the OID of another extension"):
        check_oid(text)


def test_several_oids() -> None:
    assert read_oids(PROVIDER_ID_OID) == (PROVIDER_ID_OID,)
    assert read_oids(f"{ASSIGNED},{PROVIDER_ID_OID}") == (ASSIGNED, PROVIDER_ID_OID)
    most = [f"1.2.3.{number}" for number in range(MAXIMUM_OIDS)]
    assert read_oids(",".join(most)) == tuple(most)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is no OID"),
        (f"{ASSIGNED},", "is no OID"),
        (f"{ASSIGNED}, 1.2.3", "' 1.2.3' is no OID"),
        (f"{ASSIGNED},1.2.3,{ASSIGNED}", "an OID is repeated"),
        (f"{ASSIGNED},2.5.29.17", "another extension"),
        (",".join(f"1.2.3.{number}" for number in range(MAXIMUM_OIDS + 1)), "more than 4 OIDs"),
    ],
)
def test_no_list_of_oids(text: str, expected: str) -> None:
    with pytest.raises(InvalidOID, match=expected):
        read_oids(text)


numbers = st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=19)


@given(st.text(alphabet="0123456789.,", max_size=60) | numbers.map(lambda listed: ".".join(["2", *map(str, listed)])))
def test_whatever_is_taken_for_oids_the_library_takes_too(text: str) -> None:
    with contextlib.suppress(InvalidOID):
        for oid in read_oids(text):
            assert x509.ObjectIdentifier(oid).dotted_string == oid


@pytest.mark.parametrize("characters", [5, 126, 127, 128, 129, 254, 255, 256, 257, 511, 512])
def test_lengths_are_written_and_read_in_their_shortest_form(characters: int) -> None:
    text = "x://" + "a" * (characters - 4)
    assert provider_id.encode(text) == utf8_string(text.encode())
    assert provider_id.decode(utf8_string(text.encode())) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "is not a UTF8String"),
        (b"\x0c", "is not a UTF8String"),
        (b"\x0c\x00", "^empty$"),
        (utf8_string(b"x://a\n"), "^not printable ASCII$"),
        (utf8_string("x://\u00e9".encode()), "^not printable ASCII$"),
        (utf8_string(b"x://a "), "^begins or ends with a space$"),
        (utf8_string(b" x://a"), "^begins or ends with a space$"),
        (b"\x13\x05x://a", "is not a UTF8String"),
        (b"\x0c\x81\x05x://a", "is not DER"),
        (b"\x0c\x82\x00\x05x://a", "is not DER"),
        (b"\x0c\x80x://a\x00\x00", "has bytes after the UTF8String"),
        (utf8_string(b"x://" + b"a" * 509), "longer than 512 characters"),
        (utf8_string(b"x://" + b"a" * 600), "longer than 512 characters"),
    ],
)
def test_what_is_no_provider_id_and_why(value: bytes, expected: str) -> None:
    with pytest.raises(InvalidProviderID, match=expected):
        provider_id.decode(value)
