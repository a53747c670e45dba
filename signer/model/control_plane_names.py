"""Names that clients use for the control plane, which no other node's serving certificate may hold.

The kubelet serving CA is also the API server's CA. A name of the API server in a node's certificate makes a false API
server for every client that uses that name: a load balancer's, one of kubeadm's ``certSANs``. The API server's own
certificate lists them all, because clients would not accept it otherwise. The controller sees it at each connection, so
this costs no call and no grant.

kubeadm's configuration states names, too: ``certSANs`` that a rollout has not yet brought into the certificates, or
that only an API server has to which this controller does not connect.

Konnectivity and etcd may have certificates of the same CA, and their names are in no API server's certificate. The
operator lists such names.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509

from signer.model.addresses import canonical
from signer.model.certificate_request import LIBRARY_ERRORS

MAXIMUM_CERTIFICATES: Final = 16
"""Behind one endpoint are several API servers, whose certificates differ in the names of their own nodes."""
MAXIMUM_RESERVED_NAMES: Final = 64
_RESERVED: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9]|[-a-z0-9]{0,61}\*)?")


class InvalidReservedNames(ValueError):
    """The operator's list is not one."""


@dataclass(frozen=True, slots=True)
class ReservedNames:
    """Host labels that the operator reserves; ``*`` at the end stands for any characters."""

    labels: tuple[str, ...]

    @classmethod
    def parse(cls, value: object) -> ReservedNames:
        """Raises InvalidReservedNames: another type, a malformed label, or too many."""
        if not isinstance(value, list) or len(value) > MAXIMUM_RESERVED_NAMES:
            raise InvalidReservedNames(f"must be a list of at most {MAXIMUM_RESERVED_NAMES} host labels")
        for one in value:
            if not isinstance(one, str) or not _RESERVED.fullmatch(one):
                raise InvalidReservedNames(
                    "must be a list of host labels in lower case, such as konnectivity-server; an asterisk may end "
                    "one, as in etcd-*"
                )
        return cls(tuple(value))

    def has(self, dns_name: str) -> bool:
        """Whether the name, in lower case, begins or ends with a reserved label, as ``etcd-0.etcd`` does."""
        labels = dns_name.split(".")
        return any(_matches(pattern, label) for pattern in self.labels for label in (labels[0], labels[-1]))


def _matches(pattern: str, label: str) -> bool:
    return label.startswith(pattern[:-1]) if pattern.endswith("*") else label == pattern


DEFAULT_RESERVED_NAMES: Final = ReservedNames(
    (
        "cloud-controller-manager",
        "etcd",
        "etcd-*",
        "konnectivity-server",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    )
)
"""Names of Services, static Pods and StatefulSets of control planes."""


class UnreadableServerCertificate(ValueError):
    """The names in a server's certificate cannot be read."""


def names_in(certificate: bytes) -> frozenset[str]:
    """The DNS names and IP addresses in a server's certificate (DER), in canonical form; wildcards as they are.

    Raises:
        UnreadableServerCertificate: they cannot be read.
    """
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        try:
            names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()  # clients of today accept no other names (RFC 9525 section 6)
        addresses = map(str, names.get_values_for_type(x509.IPAddress))
        return frozenset(map(canonical, (*names.get_values_for_type(x509.DNSName), *addresses)))
    except (x509.DuplicateExtension, *LIBRARY_ERRORS) as error:
        raise UnreadableServerCertificate(f"its certificate cannot be read: {type(error).__name__}") from error


class NameSource(enum.Enum):
    """An object that states names of the control plane. The value is its name in messages."""

    KUBEADM_CONTROL_PLANE = "KubeadmControlPlane"
    """Of the management cluster; the tenant's."""
    KUBEADM_CONFIG = "ConfigMap kube-system/kubeadm-config"
    """Of the workload cluster; kubeadm writes its ClusterConfiguration there."""


@dataclass(slots=True)
class ControlPlaneReport:
    """The names of one workload cluster's API servers, as far as this process knows them.

    What a source states only ever adds names to those in the certificates.
    """

    certificates_unknown: str = "the controller has not seen the API server's certificate yet"
    """Why the names in the certificates are unknown; empty if they are known."""
    awaited: frozenset[NameSource] = frozenset()
    """Sources that have not been asked yet, or have not answered: the names that they state may be any."""
    _seen: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)
    """By digest of the certificate, the last seen last."""
    _stated: dict[NameSource, frozenset[str]] = field(default_factory=dict)

    @property
    def unknown(self) -> str:
        """Why the names are unknown; empty if they are known."""
        if self.certificates_unknown or not self.awaited:
            return self.certificates_unknown
        return f"the controller has not read {' and '.join(sorted(one.value for one in self.awaited))} yet"

    def saw(self, certificate: bytes) -> None:
        """Take the names in a certificate (DER) that an API server has shown in a TLS handshake."""
        digest = hashlib.sha256(certificate).hexdigest()
        if digest not in self._seen:
            try:
                self._seen[digest] = names_in(certificate)
            except UnreadableServerCertificate as error:
                self.certificates_unknown = f"the API server was asked for its names, and {error}"
                return
        self._seen.move_to_end(digest)
        if len(self._seen) > MAXIMUM_CERTIFICATES:
            self._seen.popitem(last=False)
        self.certificates_unknown = ""

    def stated(self, source: NameSource, names: frozenset[str]) -> None:
        """Take the names that a source states now, in canonical form, in place of those that it stated before."""
        self._stated[source] = names
        self.not_stated(source)

    def not_stated(self, source: NameSource) -> None:
        """The source states no names that can be read. Those that it stated before stay."""
        self.awaited -= {source}

    def names_among(self, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names``, in canonical form, that a certificate or a source has, also by a wildcard for their first
        label.
        """
        known = (*self._seen.values(), *self._stated.values())
        return frozenset(name for name in names if any({name, _wildcard(name)} & one for one in known))


def _wildcard(name: str) -> str:
    return f"*.{name.partition('.')[2]}"


def nothing_reported() -> ControlPlaneReport:
    """The report where no API server is connected, as in ``explain``: no name counts as the control plane's."""
    return ControlPlaneReport(certificates_unknown="")
