"""The node's client certificate and its key: requested with a bootstrap token, and renewed with the certificate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from attestors.wire.names import Purpose
from authenticator.flow.asking import Requester, client_certificate
from authenticator.flow.bootstrap import import_bootstrap, is_elsewhere
from authenticator.flow.deadline import Deadline
from authenticator.flow.exchange import Received
from authenticator.flow.mismatches import require_own_name
from authenticator.flow.pauses import paused
from authenticator.flow.pinning import pin_controller
from authenticator.model.attempt import LONGEST_PAUSE_SECONDS, Attempt, Pause, pause_after, pause_in_force
from authenticator.model.cluster import Bootstrap, Cluster
from authenticator.model.failures import ExitCode, Failure, NoCredential, StillPending
from authenticator.model.pair import RETRY_SECONDS, Pair
from authenticator.model.plan import (
    Expired,
    Join,
    KeepStill,
    Next,
    Nothing,
    Renew,
    Use,
    next_step,
    renewal_time,
)
from authenticator.model.reported_trust import ReportedTrust
from authenticator.model.unix_time import time_text
from authenticator.store.lock import LockHeld
from authenticator.store.store import KnownCluster

_FLOOR_SECONDS: Final = 30
"""Minimum pause after a new certificate that is already due for renewal, because it is short or the clock is wrong."""
_NEARLY_OVER: Final = "the new certificate has almost expired: is this node's clock right?"


class ClientPair:
    """The stored client certificate, and its renewal."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._configuration, self._store = requester.configuration, requester.store
        self._clock, self._report = requester.clock, requester.report

    def use(self, *, share: float, timeout: float) -> Use:
        """A valid certificate, and the time of the next step: see :meth:`.certificates.NodeCertificates.client`.

        Raises:
            Failure: there is no valid certificate.
        """
        self._store.open()
        deadline = self._requester.deadline()
        planned = self._next(share)
        if isinstance(planned, Use) and not self._store.keeps_bootstrap():
            return planned
        try:
            with self._locked(planned, deadline):
                return self._use_locked(share, timeout, deadline)
        except LockHeld:
            if isinstance(planned, (Use, Renew)):
                return Use(planned.pair, self._clock.now() + RETRY_SECONDS)
            raise

    def _use_locked(self, share: float, timeout: float, deadline: Deadline) -> Use:
        with self._store.bootstrap_lock():
            self._finish_interrupted()
            self._import_bootstrap()
        planned = self._next(share)
        if isinstance(planned, Use):
            return planned
        if isinstance(planned, Renew):
            return self._renew(planned.pair, share, Deadline(self._clock, min(timeout, self._configuration.timeout)))
        if isinstance(planned, Join):
            return self._join(planned.bootstrap, share, deadline)
        if isinstance(planned, KeepStill):
            raise paused(planned.pause)
        raise self._no_credential(planned)

    def _join(self, bootstrap: Bootstrap, share: float, deadline: Deadline) -> Use:
        fresh = self._requester.request(
            Purpose.CLIENT,
            bootstrap.cluster,
            bootstrap.credential,
            self._configuration.asker + bootstrap.digest,
            deadline,
        )
        return self._keep(fresh, bootstrap.cluster, bootstrap.digest, share)

    def _renew(self, pair: Pair, share: float, deadline: Deadline) -> Use:
        """Renew. Whatever fails, the stored pair stays in use until it expires."""
        known = self._store.known_cluster()
        try:
            cluster = self._requester.cluster()
            require_own_name(self._configuration, pair)
            asker = self._configuration.asker
            fresh = self._requester.request(Purpose.CLIENT, cluster, client_certificate(pair), asker, deadline)
        except StillPending as failure:
            overdue = str(failure)
            until = self._clock.now() + RETRY_SECONDS
        except Failure as failure:
            self._report(f"the certificate was not renewed: {failure}")
            overdue = str(failure)
            until = self._pause_renewal(failure, pair)
        else:
            return self._keep(fresh, cluster, known.used if known is not None else "", share)
        return Use(pair, min(until, pair.not_after), overdue)

    def _pause_renewal(self, failure: Failure, pair: Pair) -> int:
        """When to retry: later each time, but several times before the certificate expires."""
        now = self._clock.now()
        attempt = self._store.attempt(Purpose.CLIENT)
        pause = attempt.pause
        if pause is None or not pause_in_force(pause, credential=self._configuration.asker, now=now):
            pause = pause_after(
                pause,
                exit_code=failure.exit_code,
                message=str(failure),
                credential=self._configuration.asker,
                now=now,
                jitter=self._clock.jitter(),
            )
        bounded = Pause(
            min(pause.until, now + max(1, (pair.not_after - now) // 4)),
            pause.failures,
            pause.exit_code,
            pause.message,
            pause.credential,
        )
        self._store.save_attempt(Purpose.CLIENT, Attempt(attempt.pending, bounded))
        return bounded.until

    def _keep(self, received: Received, cluster: Cluster, used: str, share: float) -> Use:
        """Store a certificate. After a crash in between, the bootstrap credential is still there until the pair is.

        The credential is wiped last: while it exists, the next run finishes this step.
        """
        fresh = received.pair
        reported = ReportedTrust.of(fresh, received.trust_version)
        known = KnownCluster(cluster, used, self._configuration.provider, self._requester.provider_id(), reported)
        with self._store.bootstrap_lock():
            copied = self._store.bootstrap()
            if copied is not None and is_elsewhere(self._store, known.cluster, copied.cluster):
                self._store.save_attempt(Purpose.CLIENT, Attempt())
                raise StillPending(
                    "meanwhile, a bootstrap kubeconfig of another cluster was supplied: the new certificate is not "
                    "used, and that cluster is next"
                )
            self._store.save_known_cluster(known)
            pin_controller(self._store, received.statements, cluster, now=self._clock.now(), report=self._report)
            self._requester.host_certificates.receive(received.access)
            self._store.save_pair(Purpose.CLIENT, fresh)
            self._store.save_attempt(Purpose.CLIENT, Attempt(pause=self._floor(fresh, share)))
            self._store.wipe_bootstrap()
        self._report(f"the certificate of node {self._configuration.node_name} is in {self._store.folder}")
        return Use(fresh, renewal_time(fresh, share))

    def _floor(self, fresh: Pair, share: float) -> Pause | None:
        """A pause if the new certificate is already due for renewal: each renewal costs an entry in the journal.

        It doubles each time, as after a refusal: a whole fleet may have the wrong time.
        """
        now = self._clock.now()
        if now < renewal_time(fresh, share):
            return None
        self._report(_NEARLY_OVER)
        before = self._store.attempt(Purpose.CLIENT).pause
        failures = before.failures + 1 if before is not None and before.message == _NEARLY_OVER else 1
        seconds = min(_FLOOR_SECONDS * 2 ** min(failures - 1, 12), LONGEST_PAUSE_SECONDS)
        seconds = max(min(seconds, (fresh.not_after - now) // 4), _FLOOR_SECONDS)
        return Pause(now + seconds, failures, ExitCode.DENIED, _NEARLY_OVER, self._configuration.asker)

    def _finish_interrupted(self) -> None:
        """Finish the cleanup after a crash that followed the storing of a pair: a valid certificate needs no token."""
        pair = self._store.pair(Purpose.CLIENT)
        if pair is None:
            return
        attempt = self._store.attempt(Purpose.CLIENT)
        if attempt.pending is not None and attempt.pending.key == pair.key:
            self._store.save_attempt(Purpose.CLIENT, Attempt())
        if self._clock.now() < pair.not_after:
            self._store.wipe_bootstrap()

    def _import_bootstrap(self) -> None:
        """A faulty bootstrap kubeconfig must not stop the renewal of a certificate."""
        try:
            import_bootstrap(self._configuration, self._store, now=self._clock.now())
        except Failure as failure:
            pair = self._store.pair(Purpose.CLIENT)
            if pair is None or self._clock.now() >= pair.not_after:
                raise
            self._report(f"the bootstrap credential is not copied: {failure}")

    def _next(self, share: float) -> Next:
        pair = self._store.pair(Purpose.CLIENT)
        now = self._clock.now()
        if self._store.trust_state().is_superseded(Purpose.CLIENT, pair):
            share = 1.0  # the controller waits for evidence that names the new CA
        elif self._store.renewal_state().is_due(pair, now):
            share = 1.0  # the controller waits for a certificate by another CA
        elif pair is not None and self._requester.host_certificates.wants_renewal(pair):
            share = 1.0  # the controller waits for the version of the trust that this node has
        # Whether the attestor renews matters only near the end; until then it need not be imported.
        due = pair is not None and renewal_time(pair, share) <= now < pair.not_after
        return next_step(
            pair,
            self._store.bootstrap(),
            self._store.attempt(Purpose.CLIENT),
            renews=self._requester.attestation.description.renews if due else True,
            now=now,
            share=share,
            asker=self._configuration.asker,
        )

    @contextlib.contextmanager
    def _locked(self, planned: Next, deadline: Deadline) -> Iterator[None]:
        # With a valid certificate, do not wait for another process that renews it.
        timeout = 0.0 if isinstance(planned, (Use, Renew)) else deadline.left()
        with self._store.lock(Purpose.CLIENT, timeout=timeout):
            yield

    def _no_credential(self, planned: Next) -> NoCredential:
        where = self._configuration.bootstrap_kubeconfig
        supply = f"Supply a new bootstrap kubeconfig as {where} (with Cluster API: let the Machine be replaced)"
        if isinstance(planned, Expired):
            when = time_text(planned.not_after)
            return NoCredential(
                f"the certificate in {self._store.folder} expired at {when}, and only a valid one can be renewed. "
                f"{supply}; one that was used before does not count. Is this node's clock right?"
            )
        if not isinstance(planned, Nothing):
            raise TypeError(f"{type(planned).__name__} leaves something to do")
        return NoCredential(f"there is no certificate in {self._store.folder} and no bootstrap kubeconfig. {supply}")
