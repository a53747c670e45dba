"""ExecCredential: client-go's request to a credential plugin, and the answer.

Source: ``staging/src/k8s.io/client-go/pkg/apis/clientauthentication/{v1,v1beta1}/types.go``, and
``plugin/pkg/client/auth/exec/exec.go``, which reads the answer. This module is on the printing path: it imports only a
little of the standard library.
"""

from __future__ import annotations

import json
import time

INFO_VARIABLE = "KUBERNETES_EXEC_INFO"
"""The environment variable in which client-go passes its ExecCredential."""
_GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
"""Newest first. The answer must have the requested version, or client-go refuses it."""
KIND = "ExecCredential"

_MAXIMUM_INFO_CHARACTERS = 1024 * 1024
_WHO_RUNS_IT = (
    "a kubelet or kubectl runs `credential` through the exec stanza of a kubeconfig; by hand, use `status` or `request`"
)


class UnusableExecInfo(ValueError):
    """client-go's request cannot be answered; the message names the error and the remedy."""


class ExecInfo:
    """client-go's request."""

    __slots__ = ("api_version", "cluster")

    def __init__(self, api_version: str, cluster: dict[str, object] | None) -> None:
        """``cluster`` is ``spec.cluster``, which is present if the exec stanza has ``provideClusterInfo: true``."""
        self.api_version = api_version
        self.cluster = cluster


def parse_info(text: str) -> ExecInfo:
    """Parse the content of :data:`INFO_VARIABLE`.

    Raises:
        UnusableExecInfo: it is empty, not an ExecCredential, or of an unknown version.
    """
    if not text:
        raise UnusableExecInfo(f"{INFO_VARIABLE} is not set: {_WHO_RUNS_IT}")
    if len(text) > _MAXIMUM_INFO_CHARACTERS:
        raise UnusableExecInfo(f"{INFO_VARIABLE} is longer than {_MAXIMUM_INFO_CHARACTERS} characters")
    try:
        info = json.loads(text)
    except (ValueError, RecursionError):
        raise UnusableExecInfo(f"{INFO_VARIABLE} is not JSON: {_WHO_RUNS_IT}") from None
    if not isinstance(info, dict) or info.get("kind") != KIND:
        raise UnusableExecInfo(f"{INFO_VARIABLE} is not an {KIND}: {_WHO_RUNS_IT}")
    api_version = info.get("apiVersion")
    if api_version not in API_VERSIONS:
        raise UnusableExecInfo(
            f"{INFO_VARIABLE} requests another API version than {' and '.join(API_VERSIONS)}: "
            "set apiVersion of the exec stanza to one of these"
        )
    spec = info.get("spec")
    cluster = spec.get("cluster") if isinstance(spec, dict) else None
    return ExecInfo(api_version, cluster if isinstance(cluster, dict) else None)


def encode_credential(api_version: str, *, certificate: str, key: str, expiration: int) -> str:
    """The answer: one line of JSON. ``certificate`` and ``key`` are PEM, ``expiration`` is a Unix time.

    client-go runs the plugin again at the first request after ``expiration``.
    """
    credential = {
        "apiVersion": api_version,
        "kind": KIND,
        "status": {
            "clientCertificateData": certificate,
            "clientKeyData": key,
            "expirationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expiration)),
        },
    }
    return json.dumps(credential, separators=(",", ":"))
