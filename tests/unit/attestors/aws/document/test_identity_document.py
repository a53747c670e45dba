"""The document: one meaning, of strict form."""

from __future__ import annotations

import json
from ipaddress import ip_address

import pytest

from attestors.aws.document import IdentityDocumentMalformed, parse_identity_document
from tests.support.aws_documents import document

_OLD = (
    b'{\n  "privateIp" : "10.0.0.9",\n  "devpayProductCodes" : null,\n  "availabilityZone" : "us-east-1a",\n'
    b'  "version" : "2010-08-31",\n  "region" : "us-east-1",\n  "instanceId" : "i-1a2b3c4d",\n'
    b'  "pendingTime" : "2016-02-29T23:59:59Z",\n  "architecture" : "x86_64",\n  "accountId" : "000000000001",\n'
    b'  "billingProducts" : null,\n  "kernelId" : "aki-919dcaf8",\n  "ramdiskId" : null,\n'
    b'  "imageId" : "ami-12345678",\n  "instanceType" : "m1.small"\n}'
)


def test_old_format() -> None:
    read = parse_identity_document(_OLD)
    assert (read.version, read.instance_id, read.account_id) == ("2010-08-31", "i-1a2b3c4d", "000000000001")
    assert read.provider_id == "aws:///us-east-1a/i-1a2b3c4d"


@pytest.mark.parametrize(
    ("region", "zone", "partition"),
    [
        ("us-west-2", "us-west-2-lax-1a", "aws"),
        ("us-east-1", "us-east-1-wl1-bos-wlz-1", "aws"),
        ("us-gov-west-1", "us-gov-west-1b", "aws-us-gov"),
        ("cn-north-1", "cn-north-1a", "aws-cn"),
        ("eusc-de-east-1", "eusc-de-east-1c", "aws-eusc"),
    ],
)
def test_zones_and_partitions(region: str, zone: str, partition: str) -> None:
    read = parse_identity_document(document(region=region, availabilityZone=zone))
    assert read.provider_id.startswith(f"aws:///{zone}/i-")
    assert read.region.partition.name == partition


@pytest.mark.parametrize(("address", "read"), [(None, None), (..., None), ("2001:db8::7", ip_address("2001:db8::7"))])
def test_private_address(address: object, read: object) -> None:
    assert parse_identity_document(document(privateIp=address)).private_ip == read


def test_members_that_are_not_known_mean_nothing() -> None:
    assert parse_identity_document(document(newMember={"accountId": "999999999999"})).account_id == "123456789012"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accountId", ...),
        ("accountId", 123456789012),
        ("accountId", "12345678901"),
        ("accountId", "1234567890123"),
        ("accountId", "12345678901\uff12"),
        ("accountId", "123456789012\n"),
        ("instanceId", ...),
        ("instanceId", ["i-0123456789abcdef0"]),
        ("instanceId", "i-0123456789ABCDEF0"),
        ("instanceId", "i-0123456789abcdef"),
        ("instanceId", "i-0123456789abcdef00"),
        ("instanceId", "mi-0123456789abcdef0"),
        ("instanceId", "i-01234567/../x"),
        ("region", ...),
        ("region", "nowhere-1"),
        ("region", None),
        ("availabilityZone", ...),
        ("availabilityZone", "eu-west-1"),
        ("availabilityZone", "eu-west-10a"),
        ("availabilityZone", "eu-west-2a"),
        ("availabilityZone", "eu-west-1ab"),
        ("availabilityZone", "eu-west-1a/i-0fedcba9876543210"),
        ("availabilityZone", "eu-west-1-"),
        ("availabilityZone", "xeu-west-1a"),
        ("imageId", ...),
        ("imageId", "ami 1"),
        ("instanceType", ""),
        ("pendingTime", ...),
        ("pendingTime", "2026-01-02 02:04:05"),
        ("pendingTime", "2026-02-30T02:04:05Z"),
        ("pendingTime", "2026-01-02T02:04:05+00:00"),
        ("pendingTime", 1767319445),
        ("privateIp", "10.0.1.256"),
        ("privateIp", 167772433),
        ("privateIp", ""),
        ("version", ...),
        ("version", "x" * 200),
    ],
)
def test_members_that_are_not_of_their_form(name: str, value: object) -> None:
    with pytest.raises(IdentityDocumentMalformed, match=f"(?i)^the instance identity document .*{name[-4:]}"):
        parse_identity_document(document(**{name: value}))


@pytest.mark.parametrize("member", ["accountId", "instanceId", "region", "kernelId"])
@pytest.mark.parametrize("first", [True, False])
def test_repeated_members(member: str, first: bool) -> None:
    content = document()
    again = f'"{member}" : {json.dumps(json.loads(content)[member])}'.encode()
    repeated = b"{" + again + b"," + content[1:] if first else content[:-1] + b"," + again + b"}"
    assert json.loads(repeated) == json.loads(content)
    with pytest.raises(IdentityDocumentMalformed, match="repeats a member"):
        parse_identity_document(repeated)


def test_repeated_members_further_in() -> None:
    content = document()[:-1] + b',"x":{"y":1,"y":1}}'
    with pytest.raises(IdentityDocumentMalformed, match="repeats a member"):
        parse_identity_document(content)


def test_how_much_is_nested_does_not_depend_on_the_callers_stack() -> None:
    def nested(lists: int) -> bytes:
        return document(newMember="x").replace(b'"x"', b"[" * lists + b"]" * lists)

    assert parse_identity_document(nested(63)).account_id == "123456789012"
    for content in (nested(64), b"[" * 8000, b'{"a":' * 1500):
        with pytest.raises(IdentityDocumentMalformed, match="more than 64 objects and lists"):
            parse_identity_document(content)


def test_too_many_members() -> None:
    most = document(**{f"m{number}": 0 for number in range(64 - 15)})
    assert parse_identity_document(most) == parse_identity_document(document())
    with pytest.raises(IdentityDocumentMalformed, match="more than 64 members"):
        parse_identity_document(document(**{f"m{number}": 0 for number in range(65 - 15)}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        document() + b"x",
        document() + document(),
        b"\xef\xbb\xbf" + document(),
        document().decode().encode("utf-16"),
        document(x=0).replace(b'"x" : 0', b'"x" : NaN'),
        document(x=0).replace(b'"x" : 0', b'"x" : -Infinity'),
        document(x=0).replace(b'"x" : 0', b'"x" : ' + b"9" * 5000),
        b"[" * 64,
    ],
    ids=lambda content: f"{len(content)} bytes from {content[:3].hex()}",
)
def test_not_json(content: bytes) -> None:
    with pytest.raises(IdentityDocumentMalformed, match="is not UTF-8 JSON"):
        parse_identity_document(content)


@pytest.mark.parametrize("content", [b"[]", b"null", b'"x"', b"1"])
def test_not_an_object(content: bytes) -> None:
    with pytest.raises(IdentityDocumentMalformed, match="is not a JSON object"):
        parse_identity_document(content)


def test_size() -> None:
    largest = document().ljust(8192)
    assert parse_identity_document(largest) == parse_identity_document(document())
    with pytest.raises(IdentityDocumentMalformed, match="larger than 8192 bytes"):
        parse_identity_document(largest + b" ")


def test_nothing_of_the_document_is_quoted() -> None:
    with pytest.raises(IdentityDocumentMalformed) as caught:
        parse_identity_document(document(accountId="a secret"))
    assert "secret" not in str(caught.value)
