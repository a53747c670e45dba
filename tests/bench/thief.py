"""``python -m tests.bench.thief FILE``: posts requests with one token as fast as an API server accepts them.

It is a separate process, so that it loads only the API server and not the interpreter of honest nodes. The first line
of the file is the connection, each other line is a CertificateSigningRequest.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS

CONNECTIONS: Final = 4
"""With more connections, the API server's fair queuing would be measured instead of the controller."""


def write_loot(path: Path, connection: ClusterConnection, manifests: Iterable[JsonObject]) -> None:
    """Write the file for this program; it holds the connection's token."""
    path.touch(mode=0o600)
    with path.open("w", encoding="utf-8") as file:
        authority = connection.certificate_authority.decode("ascii")
        print(json.dumps([connection.server, authority, connection.bearer_token]), file=file)
        for manifest in manifests:
            print(json.dumps(manifest), file=file)


async def _post_all(file: TextIO) -> None:
    server, authority, token = json.loads(file.readline())
    connection = ClusterConnection(server, authority.encode("ascii"), bearer_token=token)
    lines = iter(file)
    async with Client(connection, connection_limit=CONNECTIONS) as client, asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(_post(client, lines))


async def _post(client: Client, lines: Iterator[str]) -> None:
    for line in lines:
        await client.create(CERTIFICATE_SIGNING_REQUESTS.collection(), json.loads(line))


def main(arguments: list[str]) -> int:
    """Post the requests of the file."""
    with Path(arguments[0]).open(encoding="utf-8") as file:
        asyncio.run(_post_all(file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
