"""Kubeconfigs from Secrets, parsed by allow-list.

A tenant may have written the Secret. client-go's format (``client-go/tools/clientcmd/api/v1``) can name files to read,
programs to run and proxies to use; all of these are refused. Any field that is not on the allow-list is refused. The
error names the field and the remedy, never the field's content.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from signer.kube.connection import ClusterConnection
from signer.kube.strict_yaml import YamlRefused, load_strict_yaml
from signer.kube.tls import TlsMaterialRefused, client_context

MAXIMUM_KUBECONFIG_BYTES = 64 * 1024

_TOP_LEVEL = frozenset({"apiVersion", "kind", "preferences", "current-context", "clusters", "contexts", "users"})
_CLUSTER = frozenset({"server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify"})
_CONTEXT = frozenset({"cluster", "user", "namespace"})
_USER = frozenset({"client-certificate-data", "client-key-data", "token"})

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
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_MAXIMUM_LABEL_BYTES = 63
"""RFC 1035 section 2.3.4; TLS can neither name nor verify a server with a longer label."""
_PATH_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*/?", re.ASCII)
_SERVER_CHARACTERS = re.compile(r"[!-~]{1,1024}", re.ASCII)
_TOKEN = re.compile(r"[!-~]{1,16384}", re.ASCII)
"""Wider than RFC 6750's b64token: tokens with a colon are in use."""
_PEM_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


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
    if config.get("apiVersion") != "v1" or config.get("kind") != "Config":
        raise KubeconfigRefused("apiVersion and kind: must be v1 and Config")
    if config.get("preferences"):
        raise KubeconfigRefused("preferences: must be empty; remove it")

    context = _named(config, "contexts", "context", _text(config, "current-context", ""))
    _allow_only(context, _CONTEXT, "context.")
    if "namespace" in context:
        _text(context, "namespace", "context.")
    cluster = _named(config, "clusters", "cluster", _text(context, "cluster", "context."))
    user = _named(config, "users", "user", _text(context, "user", "context."))
    return _connection(cluster, user)


def _connection(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ClusterConnection:
    _allow_only(cluster, _CLUSTER, "cluster.")
    _allow_only(user, _USER, "user.")
    if cluster.get("insecure-skip-tls-verify", False) is not False:
        raise KubeconfigRefused("cluster.insecure-skip-tls-verify: the server is always verified; remove it")
    if ("client-certificate-data" in user) != ("client-key-data" in user):
        raise KubeconfigRefused("user: client-certificate-data and client-key-data come together or not at all")
    if "client-certificate-data" not in user and "token" not in user:
        raise KubeconfigRefused(
            "user: holds no credential; give it client-certificate-data and client-key-data, or token"
        )
    authority = _decoded(cluster, "certificate-authority-data", "cluster.")
    if _PEM_CERTIFICATE not in authority:
        raise KubeconfigRefused("cluster.certificate-authority-data: holds no PEM certificate")
    connection = ClusterConnection(
        server=_server(_text(cluster, "server", "cluster.")),
        certificate_authority=authority,
        tls_server_name=_server_name(cluster),
        client_certificate=_decoded(user, "client-certificate-data", "user.")
        if "client-certificate-data" in user
        else None,
        client_key=_decoded(user, "client-key-data", "user.") if "client-key-data" in user else None,
        bearer_token=_token(user),
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
    for key in mapping:
        if key not in allowed:
            # An unknown key may be a misplaced secret: only text that looks like a field name is quoted.
            name = key if _FIELD_NAME.fullmatch(key) else "(a field that is no known name)"
            raise KubeconfigRefused(f"{prefix}{name}: {_ADVICE.get(key, 'unknown field; remove it')}")


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


def _decoded(mapping: Mapping[str, Any], key: str, prefix: str) -> bytes:
    text = _text(mapping, key, prefix)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise KubeconfigRefused(f"{prefix}{key}: must be base64 (RFC 4648 section 4) on one line") from None
    if base64.b64encode(raw) != text.encode("ascii"):
        raise KubeconfigRefused(f"{prefix}{key}: must be canonical base64 (RFC 4648 section 3.5)")
    return raw


def _token(user: Mapping[str, Any]) -> str | None:
    if "token" not in user:
        return None
    token = _text(user, "token", "user.")
    if _TOKEN.fullmatch(token) is None:
        raise KubeconfigRefused("user.token: must be visible ASCII characters, without spaces or line ends")
    return token


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host).scope_id is None
        except ValueError:
            return False
    if _HOST_NAME.fullmatch(host) is None:
        return False
    return all(0 < len(label) <= _MAXIMUM_LABEL_BYTES for label in host.split("."))


def _server_name(cluster: Mapping[str, Any]) -> str | None:
    if "tls-server-name" not in cluster:
        return None
    name = _text(cluster, "tls-server-name", "cluster.")
    if not _is_host(name):
        raise KubeconfigRefused("cluster.tls-server-name: must be a host name or an IP address")
    return name


def _server(url: str) -> str:
    """``https://host[:port][/prefix]`` without a trailing slash; RFC 3986, without its optional parts."""
    remedy = KubeconfigRefused(
        "cluster.server: must be https://host[:port][/prefix], without user, query or fragment; correct the address"
    )
    if _SERVER_CHARACTERS.fullmatch(url) is None or not url.startswith("https://") or set(url) & set("@?#%\\"):
        raise remedy
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise remedy from None
    if not host or not _is_host(host) or port == 0 or _PATH_PREFIX.fullmatch(parts.path) is None:
        raise remedy
    if parts.netloc.endswith(":") or ("[" in parts.netloc) != (":" in host):
        raise remedy
    if any(part in {".", ".."} for part in parts.path.split("/")):
        raise remedy
    authority = f"[{host}]" if ":" in host else host
    return f"https://{authority}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
