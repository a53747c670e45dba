"""Handmade TLS 1.3 records of a server (RFC 8446) that OpenSSL would not send, such as any number of key updates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from signer.kube.connection import ClusterConnection
from tests.unit.signer.kube.support import Authority

ALERT: Final = 21
HANDSHAKE: Final = 22
DATA: Final = 23
NOT_REQUESTED, REQUESTED = 0, 1
_OF_SERVER, _OF_CLIENT = "SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0"


@dataclass
class Sealing:
    """From a server's traffic secret to its records, of TLS_AES_256_GCM_SHA384."""

    secret: bytes
    sequence: int = 0

    def record(self, content: bytes, kind: int = DATA) -> bytes:
        """Seal one record (section 5.2)."""
        key, initial = self._expanded(b"key", 32), self._expanded(b"iv", 12)
        nonce = (int.from_bytes(initial) ^ self.sequence).to_bytes(12)
        self.sequence += 1
        head = struct.pack("!BHH", DATA, 0x0303, len(content) + 1 + 16)
        return head + AESGCM(key).encrypt(nonce, content + bytes([kind]), head)

    def opened(self, record: bytes) -> tuple[int, bytes]:
        """Open a record of the other side: content type and content."""
        key, initial = self._expanded(b"key", 32), self._expanded(b"iv", 12)
        nonce = (int.from_bytes(initial) ^ self.sequence).to_bytes(12)
        self.sequence += 1
        content = AESGCM(key).decrypt(nonce, record[5:], record[:5])
        return content[-1], content[:-1]

    def renew(self) -> None:
        """Switch to the next keys (section 7.2)."""
        self.secret, self.sequence = self._expanded(b"traffic upd", 48), 0

    def key_update(self, request: int = NOT_REQUESTED) -> bytes:
        """The record that ends these keys (section 4.6.3)."""
        sealed = self.record(bytes([24, 0, 0, 1, request]), HANDSHAKE)
        self.renew()
        return sealed

    def _expanded(self, label: bytes, length: int) -> bytes:
        name = b"tls13 " + label
        info = struct.pack("!HB", length, len(name)) + name + b"\0"
        return HKDFExpand(SHA384(), length, info).derive(self.secret)


@dataclass
class Spoken:
    """A connection after its handshake; bytes are sent unchanged."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sealing: Sealing
    of_client: Sealing

    async def record(self) -> tuple[int, bytes]:
        """The client's next record: content type and content."""
        head = await self.reader.readexactly(5)
        return self.of_client.opened(head + await self.reader.readexactly(int.from_bytes(head[3:])))

    async def hang(self) -> None:
        """Stop reading."""
        await asyncio.get_running_loop().create_future()


def _keys(log: Path) -> dict[str, bytes]:
    """Of the last handshake (NSS key log format)."""
    return {line.split()[0]: bytes.fromhex(line.split()[2]) for line in log.read_text("ascii").splitlines()[1:]}


@contextlib.asynccontextmanager
async def by_hand(
    authority: Authority,
    tls: ssl.SSLContext,
    folder: Path,
    script: Callable[[Spoken], Awaitable[None]],
    *,
    word: bytes = b"",
) -> AsyncIterator[ClusterConnection]:
    """A server on loopback that shakes hands as ``tls`` has it (no tickets), and then runs ``script``.

    ``word`` goes out with its half of the handshake, as it may (section 4.4.4).
    """
    log = folder / "keys"
    tls.keylog_filename = str(log)
    tls.num_tickets = 0
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = tls.wrap_bio(incoming, outgoing, server_side=True)
        try:
            while True:
                try:
                    server.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sealed = Sealing(_keys(log)[_OF_SERVER]).record(word) if word and outgoing.pending else b""
                    writer.write(outgoing.read() + sealed)
                    incoming.write(await reader.read(1 << 16))
            of_server, of_client = (Sealing(_keys(log)[side]) for side in (_OF_SERVER, _OF_CLIENT))
            of_server.sequence += bool(word)
            await script(Spoken(reader, writer, of_server, of_client))
        except (OSError, asyncio.CancelledError):  # asyncio's streams would log a cancelled task
            pass
        finally:
            running.discard(task)
            if not writer.is_closing():
                writer.close()

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # one that does not read is soon noticed
    listening.bind(("127.0.0.1", 0))
    listener = await asyncio.start_server(serve, sock=listening, limit=1024)
    port = listening.getsockname()[1]
    try:
        yield ClusterConnection(f"https://127.0.0.1:{port}", authority.certificate)
    finally:
        listener.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
