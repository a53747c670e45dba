"""The kubeconfigs that a rotation changes: Secret ``<cluster>-kubeconfig``, and ConfigMap ``cluster-info``. Pure.

Both are changed in place: everything but the CAs and the client certificate stays as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import yaml

from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.authority import CertificateAuthority
from signer.authority.lenient_certificate import CACertificate
from signer.authority.reissue import ReissueRefused, reissue
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.model.fields import mapping_of, text_of
from signer.rotation.bundles import UnreadableBundle, digest_of, digests_in, is_issued_by, read_bundle
from signer.rotation.facts import (
    Bundle,
    KubeconfigClient,
    KubeconfigFacts,
    NoClientCertificate,
    NotObserved,
    SignedByKnown,
    SignedByUnknown,
    Unusable,
)

_MAXIMUM_BYTES: Final = 256 * 1024


class KubeconfigNotChanged(Exception):
    """The kubeconfig has a form that the rotation does not change; the message says which."""


def read_facts(kubeconfig: bytes, *authorities: CACertificate) -> KubeconfigFacts | Unusable:
    """Which CAs the kubeconfig trusts, and which of ``authorities`` signed its client certificate: the first of them,
    should two have the same key.
    """
    try:
        connection = parse_kubeconfig(kubeconfig)
    except KubeconfigRefused as error:
        return Unusable(str(error))
    trusted = digests_in(connection.certificate_authority)
    if isinstance(trusted, UnreadableBundle):
        return Unusable(f"certificate-authority-data: {trusted.message}")
    return KubeconfigFacts(trusted, _client(connection.client_certificate, authorities))


def _client(certificate: bytes | None, authorities: Iterable[CACertificate]) -> KubeconfigClient:
    if certificate is None:
        return NoClientCertificate()
    leaf = _first_certificate(certificate)
    for authority in authorities:
        if is_issued_by(leaf, authority):
            return SignedByKnown(digest_of(authority.der))
    return SignedByUnknown()


def _first_certificate(pem: bytes) -> bytes:
    """DER of the leaf; empty if it cannot be read."""
    found = read_bundle(pem)
    return b"" if isinstance(found, UnreadableBundle) or not found else found[0]


@dataclass(frozen=True, slots=True)
class Issuers:
    """The two CAs of a rotation, of which one signed the client certificate, and the one that is to sign it."""

    known: tuple[CertificateAuthority, ...]
    signer: CertificateAuthority


def rewritten(kubeconfig: bytes, trusted: bytes, issuers: Issuers, now: datetime) -> bytes:
    """The kubeconfig with other CAs, and with its client certificate by ``issuers.signer``.

    The client's certificate is issued again for the same subject and the same key, and never for longer. One that none
    of the known CAs signed stays, and so does a token.

    Raises:
        KubeconfigNotChanged: it has another form.
    """
    document = _document(kubeconfig)
    context = _named(document, "contexts", "context", text_of(document, "current-context"))
    cluster = _named(document, "clusters", "cluster", text_of(context, "cluster"))
    user = _named(document, "users", "user", text_of(context, "user"))
    cluster["certificate-authority-data"] = base64.b64encode(trusted).decode("ascii")
    if text_of(user, "client-certificate-data"):
        leaf = _first_certificate(_decoded(text_of(user, "client-certificate-data")))
        former = [one for one in issuers.known if is_issued_by(leaf, one.certificate)]
        if former and not is_issued_by(leaf, issuers.signer.certificate):
            try:
                again = reissue(leaf, former=former[0].certificate, signer=issuers.signer, now=now)
            except ReissueRefused as error:
                raise KubeconfigNotChanged(f"its client certificate: {error}") from error
            user["client-certificate-data"] = base64.b64encode(again).decode("ascii")
    return _dumped(document)


def cluster_info_authorities(config_map: Mapping[str, Any]) -> Bundle | NotObserved:
    """The CAs that ``kube-public/cluster-info`` names."""
    try:
        cluster = _only_cluster(_document(text_of(mapping_of(config_map, "data"), "kubeconfig").encode()))
        found = digests_in(base64.b64decode(text_of(cluster, "certificate-authority-data"), validate=True))
    except (KubeconfigNotChanged, ValueError) as error:
        return NotObserved(f"its kubeconfig cannot be read: {error}")
    return NotObserved(found.message) if isinstance(found, UnreadableBundle) else found


def cluster_info_with(config_map: Mapping[str, Any], trusted: bytes) -> str:
    """The kubeconfig of ``cluster-info`` with other CAs. kube-controller-manager signs it again, for each token.

    Raises:
        KubeconfigNotChanged: it has another form.
    """
    document = _document(text_of(mapping_of(config_map, "data"), "kubeconfig").encode())
    _only_cluster(document)["certificate-authority-data"] = base64.b64encode(trusted).decode("ascii")
    return _dumped(document).decode("utf-8")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        raise KubeconfigNotChanged("its client certificate is not base64") from None


def _document(kubeconfig: bytes) -> dict[str, Any]:
    if len(kubeconfig) > _MAXIMUM_BYTES:
        raise KubeconfigNotChanged(f"it is larger than {_MAXIMUM_BYTES // 1024} KiB")
    try:
        document = load_strict_yaml(kubeconfig)
    except YamlRefused as error:
        raise KubeconfigNotChanged(f"it is not plain YAML: {error}") from None
    if not isinstance(document, dict):
        raise KubeconfigNotChanged("it is no mapping")
    return document


def _dumped(document: Mapping[str, Any]) -> bytes:
    return yaml.safe_dump(dict(document), sort_keys=False).encode("utf-8")


def _entries(document: Mapping[str, Any], plural: str, singular: str) -> list[tuple[str, dict[str, Any]]]:
    entries = document.get(plural)
    if not isinstance(entries, list):
        raise KubeconfigNotChanged(f"{plural} is no list")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get(singular), dict):
            raise KubeconfigNotChanged(f"an entry of {plural} has no {singular}")
        found.append((str(entry.get("name") or ""), entry[singular]))
    return found


def _named(document: Mapping[str, Any], plural: str, singular: str, name: str) -> dict[str, Any]:
    found = [value for own, value in _entries(document, plural, singular) if own == name]
    if len(found) != 1:
        raise KubeconfigNotChanged(f"{plural} has not exactly one entry of the name that is used")
    return found[0]


def _only_cluster(document: Mapping[str, Any]) -> dict[str, Any]:
    found = _entries(document, "clusters", "cluster")
    if len(found) != 1:
        raise KubeconfigNotChanged("it has not exactly one cluster")
    return found[0][1]
