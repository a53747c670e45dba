from __future__ import annotations

import base64
import copy
import ssl
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from signer.kube.connection import ClusterConnection
from signer.kube.kubeconfig import MAXIMUM_KUBECONFIG_BYTES, KubeconfigRefused, parse_kubeconfig
from tests.unit.signer.kube.support import Authority, Pair, as_yaml, kubeconfig_document

Document = dict[str, Any]


@pytest.fixture
def document(authority: Authority, client_pair: Pair) -> Document:
    return kubeconfig_document(authority, client_pair)


def _cluster(document: Document) -> Document:
    return document["clusters"][0]["cluster"]  # type: ignore[no-any-return]


def _user(document: Document) -> Document:
    return document["users"][0]["user"]  # type: ignore[no-any-return]


def _context(document: Document) -> Document:
    return document["contexts"][0]["context"]  # type: ignore[no-any-return]


def test_a_kubeconfig_of_cluster_api_is_parsed(document: Document, authority: Authority, client_pair: Pair) -> None:
    assert parse_kubeconfig(as_yaml(document)) == ClusterConnection(
        server="https://c1.example:6443",
        certificate_authority=authority.certificate,
        client_certificate=client_pair.certificate,
        client_key=client_pair.key,
    )


def test_a_token_alone_or_beside_a_certificate(document: Document) -> None:
    _user(document)["token"] = "kubeconfig-u-1:abc.def"
    both = parse_kubeconfig(as_yaml(document))
    assert both.bearer_token == "kubeconfig-u-1:abc.def"
    assert both.client_key is not None
    document["users"][0]["user"] = {"token": "abc"}
    alone = parse_kubeconfig(as_yaml(document))
    assert (alone.bearer_token, alone.client_certificate, alone.client_key) == ("abc", None, None)


def test_harmless_optional_fields(document: Document) -> None:
    _cluster(document)["tls-server-name"] = "kubernetes.default"
    _cluster(document)["insecure-skip-tls-verify"] = False
    _context(document)["namespace"] = "default"
    del document["preferences"]
    assert parse_kubeconfig(as_yaml(document)).tls_server_name == "kubernetes.default"


@pytest.mark.parametrize(
    ("server", "read_as"),
    [
        ("https://10.0.0.1", "https://10.0.0.1"),
        ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("HTTPS://c1.example:6443", "https://c1.example:6443"),
        ("https://c1.example.:6443", "https://c1.example.:6443"),
        ("https://c1.example//", "https://c1.example"),
        ("https://C1.example/k8s/clusters/c-m-1/", "https://c1.example/k8s/clusters/c-m-1"),
    ],
)
def test_servers_that_are_accepted(document: Document, server: str, read_as: str) -> None:
    _cluster(document)["server"] = server
    assert parse_kubeconfig(as_yaml(document)).server == read_as


@pytest.mark.parametrize(
    "server",
    [
        "http://c1.example",
        "https://",
        "https://:6443",
        "https://user@c1.example",
        "https://user:pass@c1.example",
        "https://c1.example?x=y",
        "https://c1.example?",
        "https://c1.example#x",
        "https://c1.example:0",
        "https://c1.example:",
        "https://c1.example:65536",
        "https://c1.example:x",
        "https://c1.example/../x",
        "https://c1.example/a//b",
        "https://c1.example/%2e%2e",
        "https://c1.example\\@evil.example",
        "https://c1.example /",
        "https://c1.example\n",
        "https://cé.example",
        "https://[fd00::1",
        "https://[fe80::1%25eth0]",
        "https://[v1.x]",
        "https://-c1.example",
        "https://c1..example",
        "file:///etc/passwd",
        "c1.example:6443",
        "",
    ],
)
def test_servers_that_are_refused(document: Document, server: str) -> None:
    _cluster(document)["server"] = server
    with pytest.raises(KubeconfigRefused, match=r"cluster\.server"):
        parse_kubeconfig(as_yaml(document))


SECRET = "s3cr3t-value"
USER_FIELDS: dict[str, Any] = {
    "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": SECRET},
    "auth-provider": {"name": SECRET},
    "tokenFile": SECRET,
    "client-certificate": SECRET,
    "client-key": SECRET,
    "username": SECRET,
    "password": SECRET,
    "as": SECRET,
    "as-uid": SECRET,
    "as-groups": [SECRET],
    "as-user-extra": {"a": [SECRET]},
    "impersonate-user": SECRET,
}
CLUSTER_FIELDS: dict[str, Any] = {
    "certificate-authority": SECRET,
    "proxy-url": f"https://{SECRET}",
    "insecure-skip-tls-verify": True,
    "compression": True,
}


@pytest.mark.parametrize("field", USER_FIELDS)
def test_user_fields_that_are_refused(document: Document, field: str) -> None:
    _user(document)[field] = USER_FIELDS[field]
    with pytest.raises(KubeconfigRefused, match=rf"^user\.{field}: ") as refused:
        parse_kubeconfig(as_yaml(document))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("empty", [None, "", [], {}, False])
def test_an_empty_field_is_an_absent_one(document: Document, empty: Any) -> None:
    """To client-go; other programs write fields that they do not use."""
    expected = parse_kubeconfig(as_yaml(document))
    _user(document).update({name: copy.copy(empty) for name in (*USER_FIELDS, "token")})
    _cluster(document).update({name: copy.copy(empty) for name in (*CLUSTER_FIELDS, "tls-server-name")})
    _cluster(document)["insecure-skip-tls-verify"] = False
    assert parse_kubeconfig(as_yaml(document)) == expected


def test_an_empty_credential_is_none(document: Document) -> None:
    document["users"][0]["user"] = {"token": "", "client-certificate-data": "", "client-key-data": None}
    with pytest.raises(KubeconfigRefused, match="holds no credential"):
        parse_kubeconfig(as_yaml(document))


@pytest.mark.parametrize("field", CLUSTER_FIELDS)
def test_cluster_fields_that_are_refused(document: Document, field: str) -> None:
    _cluster(document)[field] = CLUSTER_FIELDS[field]
    with pytest.raises(KubeconfigRefused, match=rf"^cluster\.{field}: ") as refused:
        parse_kubeconfig(as_yaml(document))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("value", ["false", "no", 0, [], ""])
def test_only_a_boolean_false_skips_nothing(document: Document, value: Any) -> None:
    _cluster(document)["insecure-skip-tls-verify"] = value
    with pytest.raises(KubeconfigRefused, match="insecure-skip-tls-verify"):
        parse_kubeconfig(as_yaml(document))


Change = Callable[[Document], None]


def _set(field: str, value: Any) -> Change:
    return lambda document: document.__setitem__(field, value)


def _drop(field: str) -> Change:
    return lambda document: document.__delitem__(field)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("apiVersion", "v2"), "^apiVersion: must be v1, or absent$"),
        (_set("kind", "Secret"), "^kind: must be Config, or absent$"),
        (_set("current-context", ""), "current-context"),
        (_drop("current-context"), "current-context"),
        (_set("current-context", ["a"]), "current-context"),
        (_set("current-context", "other"), "current-context: names no entry of contexts"),
        (_set("clusters", {}), "clusters: must be a list"),
        (_set("clusters", []), "context.cluster: names no entry"),
        (_drop("users"), "users: must be a list"),
        (_set("users", []), "context.user: names no entry"),
        (lambda d: d["users"].append("x"), r"users\[\]: must be a mapping"),
        (lambda d: d["users"].append({"user": {}}), r"users\[\].name"),
        (lambda d: d["users"].append({"name": "c1-admin", "user": {}}), "same name twice"),
        (lambda d: d["clusters"].append(copy.deepcopy(d["clusters"][0])), "same name twice"),
        (lambda d: d["users"][0].__setitem__("exec", {"a": "b"}), r"users\[\].exec"),
        (lambda d: d["users"][0].__setitem__("user", None), "user: must be a mapping"),
        (lambda d: d["users"][0].__setitem__("user", {}), "holds no credential"),
        (lambda d: _context(d).__delitem__("user"), "context.user"),
        (lambda d: _cluster(d).__delitem__("certificate-authority-data"), "certificate-authority-data: is missing"),
        (lambda d: _cluster(d).__setitem__("certificate-authority-data", "AAAA"), "holds no PEM certificate"),
        (lambda d: _cluster(d).__setitem__("certificate-authority-data", "not base64!"), "base64"),
        (lambda d: _cluster(d).__setitem__("tls-server-name", "a b"), "tls-server-name"),
        (lambda d: _cluster(d).__setitem__("tls-server-name", ["a"]), "tls-server-name"),
        (lambda d: _cluster(d).__setitem__("tls-server-name", "fe80::1%eth0"), "tls-server-name"),
        (lambda d: _context(d).__setitem__("proxy", "x"), "context.proxy: unknown field"),
        (lambda d: _cluster(d).__setitem__("tls-server-name", "a" * 64 + ".example"), "tls-server-name"),
        (lambda d: _user(d).__delitem__("client-key-data"), "come together"),
        (lambda d: _user(d).__delitem__("client-certificate-data"), "come together"),
        (lambda d: _user(d).__setitem__("token", "a\r\nX-Remote-User: b"), "user.token"),
        (lambda d: _user(d).__setitem__("token", ["a"]), "user.token"),
        (lambda d: _user(d).__setitem__("token", "a b"), "user.token"),
    ],
)
def test_other_refused_fields(document: Document, change: Change, message: str) -> None:
    change(document)
    with pytest.raises(KubeconfigRefused, match=message):
        parse_kubeconfig(as_yaml(document))


def test_base64_is_strict(document: Document) -> None:
    encoded = _user(document)["client-key-data"]
    for bad in (
        encoded + " ",
        " " + encoded,
        f"{encoded[:40]} {encoded[40:]}",
        encoded.rstrip("=") + "===",
        "é",
        "-_==",
    ):
        _user(document)["client-key-data"] = bad
        with pytest.raises(KubeconfigRefused, match=r"user\.client-key-data"):
            parse_kubeconfig(as_yaml(document))


def test_base64_may_be_in_lines(document: Document) -> None:
    expected = parse_kubeconfig(as_yaml(document))
    for mapping, field in (
        (_user(document), "client-key-data"),
        (_user(document), "client-certificate-data"),
        (_cluster(document), "certificate-authority-data"),
    ):
        mapping[field] = "\r\n".join(textwrap.wrap(mapping[field], 76)) + "\n"
    assert parse_kubeconfig(as_yaml(document)) == expected


def test_a_key_of_another_certificate_is_refused(document: Document, authority: Authority) -> None:
    other = authority.issue("other").key
    _user(document)["client-key-data"] = base64.b64encode(other).decode()
    with pytest.raises(KubeconfigRefused, match="cannot be used"):
        parse_kubeconfig(as_yaml(document))


def test_an_encrypted_key_is_refused_without_asking_for_its_password(document: Document, authority: Authority) -> None:
    pair = authority.issue("encrypted", password=b"password")
    _user(document)["client-certificate-data"] = base64.b64encode(pair.certificate).decode()
    _user(document)["client-key-data"] = base64.b64encode(pair.key).decode()
    with pytest.raises(KubeconfigRefused, match="unencrypted"):
        parse_kubeconfig(as_yaml(document))


def test_a_broken_certificate_authority_is_refused(document: Document) -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    _cluster(document)["certificate-authority-data"] = base64.b64encode(broken).decode()
    with pytest.raises(KubeconfigRefused, match="none of its 1 PEM blocks holds a certificate"):
        parse_kubeconfig(as_yaml(document))


def test_only_the_certificates_of_an_authority_are_kept(document: Document, authority: Authority) -> None:
    """A comment in another language and a key are no certificates; one that cannot be read is skipped."""
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    key = authority.issue("other").key
    text = "# \u0160koda\r\n".encode() + broken + key + authority.certificate.replace(b"\n", b"\r\n")
    _cluster(document)["certificate-authority-data"] = base64.b64encode(text).decode()
    assert parse_kubeconfig(as_yaml(document)).certificate_authority == authority.certificate


def test_hundreds_of_blocks_cost_one_context(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a third of a millisecond of the event loop, which all tenants share."""
    created = []

    class Counted(ssl.SSLContext):
        def __new__(cls, protocol: int) -> Counted:
            created.append(protocol)
            return super().__new__(cls, protocol)

    monkeypatch.setattr(ssl, "SSLContext", Counted)
    block = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    _cluster(document)["certificate-authority-data"] = base64.b64encode(block * 500).decode()
    with pytest.raises(KubeconfigRefused, match="none of its 500 PEM blocks"):
        parse_kubeconfig(as_yaml(document))
    assert len(created) == 1


def test_entries_of_other_contexts_are_neither_believed_nor_needed(document: Document) -> None:
    document["users"].append({"name": "other", "user": {"exec": {"command": "/bin/false"}}})
    document["users"].append({"name": "third"})
    document["clusters"].append({"name": "other", "cluster": {"server": "http://evil.example"}, "x": 1})
    document["contexts"].append({"name": "other", "context": None})
    assert parse_kubeconfig(as_yaml(document)).server == "https://c1.example:6443"


def test_a_key_that_may_be_a_secret_is_not_repeated(document: Document) -> None:
    _user(document)["token:s3cr3t"] = "x"
    with pytest.raises(KubeconfigRefused) as refused:
        parse_kubeconfig(as_yaml(document))
    assert "s3cr3t" not in str(refused.value)


def test_size_is_bounded_before_anything_is_parsed() -> None:
    with pytest.raises(KubeconfigRefused, match="64 KiB"):
        parse_kubeconfig(b"[" * (MAXIMUM_KUBECONFIG_BYTES + 1))


def test_aliases_are_refused(document: Document) -> None:
    raw = as_yaml(document).replace(b"preferences: {}", b"preferences: &a {}")
    with pytest.raises(KubeconfigRefused, match="anchors"):
        parse_kubeconfig(raw)


def test_secrets_are_not_in_the_representation(document: Document) -> None:
    _user(document)["token"] = SECRET
    connection = parse_kubeconfig(as_yaml(document))
    assert SECRET not in repr(connection)
    assert "PRIVATE" not in repr(connection)


@given(st.binary(max_size=3000))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(KubeconfigRefused):
        parse_kubeconfig(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, document: Document) -> Document:
    """``document`` with up to three values replaced, removed or added, anywhere."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        node: Any = changed
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(node[key], (dict, list)) and draw(st.booleans()):
                node = node[key]
                continue
            match draw(st.sampled_from(["replace", "remove", "add"])):
                case "replace":
                    node[key] = draw(json_values)
                case "remove":
                    del node[key]
                case _ if isinstance(node, dict):
                    known = sorted({*USER_FIELDS, *CLUSTER_FIELDS, "token", "namespace"})
                    node[draw(st.sampled_from(known) | st.text(max_size=10))] = draw(json_values)
                case _:
                    node.append(draw(json_values))
            break
    return changed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_mutated_kubeconfigs_are_read_or_refused(data: st.DataObject, document: Document) -> None:
    changed = data.draw(mutated(document))
    try:
        connection = parse_kubeconfig(as_yaml(changed))
    except KubeconfigRefused:
        return
    assert connection.server.startswith("https://")
    assert connection.bearer_token is not None or connection.client_key is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_kubeconfigs_with_changed_bytes_are_read_or_refused(data: st.DataObject, document: Document) -> None:
    raw = bytearray(as_yaml(document))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        connection = parse_kubeconfig(bytes(raw))
    except KubeconfigRefused:
        return
    assert isinstance(connection, ClusterConnection)
