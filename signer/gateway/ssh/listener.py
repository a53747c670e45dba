"""Listens for SSH connections."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncssh

from signer.gateway.ssh.host_keys import HostKeys
from signer.gateway.ssh.server import GatewayConnection, Parts

VERSION: Final = "node-access-gateway"
"""Software version of RFC 4253 section 4.2; without a number."""
KEEPALIVES: Final = 3
WINDOW_BYTES: Final = 1024 * 1024
"""What a client may send before a container has taken it, for each channel."""
_CIPHERS: Final = ("aes256-gcm@openssh.com", "aes128-gcm@openssh.com")
"""The client's order decides, and OpenSSH before 10 prefers any other cipher to these. In asyncssh, a packet of 32 KiB
takes a quarter of the time of the others: one call of OpenSSL. They authenticate by themselves, without a MAC.
"""
_KEY_EXCHANGES: Final = (
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
)
"""Each takes less than a millisecond. asyncssh offers groups of 8192 bits by default, with which anybody could keep the
event loop busy before the login, and exchanges with SHA-1.
"""
_SIGNATURES: Final = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-256",
    "rsa-sha2-512",
)


class CannotListen(Exception):
    """Nobody could connect. The message names flag and address."""


@asynccontextmanager
async def listening(parts: Parts, listen: tuple[str, int], host_keys: HostKeys) -> AsyncIterator[tuple[str, int]]:
    """Accept connections; yields host and port. Leaving ends every connection.

    Raises:
        CannotListen: the address is in use, or is none of this machine.
    """
    asyncssh.set_log_level(logging.WARNING)  # below, it logs commands, user names and environments
    host, port = listen
    limits = parts.limits
    try:
        server = await asyncssh.listen(
            host,
            port,
            server_factory=lambda: GatewayConnection(parts),
            server_host_keys=list(host_keys.private),
            server_version=VERSION,
            encryption_algs=_CIPHERS,
            kex_algs=_KEY_EXCHANGES,
            signature_algs=_SIGNATURES,
            compression_algs=("none",),
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            host_based_auth=False,
            password_auth=False,
            kbdint_auth=False,
            gss_host=None,
            login_timeout=limits.login_seconds,
            keepalive_interval=limits.keepalive_seconds,
            keepalive_count_max=KEEPALIVES,
            tcp_keepalive=True,
            window=WINDOW_BYTES,
        )
    except OSError as error:
        raise CannotListen(f"--listen: cannot listen at {host}:{port}: {error.strerror or error}") from error
    try:
        bound = server.sockets[0].getsockname() if server.sockets else (host, port)
        yield str(bound[0]), int(bound[1])
    finally:
        server.close()
        for connection in tuple(parts.live):
            connection.stop()
        await server.wait_closed()


__all__ = ["VERSION", "CannotListen", "listening"]
