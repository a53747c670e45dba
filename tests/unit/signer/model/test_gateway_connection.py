from __future__ import annotations

import base64
import string
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.signatures import public_key_of
from signer.kube.kubeconfig import MAXIMUM_KUBECONFIG_BYTES as LIMIT_OF_THE_PARSER
from signer.model.cluster import ClusterKey
from signer.model.gateway_connection import (
    MAXIMUM_KUBECONFIG_BYTES,
    GatewayConnection,
    InvalidGatewayConnection,
    connection_name,
    parse_gateway_connection,
    render_gateway_connection,
)
from signer.model.tools_image import ToolsImage

CLUSTER: Final = ClusterKey("team-a", "production")


def authority(number: int = 1) -> PublicKey:
    return public_key_of(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


CONNECTION: Final = GatewayConnection(CLUSTER, b"kubeconfig: secret", (authority(1), authority(2)))
LINE: Final = key_line(authority(1))


def secret(**data: Any) -> dict[str, Any]:
    """The Secret with other values in ``data``; an underscore in a name stands for a dash."""
    manifest = render_gateway_connection(CONNECTION, "node-access-gateway")
    for name, value in data.items():
        encoded = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        manifest["data"][name.replace("_", "-")] = encoded
    return manifest


def refused(manifest: dict[str, Any]) -> str:
    with pytest.raises(InvalidGatewayConnection) as error:
        parse_gateway_connection(manifest)
    return str(error.value)


def test_the_tools_image_is_there_only_if_the_operator_named_one() -> None:
    assert "tools-image" not in secret()["data"]
    found = replace(CONNECTION, tools=ToolsImage("tools:1"))
    manifest = render_gateway_connection(found, "node-access-gateway")
    assert parse_gateway_connection(manifest) == found
    for value in (b"", b"a b", b"\xff", b"a" * 600, "%"):
        assert "tools-image" in refused(secret(tools_image=value))


def test_the_secret() -> None:
    manifest = render_gateway_connection(CONNECTION, "node-access-gateway")
    assert manifest["type"] == "access.cluster.x-k8s.io/gateway-connection"
    assert manifest["metadata"] == {"name": "connection-6b3d5c59e38c2e67", "namespace": "node-access-gateway"}
    assert {name: base64.b64decode(value) for name, value in manifest["data"].items()} == {
        "namespace": b"team-a",
        "cluster": b"production",
        "kubeconfig": b"kubeconfig: secret",
        "user-authorities": f"{key_line(authority(1))}\n{key_line(authority(2))}\n".encode(),
    }


def test_what_an_api_server_adds_changes_nothing() -> None:
    manifest = secret()
    manifest["metadata"] |= {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    assert parse_gateway_connection(manifest | {"immutable": False}) == CONNECTION


names = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=63)


@given(
    names,
    names,
    st.binary(min_size=1, max_size=300),
    st.lists(st.integers(0, 255), min_size=1, max_size=8, unique=True),
)
def test_every_connection_reads_as_it_was_written(
    namespace: str, cluster: str, kubeconfig: bytes, numbers: list[int]
) -> None:
    connection = GatewayConnection(ClusterKey(namespace, cluster), kubeconfig, tuple(map(authority, numbers)))
    manifest = render_gateway_connection(connection, "gateways")
    assert parse_gateway_connection(manifest) == connection
    assert render_gateway_connection(parse_gateway_connection(manifest), "gateways") == manifest


@given(
    st.sampled_from(["namespace", "cluster", "kubeconfig", "user-authorities"]),
    st.text(max_size=40),
    st.integers(0, 60),
)
def test_another_text_is_the_same_connection_in_the_same_form_or_none(name: str, inserted: str, position: int) -> None:
    manifest = secret()
    before = manifest["data"][name]
    manifest["data"][name] = before[:position] + inserted + before[position + len(inserted) // 2 :]
    try:
        found = parse_gateway_connection(manifest)
    except InvalidGatewayConnection:
        return
    assert render_gateway_connection(found, "node-access-gateway")["data"] == manifest["data"]


def test_the_largest() -> None:
    largest = GatewayConnection(
        ClusterKey("n" * 63, "c" * 253), b"k" * MAXIMUM_KUBECONFIG_BYTES, tuple(map(authority, range(8)))
    )
    assert parse_gateway_connection(render_gateway_connection(largest, "g")) == largest
    assert MAXIMUM_KUBECONFIG_BYTES == LIMIT_OF_THE_PARSER


def test_another_type_is_refused() -> None:
    """An API server never changes a Secret's type: one that somebody made as another type stays that."""
    for other in ("Opaque", "", None, ["access.cluster.x-k8s.io/gateway-connection"]):
        assert refused(secret() | {"type": other}).startswith("type ")


@pytest.mark.parametrize("other", [ClusterKey("team-b", "production"), ClusterKey("team-a", "other")])
def test_a_name_of_another_cluster_is_refused(other: ClusterKey) -> None:
    """Two Secrets cannot both be a Cluster's connection."""
    manifest = secret()
    manifest["metadata"]["name"] = connection_name(other)
    assert refused(manifest).startswith("metadata.name ")
    assert refused(secret(namespace=other.namespace.encode(), cluster=other.name.encode())).startswith("metadata.name ")


def test_the_name_depends_on_where_the_namespace_ends() -> None:
    assert connection_name(ClusterKey("a-b", "c")) != connection_name(ClusterKey("a", "b-c"))


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"\n",
        LINE.encode(),
        f"{LINE}\n\n".encode(),
        f"\n{LINE}\n".encode(),
        f"{LINE}\r\n".encode(),
        f"{LINE}x".encode(),
        f"{LINE} comment\n".encode(),
        f"# a comment\n{LINE}\n".encode(),
        f"{LINE}\n{LINE}\n".encode(),
        f'{LINE}\ncert-authority,principals="*" {key_line(authority(2))}\n'.encode(),
        f"cert-authority {LINE}\n".encode(),
        f"{LINE}\ntrailing".encode(),
        f"{LINE}\n\x00".encode(),
        f"{LINE}\n".encode() + b"\xff\n",
        "".join(f"{key_line(authority(number))}\n" for number in range(9)).encode(),
        b"x" * 100_000,
    ],
)
def test_authorities_in_another_form_are_refused(lines: bytes) -> None:
    assert refused(secret(user_authorities=lines)).startswith(("data.user-authorities ", "user-authorities "))


@pytest.mark.parametrize(
    "value", [None, 7, [], "", "!", "YQ", "YR==", "YQ==\n", " YQ==", "YQ==YQ==", "YQ==é", "\ud800"]
)
@pytest.mark.parametrize("name", ["namespace", "cluster", "user_authorities"])
def test_a_value_that_is_no_base64_in_its_only_form_is_refused(name: str, value: Any) -> None:
    refused(secret(**{name: value}))


@pytest.mark.parametrize("value", [None, 7, "", "!", "YQ", "YR==", "YQ==\n", "YQ==YQ=="])
def test_a_kubeconfig_that_is_no_base64_in_its_only_form_is_refused(value: Any) -> None:
    assert "kubeconfig" in refused(secret(kubeconfig=value))


@pytest.mark.parametrize("extra", [1, 2, 3, 100_000])
def test_a_kubeconfig_that_is_too_large_is_refused(extra: int) -> None:
    assert "kubeconfig" in refused(secret(kubeconfig=b"k" * (MAXIMUM_KUBECONFIG_BYTES + extra)))


@pytest.mark.parametrize("name", ["namespace", "cluster", "kubeconfig", "user_authorities"])
def test_a_value_that_is_too_large_is_not_decoded(name: str) -> None:
    assert "has more than" in refused(secret(**{name: b"k" * 100_000}))


@pytest.mark.parametrize("name", ["Team", "a/b", "-a", "a" * 64, "a.b", "a\n", "", "é"])
def test_a_namespace_that_cannot_exist_is_refused(name: str) -> None:
    manifest = secret(namespace=name.encode())
    manifest["metadata"]["name"] = connection_name(ClusterKey(name, CLUSTER.name))
    assert "namespace" in refused(manifest)


@pytest.mark.parametrize("name", ["Team", "a/b", "-a", "a" * 254, "a..b", "a\n", "", "é"])
def test_a_cluster_that_cannot_exist_is_refused(name: str) -> None:
    manifest = secret(cluster=name.encode())
    manifest["metadata"]["name"] = connection_name(ClusterKey(CLUSTER.namespace, name))
    assert "cluster" in refused(manifest)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("data"),
        lambda manifest: manifest.pop("metadata"),
        lambda manifest: manifest["metadata"].pop("name"),
        lambda manifest: manifest["data"].pop("kubeconfig"),
        lambda manifest: manifest["data"].update({"kubeconfig2": "YQ=="}),
        lambda manifest: manifest.update(data=[]),
    ],
)
def test_a_secret_with_other_fields_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = secret()
    change(manifest)
    refused(manifest)


def test_nothing_shows_the_credential() -> None:
    assert "secret" not in repr(CONNECTION)
    assert "secret" not in refused(secret(kubeconfig=b"secret") | {"type": "Opaque"})
    assert "hidden" not in refused(secret(user_authorities=b"hidden hidden\n"))


@pytest.mark.parametrize(
    ("cluster", "kubeconfig", "authorities"),
    [
        (ClusterKey("A", "c"), b"k", (authority(),)),
        (ClusterKey("a", "c/d"), b"k", (authority(),)),
        (CLUSTER, b"", (authority(),)),
        (CLUSTER, b"k" * (MAXIMUM_KUBECONFIG_BYTES + 1), (authority(),)),
        (CLUSTER, b"k", ()),
        (CLUSTER, b"k", tuple(map(authority, range(9)))),
        (CLUSTER, b"k", (authority(), authority())),
    ],
)
def test_a_connection_that_could_not_be_read_cannot_be_made(
    cluster: ClusterKey, kubeconfig: bytes, authorities: tuple[PublicKey, ...]
) -> None:
    with pytest.raises(InvalidGatewayConnection):
        GatewayConnection(cluster, kubeconfig, authorities)
