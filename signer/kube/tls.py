"""TLS to one API server: only the certificates of its connection are trusted, not the system's."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator

from signer.kube.client_credential import certificates_in, private_key_in
from signer.kube.connection import ClusterConnection


class TlsMaterialRefused(ValueError):
    """A certificate or key of a connection is unusable; the message names it, never its content."""


@contextlib.contextmanager
def _in_memory_file(content: bytes) -> Iterator[str]:
    """A path that OpenSSL can open, and that leaves nothing on disk (memfd_create(2))."""
    descriptor = os.memfd_create("tls-material")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _short_lived_file(content: bytes) -> Iterator[str]:
    """A file of mode 0600 that is removed at once, for systems without memfd or /proc."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield path
    finally:
        os.unlink(path)


def _file_holding(content: bytes) -> contextlib.AbstractContextManager[str]:
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        return _in_memory_file(content)
    return _short_lived_file(content)


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Let ``context`` present that certificate with its chain; both PEM, and never in a file that others could read.

    Raises:
        ssl.SSLError, OSError, ValueError: they cannot be read, or do not belong together.
    """
    # Key last: OpenSSL reads the chain up to its last certificate, and finds the key anywhere. Without a password
    # callback it would ask for one on the terminal if the key is encrypted.
    with _file_holding(certificate.rstrip() + b"\n" + key.strip() + b"\n") as path:
        context.load_cert_chain(path, password=lambda: b"")


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    try:
        load_certificate(context, certificates_in(certificate), private_key_in(key))
    except (ssl.SSLError, OSError, ValueError):
        raise TlsMaterialRefused(
            "the client certificate and key cannot be used: both PEM, the key unencrypted and the certificate's own; "
            "RSA of 2048 to 4096 bits, Ed25519, or ECDSA on P-256, P-384 or P-521"
        ) from None


def client_context(connection: ClusterConnection) -> ssl.SSLContext:
    """The client's TLS context for ``connection``: TLS 1.2 or later; the server is verified by chain and by name.

    It is created without the system's trust store, which costs 28 ms and 0.8 MB for each connection and is not used.
    Any certificate of the bundle is an anchor, even an intermediate one, as in client-go.

    Raises TlsMaterialRefused if a certificate or key is unusable, or if only one of client certificate and key is
    given.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # as client-go: a TLS 1.2 server could renegotiate without end
    # As client-go, without DHE: a TLS 1.2 server could name a group in which a handshake takes most of a second.
    context.set_ciphers("@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!SHA1:!AESCCM")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(cadata=connection.certificate_authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise TlsMaterialRefused("the certificate authority is not a PEM bundle of certificates") from None
    if (connection.client_certificate is None) != (connection.client_key is None):
        raise TlsMaterialRefused("a client certificate and its key come together or not at all")
    if connection.client_certificate is not None and connection.client_key is not None:
        _load_client_certificate(context, connection.client_certificate, connection.client_key)
    return context
