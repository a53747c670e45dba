"""Serves aiohttp applications on 127.0.0.1, on an event loop in a thread."""

from __future__ import annotations

import ssl
from typing import Final

from aiohttp import web

from signer.testing.api.thread import LoopThread

HOST: Final = "127.0.0.1"


class LocalServers:
    """A number of servers; each starts with :meth:`serve`."""

    def __init__(self, name: str) -> None:
        self._thread = LoopThread(name)
        self._runners: list[web.AppRunner] = []

    def serve(self, application: web.Application, context: ssl.SSLContext | None = None) -> int:
        """Serve an application, with TLS if there is a ``context``; returns the port."""
        if not self._thread.running:
            self._thread.start()
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0)

        async def listen() -> int:
            await runner.setup()
            await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
            return int(runner.addresses[0][1])

        self._runners.append(runner)
        return self._thread.wait(listen())

    def close(self) -> None:
        """Stop all servers."""
        try:
            while self._runners:
                self._thread.wait(self._runners.pop().cleanup())
        finally:
            self._thread.stop()
