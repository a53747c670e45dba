from __future__ import annotations

import socket
import ssl

import pytest

from signer.kube.answers import unreachable
from signer.kube.errors import Cause, Unreachable
from signer.kube.http.messages import ConnectionClosed


@pytest.mark.parametrize(
    ("error", "message", "cause"),
    [
        (TimeoutError(), "timeout", Cause.TIMEOUT),
        (socket.gaierror(-2, "unknown"), "name resolution failed", Cause.NAME_RESOLUTION),
        (ConnectionRefusedError(111, "refused"), "connection refused", Cause.REFUSED),
        (OSError(113, "No route to host"), "connection failed: No route to host", Cause.NETWORK),
        (ConnectionResetError(), "connection failed: network error", Cause.NETWORK),
        (ssl.SSLCertVerificationError(1, "x"), "TLS verification failed: the server certificate is", Cause.TLS),
        (ssl.SSLError(1, "x"), "TLS failed: handshake broken off", Cause.TLS),
        (ConnectionClosed(within_answer=True, tls_reason="ALERT"), "TLS failed: ALERT", Cause.TLS),
        (ConnectionClosed(within_answer=True), "connection reset: the answer ended", Cause.RESET),
        (ConnectionClosed(within_answer=False), "connection reset: the server closed", Cause.RESET),
    ],
)
def test_errors_for_failures_below_the_api(error: OSError, message: str, cause: Cause) -> None:
    try:
        raise error
    except OSError as raised:
        meant = unreachable(raised, "production.example:6443")
    assert isinstance(meant, Unreachable)
    assert meant.message.startswith(message)
    assert meant.message.endswith(" (production.example:6443)"), "nobody looks for the server in a Secret at night"
    assert meant.cause is cause
    assert error.__traceback__ is None, "its frames hold what was read"
