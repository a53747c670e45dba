"""The node's client certificate and its key: asked for with a bootstrap token, and renewed with themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from attestors.wire.names import Purpose
from authenticator.flow.asking import Asking, client_certificate
from authenticator.flow.bootstrap import take_in
from authenticator.flow.deadline import Deadline
from authenticator.flow.pauses import paused
from authenticator.model.attempt import LONGEST_PAUSE_SECONDS, Attempt, Pause, pause_after, pause_in_force
from authenticator.model.cluster import Bootstrap
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
from authenticator.model.unix_time import time_text
from authenticator.store.lock import LockHeld
from authenticator.store.store import KnownCluster

_FLOOR_SECONDS: Final = 30
"""After a certificate came that is due for renewal at once, because it is so short or the clock so wrong; at least."""
_NEARLY_OVER: Final = "the certificate that came has almost run out: is this node's clock right?"


class ClientPair:
    """Which client certificate is there, and how the next one comes to be there."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._configuration, self._store = asking.configuration, asking.store
        self._clock, self._report = asking.clock, asking.report

    def use(self, *, share: float, timeout: float) -> Use:
        """A valid one, and until when there is nothing to do: see :meth:`.certificates.NodeCertificates.client`.

        Raises:
            Failure: there is none.
        """
        self._store.open()
        deadline = self._asking.deadline()
        next_thing = self._next(share)
        if isinstance(next_thing, Use) and not self._store.keeps_bootstrap():
            return next_thing
        try:
            with self._locked(next_thing, deadline):
                return self._use_locked(share, timeout, deadline)
        except LockHeld:
            if isinstance(next_thing, (Use, Renew)):
                return Use(next_thing.pair, self._clock.now() + RETRY_SECONDS)
            raise

    def _use_locked(self, share: float, timeout: float, deadline: Deadline) -> Use:
        with self._store.bootstrap_lock():
            self._tidy()
            self._take_in()
        next_thing = self._next(share)
        if isinstance(next_thing, Use):
            return next_thing
        if isinstance(next_thing, Renew):
            return self._renew(next_thing.pair, share, Deadline(self._clock, min(timeout, self._configuration.timeout)))
        if isinstance(next_thing, Join):
            return self._join(next_thing.bootstrap, share, deadline)
        if isinstance(next_thing, KeepStill):
            raise paused(next_thing.pause)
        raise self._nothing_to_ask_with(next_thing)

    def _join(self, bootstrap: Bootstrap, share: float, deadline: Deadline) -> Use:
        fresh = self._asking.ask(
            Purpose.CLIENT,
            bootstrap.cluster,
            bootstrap.credential,
            self._configuration.asker + bootstrap.digest,
            deadline,
        )
        return self._keep(fresh, KnownCluster(bootstrap.cluster, bootstrap.digest), share)

    def _renew(self, pair: Pair, share: float, deadline: Deadline) -> Use:
        """Renew; whatever goes wrong, the pair that is there stays good until it runs out."""
        known = self._store.known_cluster()
        try:
            cluster = self._asking.cluster()
            asker = self._configuration.asker
            fresh = self._asking.ask(Purpose.CLIENT, cluster, client_certificate(pair), asker, deadline)
        except StillPending as failure:
            overdue = str(failure)
            until = self._clock.now() + RETRY_SECONDS
        except Failure as failure:
            self._report(f"the certificate was not renewed: {failure}")
            overdue = str(failure)
            until = self._pause_renewal(failure, pair)
        else:
            return self._keep(fresh, KnownCluster(cluster, known.used if known is not None else ""), share)
        return Use(pair, min(until, pair.not_after), overdue)

    def _pause_renewal(self, failure: Failure, pair: Pair) -> int:
        """When to try again: later each time, but several times before the certificate runs out."""
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

    def _keep(self, fresh: Pair, known: KnownCluster, share: float) -> Use:
        """Store a certificate. A crash in between leaves the bootstrap credential until the pair is there.

        It is wiped last: while it is there, the next run tidies up.
        """
        with self._store.bootstrap_lock():
            copied = self._store.bootstrap()
            if copied is not None and not copied.cluster.shares_authority_with(known.cluster):
                self._store.save_attempt(Purpose.CLIENT, Attempt())
                raise StillPending(
                    "meanwhile, a bootstrap kubeconfig of another cluster was supplied: the certificate that came "
                    "is not used, and that cluster is asked next"
                )
            self._store.save_known_cluster(known)
            self._store.save_pair(Purpose.CLIENT, fresh)
            self._store.save_attempt(Purpose.CLIENT, Attempt(pause=self._floor(fresh, share)))
            self._store.wipe_bootstrap()
        self._report(f"the certificate of node {self._configuration.node_name} is in {self._store.folder}")
        return Use(fresh, renewal_time(fresh, share))

    def _floor(self, fresh: Pair, share: float) -> Pause | None:
        """A pause where the certificate that just came is due again: each renewal costs an entry in the journal.

        It is twice as long each time, as behind a refusal: a whole fleet may have been told the wrong time.
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

    def _tidy(self) -> None:
        """Finish what a crash behind the storing of a pair left undone: who has a certificate needs no token."""
        pair = self._store.pair(Purpose.CLIENT)
        if pair is None:
            return
        attempt = self._store.attempt(Purpose.CLIENT)
        if attempt.pending is not None and attempt.pending.key == pair.key:
            self._store.save_attempt(Purpose.CLIENT, Attempt())
        if self._clock.now() < pair.not_after:
            self._store.wipe_bootstrap()

    def _take_in(self) -> None:
        """What is wrong with a bootstrap kubeconfig is no reason to let a certificate run out."""
        try:
            take_in(self._configuration, self._store, now=self._clock.now())
        except Failure as failure:
            pair = self._store.pair(Purpose.CLIENT)
            if pair is None or self._clock.now() >= pair.not_after:
                raise
            self._report(f"it is not taken in: {failure}")

    def _next(self, share: float) -> Next:
        pair = self._store.pair(Purpose.CLIENT)
        now = self._clock.now()
        # Only near its end does it matter whether the attestor renews; until then it need not be imported.
        due = pair is not None and renewal_time(pair, share) <= now < pair.not_after
        return next_step(
            pair,
            self._store.bootstrap(),
            self._store.attempt(Purpose.CLIENT),
            renews=self._asking.attestation.description.renews if due else True,
            now=now,
            share=share,
            asker=self._configuration.asker,
        )

    @contextlib.contextmanager
    def _locked(self, next_thing: Next, deadline: Deadline) -> Iterator[None]:
        # Who has a valid certificate does not wait for somebody else who is renewing it.
        timeout = 0.0 if isinstance(next_thing, (Use, Renew)) else deadline.left()
        with self._store.lock(Purpose.CLIENT, timeout=timeout):
            yield

    def _nothing_to_ask_with(self, next_thing: Next) -> NoCredential:
        where = self._configuration.bootstrap_kubeconfig
        supply = f"Supply a new bootstrap kubeconfig as {where} (with Cluster API: let the Machine be replaced)"
        if isinstance(next_thing, Expired):
            when = time_text(next_thing.not_after)
            return NoCredential(
                f"the certificate in {self._store.folder} ran out at {when}, and only a valid one can be renewed. "
                f"{supply}; one that was used before does not count. Is this node's clock right?"
            )
        if not isinstance(next_thing, Nothing):
            raise TypeError(f"{type(next_thing).__name__} leaves something to do")
        return NoCredential(f"there is no certificate in {self._store.folder} and no bootstrap kubeconfig. {supply}")
