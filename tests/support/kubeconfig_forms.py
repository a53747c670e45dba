"""Kubeconfigs in the forms that other tools write, and what client-go, the node and the controller make of each."""

from __future__ import annotations

import base64
import copy
import json
import textwrap
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.support.yaml_documents import safe_load

READ: Final = ""
"""The form is read as the plain one is."""
_ABSENT: Final = object()
_BROKEN: Final = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
_MISSING: Final = "/nonexistent/file"


@dataclass(frozen=True, slots=True)
class Form:
    """One kubeconfig."""

    name: str
    text: bytes
    client_go: bool
    """Whether the real client-go (kubectl 1.37) reaches the API server with it."""
    node: str
    """What the node's message has to say, or that the node reads it."""
    controller: str
    """The same for the controller."""


@dataclass(frozen=True, slots=True)
class Forms:
    """Makes kubeconfigs for one API server."""

    server: str
    certificate_authority: bytes
    token: str

    def plain(self, **top: Any) -> bytes:
        """The plain form: what kubeadm writes. ``top`` replaces keys of the document."""
        return self._with({}, {}, {}, top)

    def cluster(self, **fields: Any) -> bytes:
        """With other fields of the cluster; underscores stand for dashes."""
        return self._with(fields, {}, {}, {})

    def user(self, **fields: Any) -> bytes:
        """With other fields of the user."""
        return self._with({}, fields, {}, {})

    def authority(self, pem: bytes) -> bytes:
        """With another CA."""
        return self.cluster(certificate_authority_data=_base64(pem))

    def _with(
        self, cluster: dict[str, Any], user: dict[str, Any], context: dict[str, Any], top: dict[str, Any]
    ) -> bytes:
        target = {"server": self.server, "certificate-authority-data": _base64(self.certificate_authority)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": target | _dashed(cluster)}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
            "current-context": "c",
            "users": [{"name": "u", "user": {"token": self.token} | _dashed(user)}],
            **_dashed(top),
        }
        return yaml.safe_dump({key: value for key, value in document.items() if value is not _ABSENT}).encode()

    def all(self) -> tuple[Form, ...]:
        """The table."""
        return (*self._documents(), *self._fields(), *self._base64(), *self._authorities(), *self._servers())

    def _documents(self) -> list[Form]:
        plain = self.plain()
        user: dict[str, Any] = {"name": "u", "user": {"token": self.token}}
        return [
            Form("plain", plain, True, READ, READ),
            Form("json", json.dumps(safe_load(plain)).encode(), True, READ, READ),
            Form("no kind", self.plain(kind=_ABSENT), True, READ, READ),
            Form("no apiVersion", self.plain(apiVersion=_ABSENT), True, READ, READ),
            Form("neither", self.plain(kind=_ABSENT, apiVersion=_ABSENT), True, READ, READ),
            Form("kind null", self.plain(kind=None), True, READ, READ),
            Form("another kind", self.plain(kind="config"), False, "kind must be Config", "^kind: must be Config"),
            Form("another version", self.plain(apiVersion="v2"), False, "and apiVersion v1", "^apiVersion: must be v1"),
            Form("crlf", plain.replace(b"\n", b"\r\n"), True, READ, READ),
            Form("tabs behind lines", plain.replace(b"\n", b"\t\n"), True, READ, READ),
            Form("byte order mark", b"\xef\xbb\xbf" + plain, True, READ, READ),
            Form("utf-16", plain.decode().encode("utf-16"), True, READ, READ),
            Form("--- before", b"---\n" + plain, True, READ, READ),
            Form("--- behind", plain + b"---\n", True, READ, READ),
            Form("two documents", plain + b"---\n" + plain, True, "more than one document", "more than one document"),
            Form("repeated key", plain + b"kind: Config\n", True, "key appears twice", "key appears twice"),
            Form("anchor", plain.replace(b"d: Config", b"d: &k Config"), True, "anchors and", "anchors and"),
            Form("tag", plain.replace(b"d: Config", b"d: !!str Config"), True, "explicit tags", "explicit tags"),
            Form("no document", b"", False, "it is empty", "it is empty"),
            Form("extensions", self.plain(extensions=[{"name": "x", "extension": {}}]), True, READ, READ),
            Form("preferences", self.plain(preferences={"colors": True}), True, READ, READ),
            Form("unknown field", self.plain(colour="red"), True, READ, "^colour: unknown field; remove it"),
            Form(
                "no current-context", self.plain(current_context=_ABSENT), False, "current-context is", "current-cont"
            ),
            Form("another user", self.plain(users=[user, {"name": "x", "user": {"exec": {}}}]), True, READ, READ),
            Form(
                "a user twice",
                self.plain(users=[user, copy.deepcopy(user)]),
                False,
                "names 2 of the users",
                "same name twice",
            ),
            Form(
                "context extensions",
                self._with({}, {}, {"extensions": [{"name": "x", "extension": {"a": 1}}], "namespace": "default"}, {}),
                True,
                READ,
                READ,
            ),
        ]

    def _fields(self) -> list[Form]:
        extensions = [{"name": "minikube.sigs.k8s.io", "extension": {"last-update": "Mon"}}]
        impersonation: dict[str, Any] = {"as": None, "as-uid": "", "as-groups": [], "as-user-extra": {}}
        return [
            Form("disable-compression", self.cluster(disable_compression=True), True, READ, READ),
            Form("cluster extensions", self.cluster(extensions=extensions), True, READ, READ),
            Form("api-version", self.cluster(api_version="v1"), True, READ, READ),
            Form("user extensions", self.user(extensions=extensions), True, READ, READ),
            Form("insecure null", self.cluster(insecure_skip_tls_verify=None), True, READ, READ),
            Form("insecure false", self.cluster(insecure_skip_tls_verify=False), True, READ, READ),
            Form("insecure", self.cluster(insecure_skip_tls_verify=True), False, "^insecure-skip", "cluster.insecure"),
            Form("no proxy", self.cluster(proxy_url=""), True, READ, READ),
            Form(
                "proxy", self.cluster(proxy_url="http://192.0.2.1:1"), False, "^proxy-url: prox", "cluster.proxy-url:"
            ),
            Form("no exec", self.user(exec=None, auth_provider=None), True, READ, READ),
            Form("exec", self.user(exec={"command": "x"}), False, "^exec is not supported", "^user.exec: programs are"),
            Form("no password", self.user(username="", password=""), True, READ, READ),
            Form("password", self.user(username="a", password="b"), False, "^username is not", "^user.(user|pass)"),
            Form("no impersonation", self.user(**impersonation), True, READ, READ),
            Form("no token file", self.user(tokenFile=""), True, READ, READ),
            Form("token file", self.user(tokenFile=_MISSING), True, READ, "^user.tokenFile: files are never read"),
            Form("no certificates", self.user(client_certificate_data="", client_key_data=None), True, READ, READ),
            Form("no files", self.user(client_certificate="", client_key=""), True, READ, READ),
            Form("no CA file", self.cluster(certificate_authority=""), True, READ, READ),
            Form("CA file and data", self.cluster(certificate_authority=_MISSING), False, READ, "files are never read"),
            Form("token with spaces", self.user(token=f" {self.token} "), True, READ, READ),
            Form("token with a line end", self.user(token=f"{self.token}\n"), False, READ, READ),
            Form("token of two lines", self.user(token="a\nb"), False, "^token must be printable", "^user.token: must"),
            Form("no credential", self.user(token=None), False, "neither a token nor", "holds no credential"),
        ]

    def _base64(self) -> list[Form]:
        data = _base64(self.certificate_authority)
        field, lines = "certificate-authority-data: ", textwrap.wrap(data, 64)
        plain = self.plain().decode()
        assert f"{field}{data}" in plain

        def scalar(indicator: str) -> bytes:
            text = "".join(f"\n      {line}" for line in lines)
            return plain.replace(f"{field}{data}", f"{field}{indicator}{text}").encode()

        spaced = self.cluster(certificate_authority_data=" ".join(lines))
        short = self.cluster(certificate_authority_data=_base64(self.certificate_authority + b"\n" * 5)[:-1])
        url = self.cluster(certificate_authority_data=data[:-1] + "_")
        return [
            Form("lines", self.cluster(certificate_authority_data="\n".join(lines) + "\n"), True, READ, READ),
            Form("crlf lines", self.cluster(certificate_authority_data="\r\n".join(lines)), True, READ, READ),
            Form("literal scalar", scalar("|"), True, READ, READ),
            Form("folded scalar", scalar(">"), False, "must begin with |", "must begin with |"),
            Form("plain scalar in lines", scalar(""), False, "has spaces in its base64", "has spaces in its base64"),
            Form("spaces", spaced, False, "has spaces in its base64", "has spaces in its base64"),
            Form("cut off", short, False, "^certificate-authority-data is base64 that is cut", "is base64 that is cut"),
            Form("url alphabet", url, False, "must be base64", "must be base64"),
        ]

    def _authorities(self) -> list[Form]:
        pem = self.certificate_authority
        no_pem = "holds no PEM certificate"
        labelled = pem.replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE")
        headers = pem.replace(b"-----\n", b"-----\nComment: x\n\n", 1)
        key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
        one_line = b"".join(pem.splitlines()[1:-1])
        return [
            Form("UTF-8 comment", self.authority("# \u0160koda\n".encode() + pem), True, READ, READ),
            Form("Latin-2 comment", self.authority("# \u0160koda\n".encode("iso8859-2") + pem), True, READ, READ),
            Form("crlf CA", self.authority(pem.replace(b"\n", b"\r\n")), True, READ, READ),
            Form(
                "CA with a long line",
                self.authority(b"-----BEGIN CERTIFICATE-----\n" + one_line + b"\n-----END CERTIFICATE-----"),
                True,
                READ,
                READ,
            ),
            Form("CA twice", self.authority(pem + pem), True, READ, READ),
            Form("CA behind a broken one", self.authority(_BROKEN + pem), True, READ, READ),
            Form("CA before a broken one", self.authority(pem + _BROKEN), True, READ, READ),
            Form("CA and a key", self.authority(key + pem), True, READ, READ),
            Form("CA and the beginning of one", self.authority(pem + _BROKEN[:30]), True, READ, READ),
            Form(
                "only a broken one", self.authority(_BROKEN), False, "1 of its 1 certificates are", "none of its 1 PEM"
            ),
            Form("CA without line ends", self.authority(pem.replace(b"\n", b" ")), False, no_pem, no_pem),
            Form("CA indented", self.authority(b"  " + pem.replace(b"\n", b"\n  ")), False, no_pem, no_pem),
            Form("CA behind a mark", self.authority(b"\xef\xbb\xbf" + pem), False, no_pem, no_pem),
            Form("CA of another label", self.authority(labelled), False, no_pem, no_pem),
            Form("CA with headers", self.authority(headers), False, no_pem, no_pem),
            Form("no PEM", self.authority(b"text"), False, no_pem, no_pem),
            Form("no CA", self.cluster(certificate_authority_data=None), False, "data is missing", "data: is missing"),
        ]

    def _servers(self) -> list[Form]:
        address = self.server.removeprefix("https://")

        def at(server: object) -> bytes:
            return self.cluster(server=server)

        malformed = "has a malformed host or port"
        return [
            Form("HTTPS://", at(f"HTTPS://{address}"), True, READ, READ),
            Form("slash", at(f"{self.server}/"), True, READ, READ),
            Form("slashes", at(f"{self.server}//"), True, READ, READ),
            Form("no scheme", at(address), False, "^server: has no scheme", "^cluster.server: has no scheme"),
            Form("http://", at(f"http://{address}"), False, "must begin with https://", "must begin with https://"),
            Form("user", at(f"https://u@{address}"), False, "has a user", "has a user"),
            Form("query", at(f"{self.server}?a=b"), True, "has a query", "has a query"),
            Form("fragment", at(f"{self.server}#a"), True, "has a fragment", "has a fragment"),
            Form("service name", at("https://127.0.0.1:https"), False, malformed, malformed),
            Form("spaces around", at(f" {self.server}"), False, "without white space", "without white space"),
            Form("line end", at(f"{self.server}\n"), False, "without white space", "without white space"),
            Form("no server", at(""), False, "^server: must be https", "^cluster.server: must be"),
            Form("list as server", at([self.server]), False, "^server must be a string", "^cluster.server: must be"),
            Form("name", self.cluster(tls_server_name="localhost"), True, READ, READ),
            Form("name with the root's dot", self.cluster(tls_server_name="localhost."), True, READ, READ),
            Form("no name", self.cluster(tls_server_name=None), True, READ, READ),
        ]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _dashed(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields.items()}
