"""Where the metadata server may be: on this machine, or on its link."""

from __future__ import annotations

import pytest

from attestors.contract import InvalidSettings
from attestors.gcp.node.settings import MetadataEndpoint, NodeSettings


def test_nothing_need_be_configured() -> None:
    assert NodeSettings.parse({}).endpoint == MetadataEndpoint("169.254.169.254", 80)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://metadata.google.internal", MetadataEndpoint("metadata.google.internal")),
        ("http://metadata.google.internal/", MetadataEndpoint("metadata.google.internal")),
        ("http://169.254.169.254:8080", MetadataEndpoint("169.254.169.254", 8080)),
        ("http://127.0.0.1:988", MetadataEndpoint("127.0.0.1", 988)),
        ("http://[fd20:ce::254]", MetadataEndpoint("fd20:ce::254")),
        ("http://[::1]:8080", MetadataEndpoint("::1", 8080)),
        ("http://[fe80::1]", MetadataEndpoint("fe80::1")),
    ],
    ids=["name", "slash", "link-local", "loopback", "IPv6 only", "IPv6 loopback", "IPv6 link-local"],
)
def test_near(text: str, endpoint: MetadataEndpoint) -> None:
    assert NodeSettings.parse({"metadata-endpoint": text}).endpoint == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "169.254.169.254",
        "https://169.254.169.254",
        "http://192.0.2.1",
        "http://[2001:db8::1]",
        "http://[fd20:ce::255]",
        "http://[::ffff:192.0.2.1]",
        "http://metadata",
        "http://metadata.google.internal.example.com",
        "http://localhost",
        "http://0.0.0.0",
        "http://2130706433",
        "http://127.1",
        "http://user@127.0.0.1",
        "http://127.0.0.1/path",
        "http://127.0.0.1?x",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:",
        "http://127.0.0.1\n",
        "http://127.0.0.1:80\r\nX: y",
    ],
    ids=[
        "nothing",
        "no scheme",
        "TLS",
        "elsewhere",
        "IPv6 elsewhere",
        "IPv6 neighbour",
        "IPv4 in IPv6",
        "another name",
        "longer name",
        "localhost",
        "unspecified",
        "one number",
        "two numbers",
        "user",
        "path",
        "query",
        "no port",
        "large port",
        "empty port",
        "line break",
        "header",
    ],
)
def test_elsewhere(text: str) -> None:
    with pytest.raises(InvalidSettings, match="metadata-endpoint is http://"):
        NodeSettings.parse({"metadata-endpoint": text})


def test_an_unknown_setting() -> None:
    with pytest.raises(InvalidSettings, match="no setting 'provider-id', only metadata-endpoint"):
        NodeSettings.parse({"provider-id": "gce://a/b/c"})
