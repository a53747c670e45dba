"""The agent: renews the certificates early, so that a kubelet never waits for one after the first."""

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
from authenticator.flow.trust import LONGEST_SECONDS
from authenticator.model.failures import Failure, NoCredential
from authenticator.model.plan import AGENT_SHARE, clock_behind

NOTIFY_VARIABLE: Final = "NOTIFY_SOCKET"
"""The environment variable of systemd (sd_notify(3))."""
LONGEST_SLEEP_SECONDS: Final = 300.0
"""Upper bound, so that a changed wall clock or a suspended machine is noticed."""

_NOTHING_YET_SECONDS: Final = 2.0
"""Interval between checks for a bootstrap kubeconfig."""
_FIRST_RETRY_SECONDS: Final = 5.0
_REPORT_AGAIN_AFTER: Final = 30
"""An unchanged failure is reported again after this many repetitions."""


@dataclass
class Agent:
    """Runs until it is stopped."""

    certificates: NodeCertificates
    prepare: Callable[[], None]
    """Copies a new bootstrap kubeconfig's credential, and writes the kubelet's kubeconfig."""
    clock: Clock
    report: Callable[[str], None]
    notify: Callable[[str], None]
    """Sends a state to systemd."""
    bounded: Callable[[float], AbstractContextManager[None]]
    """Ends the process if a block takes longer: a hanging process holds the lock, and blocks every renewal."""
    trust: Callable[[], float] | None = None
    """Changes the CAs that the kubelet trusts; returns the seconds until it has more to do. None: it is left alone."""
    renewal: Callable[[], float] | None = None
    """Reads whether the client certificate is to be renewed; returns the seconds until it has more to do."""
    bundle: Callable[[], float] | None = None
    """Reads the trust bundle for sshd; returns the seconds until it has more to do. None: this node has no SSH."""
    _ready: bool = False
    _failures: int = 0
    _reported: dict[str, tuple[str, int]] = field(default_factory=dict)

    def run(self) -> NoReturn:
        """Run for ever.

        Raises:
            InvalidConfiguration: the configuration cannot work.
        """
        with self.bounded(longest(exchanges=0, timeout=0)):
            self.certificates.check()
        while True:
            self.clock.sleep(self.turn())

    def turn(self) -> float:
        """Do what is due; returns the seconds until the next turn.

        No failure is final: an unreadable bootstrap kubeconfig may be one that kubeadm is about to write.
        """
        was_ready = self._ready
        wait = self._look() if was_ready else LONGEST_SLEEP_SECONDS
        seconds = self._renew()
        is_ready = self._ready
        if is_ready and not was_ready:  # not earlier: the kubelet waits for the certificates
            wait = self._look()
        return min(seconds, wait)

    def _renew(self) -> float:
        configuration = self.certificates.configuration
        exchanges = 1 if configuration.serving is None else 2
        with self.bounded(longest(exchanges=exchanges, timeout=configuration.timeout)):
            return self._turn()

    def _look(self) -> float:
        """Before the certificates: after a change, both are renewed in the same turn."""
        return min(
            self._step("trust", self.trust), self._step("renewal", self.renewal), self._step("bundle", self.bundle)
        )

    def _step(self, what: str, step: Callable[[], float] | None) -> float:
        if step is None:
            return LONGEST_SLEEP_SECONDS
        try:
            with self.bounded(LONGEST_SECONDS):
                wait = step()
            self._clear(what)
        except Failure as failure:
            self._report_failure(what, failure)
            return LONGEST_SLEEP_SECONDS
        return max(wait, 1.0)

    def _turn(self) -> float:
        self._prepare()
        what = "client"
        try:
            timeout = self.certificates.configuration.timeout
            uses = [self.certificates.client(share=AGENT_SHARE, timeout=timeout)]
            self._clear("client")
            mismatch = "; ".join(map(str, self.certificates.mismatches()))
            if self.certificates.configuration.serving is not None:
                what = "serving"
                uses.append(self.certificates.serving(share=AGENT_SHARE))
                self._clear(what)
        except NoCredential as failure:
            self._report_failure(what, failure)
            return _NOTHING_YET_SECONDS
        except Exception as failure:  # noqa: BLE001 - an attestor's defect must not stop renewals
            self._report_failure(what, failure)
            self._failures += 1
            return float(min(_FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 10), LONGEST_SLEEP_SECONDS))
        self._failures = 0
        if not self._ready:
            self._ready = True
            self.notify("READY=1")
        now = self.clock.now()
        left = min(use.until for use in uses) - now
        behind = next((text for use in uses if (text := clock_behind(use.pair.not_before, now))), "")
        overdue = "; ".join(use.overdue for use in uses if use.overdue)
        if mismatch:
            self._report_failure("mismatch", Failure(mismatch))
            self.notify(f"STATUS={mismatch}")
        elif overdue:
            self.notify(f"STATUS=valid, but not renewed: {overdue}; the next attempt is due in {left} s")
        elif behind:
            self._report_failure("clock", Failure(f"the certificates are {behind}"))
            self.notify(f"STATUS={behind}")
        else:
            self.notify(f"STATUS=certificates are fresh; the next step is due in {left} s")
        return min(max(left, 1.0), LONGEST_SLEEP_SECONDS)

    def _prepare(self) -> None:
        """A faulty bootstrap kubeconfig must not stop the renewal of certificates."""
        try:
            self.prepare()
            self._clear("prepare")
        except Failure as failure:
            self._report_failure("prepare", failure)

    def _clear(self, what: str) -> None:
        self._reported.pop(what, None)

    def _report_failure(self, what: str, failure: Exception) -> None:
        """Report a failure once, and then from time to time."""
        text = str(failure) if isinstance(failure, Failure) else f"unexpected {type(failure).__name__}: {failure}"
        before, times = self._reported.get(what, ("", 0))
        times = times + 1 if before == text else 0
        if times % _REPORT_AGAIN_AFTER == 0:
            self.report(text)
            self.notify(f"STATUS={text}")
        self._reported[what] = (text, times)


def notify_systemd(state: str) -> None:
    """Send a state to systemd if it started this process with ``Type=notify``; otherwise do nothing."""
    address = os.environ.get(NOTIFY_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.replace("\n", " ").encode("utf-8"), address.replace("@", "\0", 1))
