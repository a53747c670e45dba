"""Reading certificates, in one place."""

from __future__ import annotations

import warnings

from cryptography import x509


def load_chain(pem: bytes) -> list[x509.Certificate]:
    """The certificates in ``pem``, at least one.

    Cluster API gives its CAs serial number 0, which the library reads and complains of; that complaint is left out.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Parsed a serial number which wasn't positive")
        return x509.load_pem_x509_certificates(pem)
