"""The PKCS#10 request of a node: subject, provider ID, alternative names, and perhaps further extensions.

Source: Cluster API kubelet authentication proposal, "CSR format used by kubelet-authenticator".
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestors.wire import provider_id as provider_id_format
from attestors.wire.names import (
    MAXIMUM_CERTIFICATE_REQUEST_BYTES,
    NODE_USER_PREFIX,
    NODES_GROUP,
    PROVIDER_ID_OID,
)

_UPPER_BOUND_COMMON_NAME: Final = 64


class TooManyNames(ValueError):
    """The request would be larger than the controller reads; the message gives the number of names."""


def node_subject(node_name: str) -> x509.Name:
    """``O=system:nodes, CN=system:node:<node name>``.

    X.520 limits a common name to 64 characters; Kubernetes does not, and a node name may have 253. API servers accept
    long ones, so this function suppresses the library's check for this one attribute.
    """
    common_name = NODE_USER_PREFIX + node_name
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, NODES_GROUP)
    if len(common_name) <= _UPPER_BOUND_COMMON_NAME:
        return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Attribute's length must be", category=UserWarning)
        attribute = x509.NameAttribute(NameOID.COMMON_NAME, common_name, _validate=False)
    return x509.Name([organization, attribute])


def build(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    *,
    node_name: str,
    provider_id: str,
    dns_names: Sequence[str] = (),
    ip_addresses: Sequence[IPv4Address | IPv6Address] = (),
    provider_id_oid: str = PROVIDER_ID_OID,
    further: Sequence[x509.UnrecognizedExtension] = (),
) -> bytes:
    """DER of a request for a client certificate or, with alternative names, for a serving certificate.

    ``further`` extensions are not critical: a controller that does not know them drops them.

    Raises:
        InvalidProviderID: ``provider_id`` is malformed.
        TooManyNames: the request would be larger than the controller reads.
    """
    builder = x509.CertificateSigningRequestBuilder(subject_name=node_subject(node_name)).add_extension(
        x509.UnrecognizedExtension(x509.ObjectIdentifier(provider_id_oid), provider_id_format.encode(provider_id)),
        critical=False,
    )
    if dns_names or ip_addresses:
        names = [*(x509.DNSName(name) for name in dns_names), *(x509.IPAddress(address) for address in ip_addresses)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in further:
        builder = builder.add_extension(extension, critical=False)
    der = builder.sign(key, SHA256()).public_bytes(Encoding.DER)
    if len(der) > MAXIMUM_CERTIFICATE_REQUEST_BYTES:
        raise TooManyNames(
            f"the certificate request has {len(der)} bytes with its {len(dns_names)} DNS names and "
            f"{len(ip_addresses)} addresses; the controller reads {MAXIMUM_CERTIFICATE_REQUEST_BYTES}"
        )
    return der
