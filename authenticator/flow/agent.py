"""The agent: keeps the certificates fresh ahead of time, so that a kubelet never waits for one again."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NoReturn

from authenticator.flow.bounded import longest
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.clock import Clock
from authenticator.model.failures import Failure, NoCredential
from authenticator.model.plan import AGENT_SHARE, clock_behind

NOTIFY_VARIABLE: Final = "NOTIFY_SOCKET"
"""systemd's (sd_notify(3))."""
LONGEST_SLEEP_SECONDS: Final = 300.0
"""A wall clock that was set, or a machine that slept, is noticed after this at the latest."""

_NOTHING_YET_SECONDS: Final = 2.0
"""Between two looks for a bootstrap kubeconfig."""
_FIRST_RETRY_SECONDS: Final = 5.0
_SAY_AGAIN_AFTER: Final = 30
"""A failure that stays the same is said again after this many times."""


@dataclass
class Agent:
    """Runs until it is stopped."""

    certificates: NodeCertificates
    prepare: Callable[[], None]
    """Takes in a bootstrap kubeconfig that appeared, and writes the kubelet's."""
    clock: Clock
    report: Callable[[str], None]
    notify: Callable[[str], None]
    """Tells systemd."""
    bounded: Callable[[float], AbstractContextManager[None]]
    """Ends the process where a block takes longer: one that hangs holds the lock, and nobody else renews."""
    _ready: bool = False
    _failures: int = 0
    _said: dict[str, tuple[str, int]] = field(default_factory=dict)

    def run(self) -> NoReturn:
        """Never returns.

        Raises:
            InvalidConfiguration: nothing will ever come of it.
        """
        with self.bounded(longest(exchanges=0, timeout=0)):
            self.certificates.check()
        while True:
            self.clock.sleep(self.turn())

    def turn(self) -> float:
        """Do what is due; seconds until the next turn.

        No failure is for good: a bootstrap kubeconfig that cannot be read may be one that kubeadm is about to write.
        """
        configuration = self.certificates.configuration
        exchanges = 1 if configuration.serving is None else 2
        with self.bounded(longest(exchanges=exchanges, timeout=configuration.timeout)):
            return self._turn()

    def _turn(self) -> float:
        self._prepare()
        what = "client"
        try:
            timeout = self.certificates.configuration.timeout
            uses = [self.certificates.client(share=AGENT_SHARE, timeout=timeout)]
            self._well(what)
            if self.certificates.configuration.serving is not None:
                what = "serving"
                uses.append(self.certificates.serving(share=AGENT_SHARE))
                self._well(what)
        except NoCredential as failure:
            self._say(what, failure)
            return _NOTHING_YET_SECONDS
        except Exception as failure:  # noqa: BLE001 - an attestor's defect must not end what keeps the node alive
            self._say(what, failure)
            self._failures += 1
            return float(min(_FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 10), LONGEST_SLEEP_SECONDS))
        self._failures = 0
        if not self._ready:
            self._ready = True
            self.notify("READY=1")
        now = self.clock.now()
        left = min(use.until for use in uses) - now
        behind = next((said for use in uses if (said := clock_behind(use.pair.not_before, now))), "")
        overdue = "; ".join(use.overdue for use in uses if use.overdue)
        if overdue:
            self.notify(f"STATUS=valid, but not renewed: {overdue}; the next try is due in {left} s")
        elif behind:
            self._say("clock", Failure(f"the certificates are {behind}"))
            self.notify(f"STATUS={behind}")
        else:
            self.notify(f"STATUS=certificates are fresh; the next work is due in {left} s")
        return min(max(left, 1.0), LONGEST_SLEEP_SECONDS)

    def _prepare(self) -> None:
        """What is wrong with a bootstrap kubeconfig is no reason to let a certificate run out."""
        try:
            self.prepare()
            self._well("prepare")
        except Failure as failure:
            self._say("prepare", failure)

    def _well(self, what: str) -> None:
        self._said.pop(what, None)

    def _say(self, what: str, failure: Exception) -> None:
        """Say what is wrong, once and then from time to time."""
        text = str(failure) if isinstance(failure, Failure) else f"unexpected {type(failure).__name__}: {failure}"
        before, times = self._said.get(what, ("", 0))
        times = times + 1 if before == text else 0
        if times % _SAY_AGAIN_AFTER == 0:
            self.report(text)
            self.notify(f"STATUS={text}")
        self._said[what] = (text, times)


def notify_systemd(state: str) -> None:
    """Tell systemd, where it started this process with ``Type=notify``; elsewhere, nothing."""
    address = os.environ.get(NOTIFY_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.replace("\n", " ").encode("utf-8"), address.replace("@", "\0", 1))
