"""Kubeconfigs from Secrets, parsed by allow-list.

A tenant may have written the Secret. client-go's format (``client-go/tools/clientcmd/api/v1``) can name files to read,
programs to run and proxies to use; all of these are refused. Any field that is not on the allow-list is refused, unless
it is empty: client-go takes it for absent. The error names the field and the remedy, never the field's content. What
has one harmless meaning to client-go is read as client-go reads it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attestors.net.kubeconfig import (
    UnusableValue,
    certificates_in,
    decode_base64,
    is_host,
    pem_text,
    server_address,
)
from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.kube.connection import ClusterConnection
from signer.kube.tls import TlsMaterialRefused, client_context

MAXIMUM_KUBECONFIG_BYTES = 64 * 1024

_EXTENSIONS = "extensions"
"""Data of other programs; minikube and others write them."""
_TOP_LEVEL = frozenset(
    {"apiVersion", "kind", "preferences", "current-context", "clusters", "contexts", "users", _EXTENSIONS}
)
_CLUSTER = frozenset(
    {
        "server",
        "certificate-authority-data",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "disable-compression",  # of answers, which are never requested compressed
        "api-version",  # of kubectl before 1.0; ignored since then
        _EXTENSIONS,
    }
)
_CONTEXT = frozenset({"cluster", "user", "namespace", _EXTENSIONS})
_USER = frozenset({"client-certificate-data", "client-key-data", "token", _EXTENSIONS})

_FILES = "files are never read for a kubeconfig from a Secret; embed the content in the field that ends in -data"
_ADVICE: Mapping[str, str] = {
    "exec": "programs are never run for a kubeconfig from a Secret; use a client certificate or a token",
    "auth-provider": "auth providers are not supported; use a client certificate or a token",
    "tokenFile": "files are never read for a kubeconfig from a Secret; use the field token",
    "certificate-authority": _FILES,
    "client-certificate": _FILES,
    "client-key": _FILES,
    "proxy-url": "proxies are not supported; the API server must be reachable directly",
    "username": "basic authentication is not supported; use a client certificate or a token",
    "password": "basic authentication is not supported; use a client certificate or a token",
    "as": "impersonation is not supported; use the credentials of the user itself",
    "as-uid": "impersonation is not supported; use the credentials of the user itself",
    "as-groups": "impersonation is not supported; use the credentials of the user itself",
    "as-user-extra": "impersonation is not supported; use the credentials of the user itself",
}

_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z-]{0,39}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,16384}", re.ASCII)
"""Wider than RFC 6750's b64token: tokens with a colon are in use."""


class KubeconfigRefused(ValueError):
    """A kubeconfig is refused; the message names the field and the remedy, and can be shown to the tenant."""


def parse_kubeconfig(data: bytes) -> ClusterConnection:
    """The connection that the current context of a kubeconfig describes.

    Raises KubeconfigRefused for everything that is not on the allow-list, and no other error, whatever the bytes.
    """
    if len(data) > MAXIMUM_KUBECONFIG_BYTES:
        raise KubeconfigRefused(
            f"the kubeconfig is larger than {MAXIMUM_KUBECONFIG_BYTES // 1024} KiB; remove unused entries"
        )
    try:
        document = load_strict_yaml(data)
    except YamlRefused as refused:
        raise KubeconfigRefused(f"the kubeconfig is not plain YAML: {refused}") from None
    config = _mapping(document, "the kubeconfig")
    _allow_only(config, _TOP_LEVEL, "")
    if (config.get("apiVersion") or "v1") != "v1":
        raise KubeconfigRefused("apiVersion: must be v1, or absent")
    if (config.get("kind") or "Config") != "Config":
        raise KubeconfigRefused("kind: must be Config, or absent")

    context = _named(config, "contexts", "context", _text(config, "current-context", ""))
    _allow_only(context, _CONTEXT, "context.")
    cluster = _named(config, "clusters", "cluster", _text(context, "cluster", "context."))
    user = _named(config, "users", "user", _text(context, "user", "context."))
    return _connection(cluster, user)


def _connection(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ClusterConnection:
    _allow_only(cluster, _CLUSTER, "cluster.")
    _allow_only(user, _USER, "user.")
    if cluster.get("insecure-skip-tls-verify") not in (False, None):
        raise KubeconfigRefused("cluster.insecure-skip-tls-verify: the server is always verified; remove it")
    certificate, key = (_optional(user, name, "user.") for name in ("client-certificate-data", "client-key-data"))
    if (certificate is None) != (key is None):
        raise KubeconfigRefused("user: client-certificate-data and client-key-data come together or not at all")
    token = _token(user)
    if certificate is None and token is None:
        raise KubeconfigRefused(
            "user: holds no credential; give it client-certificate-data and client-key-data, or token"
        )
    connection = ClusterConnection(
        server=_server(cluster),
        certificate_authority=_authority(cluster),
        tls_server_name=_server_name(cluster),
        client_certificate=certificate,
        client_key=key,
        bearer_token=token,
    )
    try:
        # Create the TLS context now: a connection that is returned can be opened.
        return replace(connection, tls=client_context(connection))
    except TlsMaterialRefused as refused:
        raise KubeconfigRefused(f"cluster or user: {refused}") from None


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise KubeconfigRefused(f"{field}: must be a mapping")
    return value


def _allow_only(mapping: Mapping[str, Any], allowed: frozenset[str], prefix: str) -> None:
    for key, value in mapping.items():
        if key not in allowed and not _is_absent(value):
            # An unknown key may be a misplaced secret: only text that looks like a field name is quoted.
            name = key if _FIELD_NAME.fullmatch(key) else "(a field that is no known name)"
            raise KubeconfigRefused(f"{prefix}{name}: {_ADVICE.get(key, 'unknown field; remove it')}")


def _is_absent(value: Any) -> bool:
    """Whether client-go takes a field with this value for an absent one: null, or the type's empty value."""
    return value is None or value is False or value in ("", [], {})


def _text(mapping: Mapping[str, Any], key: str, prefix: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise KubeconfigRefused(f"{prefix}{key}: must be a non-empty string")
    return value


def _named(config: Mapping[str, Any], plural: str, singular: str, wanted: str) -> Mapping[str, Any]:
    """The body of the entry called ``wanted``; the others must only be named entries."""
    entries = config.get(plural)
    if not isinstance(entries, list):
        raise KubeconfigRefused(f"{plural}: must be a list")
    by_name: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name = _text(_mapping(entry, f"{plural}[]"), "name", f"{plural}[].")
        if name in by_name:
            raise KubeconfigRefused(f"{plural}[].name: the same name twice; remove one")
        by_name[name] = entry
    found = by_name.get(wanted)
    if found is None:
        referrer = "current-context" if singular == "context" else f"context.{singular}"
        raise KubeconfigRefused(f"{referrer}: names no entry of {plural}")
    _allow_only(found, frozenset({"name", singular}), f"{plural}[].")
    return _mapping(found.get(singular), singular)


def _optional(mapping: Mapping[str, Any], key: str, prefix: str) -> bytes | None:
    return None if _is_absent(mapping.get(key)) else _decoded(mapping, key, prefix)


def _decoded(mapping: Mapping[str, Any], key: str, prefix: str) -> bytes:
    text = _text(mapping, key, prefix)
    try:
        return decode_base64(text)
    except UnusableValue as error:
        raise KubeconfigRefused(f"{prefix}{key}: {error}") from None


def _authority(cluster: Mapping[str, Any]) -> bytes:
    """The certificates that OpenSSL can read, as PEM without anything else: client-go skips what it cannot read."""
    field = "cluster.certificate-authority-data"
    if _is_absent(cluster.get("certificate-authority-data")):
        raise KubeconfigRefused(f"{field}: is missing; the system's certificates are never trusted")
    try:
        found = certificates_in(_decoded(cluster, "certificate-authority-data", "cluster."))
    except UnusableValue as error:
        raise KubeconfigRefused(f"{field}: {error}") from None
    tried = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # one for all: a hostile kubeconfig has hundreds of PEM blocks
    usable = [certificate for certificate in found if _is_certificate(certificate, tried)]
    if not usable:
        raise KubeconfigRefused(f"{field}: none of its {len(found)} PEM blocks holds a certificate that can be read")
    return "".join(pem_text("CERTIFICATE", certificate) for certificate in usable).encode("ascii")


def _is_certificate(der: bytes, tried: ssl.SSLContext) -> bool:
    try:
        tried.load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError):
        return False
    return True


def _token(user: Mapping[str, Any]) -> str | None:
    if _is_absent(user.get("token")):
        return None
    token = _text(user, "token", "user.").strip()
    if _TOKEN.fullmatch(token) is None:
        raise KubeconfigRefused("user.token: must be visible ASCII characters, without spaces or line ends")
    return token


def _server_name(cluster: Mapping[str, Any]) -> str | None:
    if _is_absent(cluster.get("tls-server-name")):
        return None
    name = _text(cluster, "tls-server-name", "cluster.")
    if not is_host(name):
        raise KubeconfigRefused("cluster.tls-server-name: must be a host name or an IP address")
    return name


def _server(cluster: Mapping[str, Any]) -> str:
    try:
        return server_address(_text(cluster, "server", "cluster."))
    except UnusableValue as error:
        raise KubeconfigRefused(f"cluster.server: {error}") from None
