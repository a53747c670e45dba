"""Kubeconfigs on the node: the bootstrap kubeconfig, which is read, and the one with the exec stanza, which is written.

Format: ``staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go``, read as client-go reads it. A bootstrap
kubeconfig that holds more than server, CA and one credential is refused: if this program ignored a proxy or an exec
plugin, it would act differently from what the file says. Other fields mean nothing for it, and are ignored.
"""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import yaml

from attestors.net.kubeconfig import (
    UnusableValue,
    certificates_in,
    decode_base64,
    is_host,
    pem_text,
    private_key_in,
    server_address,
)
from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from authenticator.model.chain import is_readable
from authenticator.model.cluster import BearerToken, Bootstrap, ClientCertificate, Cluster, Credential, InvalidCluster
from authenticator.model.exec_credential import API_VERSIONS, INFO_VARIABLE, KIND

MAXIMUM_KUBECONFIG_BYTES: Final = 512 * 1024
"""A company's whole trust store, 220 KiB, takes 300 KiB in base64."""
MAXIMUM_EXEC_INFO_BYTES: Final = 128 * 1024
"""The longest string that Linux takes in a new program's environment: MAX_ARG_STRLEN, 32 pages (execve(2)). Some
machines have larger pages; the smallest count."""
EXEC_API_VERSIONS: Final = API_VERSIONS
PROGRAM: Final = "kubelet-authenticator"

_CLUSTER_NAME: Final = "workload"
_USER_NAME: Final = "kubelet"
_UNUSED_CLUSTER_FIELDS: Final = {
    "insecure-skip-tls-verify": "the API server must be verified; give certificate-authority-data",
    "proxy-url": "proxies are not supported; the API server must be reachable directly",
}
_UNUSED_USER_FIELDS: Final = ("exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups")

ReadFile = Callable[[str], bytes]
"""Reads a file named in a kubeconfig; raises OSError."""


class UnusableKubeconfig(ValueError):
    """The kubeconfig is unusable; the message names the field and the remedy, and holds no secret."""


def parse_bootstrap(data: bytes, read_file: ReadFile) -> Bootstrap:
    """The cluster and the credential of the current context.

    Raises:
        UnusableKubeconfig: it is not a kubeconfig, names no API server with a CA, or holds no token or certificate.
    """
    document = _document(data)
    context = _context(document)
    cluster = _cluster(_named(document, "clusters", "cluster", context.get("cluster")), read_file)
    user = _named(document, "users", "user", context.get("user"))
    return Bootstrap(cluster, _credential(user, read_file))


def cluster_of_kubeconfig(data: bytes, read_file: ReadFile) -> Cluster:
    """The cluster of the current context, regardless of its user.

    Raises:
        UnusableKubeconfig: it names no API server with a CA.
    """
    document = _document(data)
    return _cluster(_named(document, "clusters", "cluster", _context(document).get("cluster")), read_file)


def cluster_of_exec_info(info: Mapping[str, object]) -> Cluster:
    """The cluster that client-go passes to a plugin (``spec.cluster`` of ExecCredential, with the same fields).

    Raises:
        UnusableKubeconfig: the connection is not verified, or goes through a proxy.
    """
    return _cluster(info, _no_file)


def exec_kubeconfig(
    cluster: Cluster, *, authority_file: str, command: str, arguments: Sequence[str], api_version: str
) -> str:
    """A kubeconfig for a kubelet, whose user is this program.

    The CA is in ``authority_file``: client-go reads that again from Kubernetes 1.36 on, and never inline data. With
    ``provideClusterInfo`` the plugin is told of the cluster that the running kubelet has, unless the CA is too large
    (:func:`exec_info_bytes`); then the plugin reads this file.
    """
    target = {"server": cluster.server, "certificate-authority": authority_file}
    if cluster.tls_server_name:
        target["tls-server-name"] = cluster.tls_server_name
    plugin = {
        "apiVersion": api_version,
        "command": command,
        "args": list(arguments),
        "interactiveMode": "Never",
        "provideClusterInfo": exec_info_bytes(cluster, api_version) <= MAXIMUM_EXEC_INFO_BYTES,
    }
    context = f"{_USER_NAME}@{_CLUSTER_NAME}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER_NAME, "cluster": target}],
        "users": [{"name": _USER_NAME, "user": {"exec": plugin}}],
        "contexts": [{"name": context, "context": {"cluster": _CLUSTER_NAME, "user": _USER_NAME}}],
        "current-context": context,
    }
    return f"# Written by {PROGRAM} prepare.\n{yaml.safe_dump(document, sort_keys=False)}"


def exec_info_bytes(cluster: Cluster, api_version: str) -> int:
    """How much of the environment client-go needs to tell the plugin of the cluster, with the terminating zero byte.

    It reads the CA's file, and passes it in base64 and JSON (``rest.ConfigToExecCluster`` in client-go).
    """
    target = {
        "server": cluster.server,
        **({"tls-server-name": cluster.tls_server_name} if cluster.tls_server_name else {}),
        "certificate-authority-data": base64.b64encode(cluster.certificate_authority.encode("ascii")).decode("ascii"),
        "config": None,
    }
    info = {"kind": KIND, "apiVersion": api_version, "spec": {"cluster": target, "interactive": False}}
    return len(f"{INFO_VARIABLE}={json.dumps(info, separators=(',', ':'))}\n\0")


def runs_this_program(data: bytes) -> bool:
    """Whether all users of a kubeconfig are this program, so that :func:`exec_kubeconfig` may replace the file."""
    try:
        users = _document(data).get("users")
    except UnusableKubeconfig:
        return False
    if not isinstance(users, list) or not users:
        return False
    return all(_command(user).rpartition("/")[2] == PROGRAM for user in users)


def _command(user: object) -> str:
    for field in ("user", "exec", "command"):
        user = user.get(field) if isinstance(user, Mapping) else None
    return user if isinstance(user, str) else ""


def _document(data: bytes) -> Mapping[str, Any]:
    if len(data) > MAXIMUM_KUBECONFIG_BYTES:
        raise UnusableKubeconfig(f"it is larger than {MAXIMUM_KUBECONFIG_BYTES} bytes")
    try:
        document = load_strict_yaml(data)
    except YamlRefused as refused:
        raise UnusableKubeconfig(f"it is not plain YAML: {refused}") from None
    if not isinstance(document, dict):
        raise UnusableKubeconfig("it is not a kubeconfig, which is a mapping")
    if (document.get("kind") or "Config") != "Config" or (document.get("apiVersion") or "v1") != "v1":
        raise UnusableKubeconfig("it is not a kubeconfig: kind must be Config and apiVersion v1, or absent")
    return document


def _context(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return _named(document, "contexts", "context", document.get("current-context"))


def _named(document: Mapping[str, Any], listing: str, field: str, name: object) -> Mapping[str, Any]:
    referrer = "current-context" if listing == "contexts" else f"the current context's {field}"
    if not isinstance(name, str) or not name:
        raise UnusableKubeconfig(f"{referrer} is missing: it names one of the {listing}")
    entries = document.get(listing)
    if not isinstance(entries, list):
        raise UnusableKubeconfig(f"{listing} is missing, or is no list")
    found = [entry.get(field) for entry in entries if isinstance(entry, dict) and entry.get("name") == name]
    if len(found) != 1:
        raise UnusableKubeconfig(f"{referrer} names {len(found) or 'none'} of the {listing} instead of one")
    if not isinstance(found[0], dict):
        raise UnusableKubeconfig(f"{referrer} names an entry without {field}")
    return found[0]


def _cluster(fields: Mapping[str, Any], read_file: ReadFile) -> Cluster:
    for name, advice in _UNUSED_CLUSTER_FIELDS.items():
        if fields.get(name):
            raise UnusableKubeconfig(f"{name}: {advice}")
    authority = _inline_or_file(fields, "certificate-authority", read_file)
    if not authority:
        raise UnusableKubeconfig("certificate-authority-data is missing: evidence names the cluster by its CA")
    try:
        server = server_address(_text(fields, "server"))
    except UnusableValue as error:
        raise UnusableKubeconfig(f"server: {error}") from None
    name = _text(fields, "tls-server-name")
    if name and not is_host(name):
        raise UnusableKubeconfig("tls-server-name: must be a host name or an IP address")
    try:
        return Cluster(server, _certificates(authority, "certificate-authority", skips_unreadable=True), name)
    except InvalidCluster as error:
        raise UnusableKubeconfig(str(error)) from None


def _credential(fields: Mapping[str, Any], read_file: ReadFile) -> Credential:
    for name in _UNUSED_USER_FIELDS:
        if fields.get(name):
            raise UnusableKubeconfig(f"{name} is not supported; a bootstrap kubeconfig holds a token")
    token = _token(fields, read_file)
    if token:
        return BearerToken(token)
    certificate = _inline_or_file(fields, "client-certificate", read_file)
    key = _inline_or_file(fields, "client-key", read_file)
    if not certificate or not key:
        raise UnusableKubeconfig("its user has neither a token nor a client certificate with its key")
    try:
        key_text = private_key_in(key)
    except UnusableValue as error:
        raise UnusableKubeconfig(f"client-key: {error}") from None
    return ClientCertificate(_certificates(certificate, "client-certificate", skips_unreadable=False), key_text)


def _token(fields: Mapping[str, Any], read_file: ReadFile) -> str:
    """The token; a file that can be read takes precedence, as in client-go. Empty without any."""
    inline = _text(fields, "token")
    path = _text(fields, "tokenFile")
    try:
        found = _read(path, read_file).decode("ascii").strip() if path else ""
    except UnusableKubeconfig:
        if not inline:
            raise
        found = ""
    except ValueError:
        raise UnusableKubeconfig(f"{path}: token must be printable ASCII text") from None
    token = found or inline.strip()
    if not token.isascii() or not token.isprintable() or (inline and not token):
        raise UnusableKubeconfig("token must be printable ASCII text")
    return token


def _certificates(pem: bytes, field: str, *, skips_unreadable: bool) -> str:
    """The certificates as PEM without anything else; client-go skips a CA that it cannot read."""
    try:
        found = certificates_in(pem)
    except UnusableValue as error:
        raise UnusableKubeconfig(f"{field}: {error}") from None
    usable = [one for one in found if is_readable(one)]
    if not usable or (len(usable) < len(found) and not skips_unreadable):
        raise UnusableKubeconfig(f"{field}: {len(found) - len(usable)} of its {len(found)} certificates are unreadable")
    return "".join(pem_text("CERTIFICATE", one) for one in usable)


def _text(fields: Mapping[str, Any], name: str) -> str:
    """The text of a field; empty if it is absent, which null is too."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnusableKubeconfig(f"{name} must be a string")
    return value


def _inline_or_file(fields: Mapping[str, Any], name: str, read_file: ReadFile) -> bytes:
    """Inline data takes precedence, as in client-go. Empty without any."""
    inline = _text(fields, f"{name}-data")
    if inline:
        try:
            return decode_base64(inline)
        except UnusableValue as error:
            raise UnusableKubeconfig(f"{name}-data {error}") from None
    path = _text(fields, name)
    return _read(path, read_file) if path else b""


def _read(path: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not the path of a file"
        raise UnusableKubeconfig(f"{path}: {why}") from None


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(errno.ENOENT, "files are not read here", path)
