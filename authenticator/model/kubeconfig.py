"""Kubeconfigs on the node: the bootstrap kubeconfig, which is read, and the one with the exec stanza, which is written.

Format: ``staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go``. A bootstrap kubeconfig that holds more than
server, CA and one credential is refused: if this program ignored a proxy or an exec plugin, it would act differently
from what the file says.
"""

from __future__ import annotations

import base64
import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import yaml

from authenticator.model.cluster import BearerToken, Bootstrap, ClientCertificate, Cluster, Credential, InvalidCluster
from authenticator.model.exec_credential import API_VERSIONS

MAXIMUM_KUBECONFIG_BYTES: Final = 256 * 1024
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
    context = _named(document, "contexts", "context", str(document.get("current-context") or ""))
    cluster = _cluster(_named(document, "clusters", "cluster", str(context.get("cluster") or "")), read_file)
    user = _named(document, "users", "user", str(context.get("user") or ""))
    return Bootstrap(cluster, _credential(user, read_file))


def cluster_of_kubeconfig(data: bytes) -> Cluster:
    """The cluster of the current context, regardless of its user.

    Raises:
        UnusableKubeconfig: it names no API server with an inline CA.
    """
    document = _document(data)
    context = _named(document, "contexts", "context", str(document.get("current-context") or ""))
    return _cluster(_named(document, "clusters", "cluster", str(context.get("cluster") or "")), _no_file)


def cluster_of_exec_info(info: Mapping[str, object]) -> Cluster:
    """The cluster that client-go passes to a plugin (``spec.cluster`` of ExecCredential, with the same fields).

    Raises:
        UnusableKubeconfig: the connection is not verified, or goes through a proxy.
    """
    return _cluster(info, _no_file)


def exec_kubeconfig(cluster: Cluster, *, command: str, arguments: Sequence[str], api_version: str) -> str:
    """A kubeconfig for a kubelet, whose user is this program.

    With ``provideClusterInfo`` the plugin follows later changes of server or CA in this file.
    """
    target = {
        "server": cluster.server,
        "certificate-authority-data": base64.b64encode(cluster.certificate_authority.encode("ascii")).decode("ascii"),
    }
    if cluster.tls_server_name:
        target["tls-server-name"] = cluster.tls_server_name
    plugin = {
        "apiVersion": api_version,
        "command": command,
        "args": list(arguments),
        "interactiveMode": "Never",
        "provideClusterInfo": True,
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


class _Loader(yaml.SafeLoader):
    """Rejects aliases: kubeconfigs have none, and a few lines of them can expand beyond memory."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise UnusableKubeconfig("it holds a YAML alias (*name): write out the value")
        return super().compose_node(parent, index)


def _document(data: bytes) -> Mapping[str, Any]:
    if len(data) > MAXIMUM_KUBECONFIG_BYTES:
        raise UnusableKubeconfig(f"it is larger than {MAXIMUM_KUBECONFIG_BYTES} bytes")
    try:
        document = yaml.load(data, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except UnusableKubeconfig:
        raise
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # PyYAML's constructors raise various exceptions: KeyError for `!!bool x`, AttributeError for `!!timestamp x`.
        # The parser's own message quotes the line, which may hold a token.
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise UnusableKubeconfig(f"it is not YAML{where}") from None
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise UnusableKubeconfig("it is not a kubeconfig (kind: Config)")
    return document


def _named(document: Mapping[str, Any], listing: str, field: str, name: str) -> Mapping[str, Any]:
    entries = document.get(listing)
    found = [
        entry.get(field)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("name") == name
    ]
    if len(found) != 1 or not isinstance(found[0], dict):
        where = "current-context" if listing == "contexts" else "the context"
        raise UnusableKubeconfig(f"{where} must name exactly one of its {listing}")
    return found[0]


def _cluster(fields: Mapping[str, Any], read_file: ReadFile) -> Cluster:
    for name, advice in _UNUSED_CLUSTER_FIELDS.items():
        if fields.get(name):
            raise UnusableKubeconfig(f"{name}: {advice}")
    authority = _inline_or_file(fields, "certificate-authority", read_file)
    if not authority:
        raise UnusableKubeconfig("certificate-authority-data is missing: evidence names the cluster by its CA")
    try:
        return Cluster(str(fields.get("server") or ""), authority, str(fields.get("tls-server-name") or ""))
    except InvalidCluster as error:
        raise UnusableKubeconfig(str(error)) from None


def _credential(fields: Mapping[str, Any], read_file: ReadFile) -> Credential:
    for name in _UNUSED_USER_FIELDS:
        if fields.get(name):
            raise UnusableKubeconfig(f"{name} is not supported; a bootstrap kubeconfig holds a token")
    token = fields.get("token") or (_read(fields["tokenFile"], read_file) if fields.get("tokenFile") else "")
    if token:
        text = token.strip() if isinstance(token, str) else ""
        if not text or not text.isascii() or not text.isprintable():
            raise UnusableKubeconfig("token must be printable ASCII text")
        return BearerToken(text)
    certificate = _inline_or_file(fields, "client-certificate", read_file)
    key = _inline_or_file(fields, "client-key", read_file)
    if not certificate or not key:
        raise UnusableKubeconfig("its user has neither a token nor a client certificate with its key")
    return ClientCertificate(certificate, key)


def _inline_or_file(fields: Mapping[str, Any], name: str, read_file: ReadFile) -> str:
    """Inline data takes precedence, as in client-go."""
    inline = fields.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True).decode("ascii")
        except ValueError:
            raise UnusableKubeconfig(f"{name}-data is not PEM in base64") from None
    return _read(fields[name], read_file) if fields.get(name) else ""


def _read(path: object, read_file: ReadFile) -> str:
    try:
        return read_file(str(path)).decode("ascii")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not ASCII text"
        raise UnusableKubeconfig(f"{path}: {why}") from None


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(errno.ENOENT, "files are not read here", path)
