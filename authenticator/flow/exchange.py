"""One exchange with the API server: from a key to a certificate, over crashes, lost connections and challenges.

Every step is stored before it is taken. After a crash, the next run continues with the same step of the same
CertificateSigningRequest:

=====================  ==============================================================================================
stored                 next
=====================  ==============================================================================================
nothing                make a key, gather evidence, store both
of other settings      the same: corrected settings take effect at once
request, not sent      store "perhaps sent", send it
request, perhaps sent  get it; if it is not there it may still arrive, or be gone already: use a new key
request, sent          wait for the decision
challenged             gather evidence that answers, with the same key, in a request of its own
version unsupported    gather evidence of an older version that both know, with the same key, in a new request
denied, failed, gone   forget the key; pause, longer each time
=====================  ==============================================================================================

So no name is ever created twice, and one key has at most one request of each step and version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cryptography import x509

from attestors.wire.names import CHALLENGE_OF_ANOTHER_CLUSTER, Purpose, SignerName
from attestors.wire.node_access import Found, find
from attestors.wire.statement import statements_in
from authenticator.api.errors import AlreadyExists, NotDone, NotFound, PerhapsDone
from authenticator.api.server import ApiServer
from authenticator.flow.clock import Clock
from authenticator.flow.deadline import Deadline, RetryUntilDeadline
from authenticator.flow.evidence import Attestation, signing_request
from authenticator.flow.waiting import Gone, Waiting, is_same_request, metadata_of
from authenticator.model.answer import Challenged, Decision, Issued, Outdated, Refused, VersionUnsupported
from authenticator.model.attempt import Attempt, PendingRequest, Sent, Step, Subject, pause_after
from authenticator.model.certificate import UnusableCertificate, accept, load_key, new_key
from authenticator.model.failures import ApiUnavailable, CredentialRefused, Denied, Failure, NoEvidence
from authenticator.model.pair import Pair
from authenticator.store.store import Store

_SHORTEST_EVIDENCE_SECONDS: Final = 30.0
"""Evidence lives at least this long. If it seems to expire sooner, it is denied, with a pause, to avoid a loop."""

_WHERE_TO_LOOK: Final = "if it waits, `kubectl describe machine` in the management cluster says what for"
_MAXIMUM_UID_CHARACTERS: Final = 128
_VERSION: Final = re.compile(r"v[0-9]{1,4}")
"""Versions are shown to people only in this form: any client may have written the annotation."""


@dataclass(frozen=True, slots=True)
class Received:
    """A certificate with its key, checked, and what the controller wrote around it."""

    pair: Pair
    statements: tuple[bytes, ...]
    """Texts of signed statements; not verified."""
    access: Found
    """The text with SSH certificates; not verified."""
    trust_version: int
    """:attr:`authenticator.model.attempt.PendingRequest.trust_version` of the request."""


def _no_extensions(_: str) -> Sequence[x509.UnrecognizedExtension]:
    return ()


def _no_trust() -> int:
    return 0


@dataclass
class Exchange:
    """Requests one certificate. The caller holds the lock of ``purpose``."""

    store: Store
    attestation: Attestation
    server: ApiServer
    clock: Clock
    deadline: Deadline
    purpose: Purpose
    find_subject: Callable[[], Subject]
    """Determines the subject. It may call the attestor for this machine's provider ID."""
    asker: str
    """Digest of the configuration with which this node makes requests, including the attestor's settings."""
    credential: str
    """Digest of the bootstrap credential that authenticates the request; empty for a certificate."""
    report: Callable[[str], None]
    """Prints progress for a person."""
    further: Callable[[str], Sequence[x509.UnrecognizedExtension]] = _no_extensions
    """Further extensions of a request with this key (PEM)."""
    trust_version: Callable[[], int] = _no_trust
    """:attr:`authenticator.model.attempt.PendingRequest.trust_version` of a request that is made now."""
    subject: Subject = field(init=False)
    _cluster_created_again: float = field(init=False, default=float("-inf"))
    """When this exchange last met a Cluster object that was created again, in seconds of the monotonic clock."""

    def __post_init__(self) -> None:
        self._retry = RetryUntilDeadline(self.deadline, self.report)

    def run(self) -> Received:
        """The certificate with its key, checked, but not stored yet; the attempt is still stored.

        Raises:
            Failure: there is none; a refusal is stored, with a pause.
        """
        try:
            self.subject = self.find_subject()
        except NoEvidence as failure:
            # A pending request stays: it is waited for once the provider ID is available.
            self._remember(failure, pending=self.store.attempt(self.purpose).pending)
            raise
        try:
            return self._run()
        except (Denied, Gone, NoEvidence) as failure:
            self._remember(failure, pending=None)
            raise
        except CredentialRefused as failure:
            # Another credential may continue the same request.
            self._remember(failure, pending=self.store.attempt(self.purpose).pending)
            raise

    def _run(self) -> Received:
        stored = self._stored()
        made = self.clock.monotonic() if stored is None else float("-inf")
        pending = stored or self._fresh()
        while True:
            pending, answer = self._decision(pending)
            if isinstance(answer, Issued):
                return self._accept(answer, pending)
            if isinstance(answer, Refused):
                raise Denied(f"{pending.name} was {answer}")
            if isinstance(answer, Outdated):
                made = self._outdated(pending.name, answer, made)
                pending = self._fresh()
            elif isinstance(answer, Challenged):
                pending = self._challenged(pending, answer)
            else:
                pending = self._with_older_version(pending, answer)

    def _outdated(self, name: str, answer: Outdated, made: float) -> float:
        """Report it; returns when the next evidence is made, in seconds of the monotonic clock.

        Raises:
            Denied: the evidence, made at ``made``, was new.
        """
        now = self.clock.monotonic()
        if answer.reason == CHALLENGE_OF_ANOTHER_CLUSTER:
            if now - self._cluster_created_again < _SHORTEST_EVIDENCE_SECONDS:
                raise Denied(f"{name} was {answer} (twice: do two controllers serve this cluster?)")
            self._cluster_created_again = now
            self.report(f"{name}: the Cluster object was created again; requesting anew")
            return now
        if now - made < _SHORTEST_EVIDENCE_SECONDS:
            raise Denied(f"{name} was {answer} (it was new: are this node's and the controller's clocks right?)")
        self.report(f"{name} waited longer than its evidence is valid; requesting anew")
        return now

    # Building requests.

    def _stored(self) -> PendingRequest | None:
        pending = self.store.attempt(self.purpose).pending
        if pending is None or pending.subject != self.subject:
            return None
        try:
            load_key(pending.key)
        except ValueError:
            return None  # no certificate exists for this key, and none would be usable
        if pending.asker and pending.asker != self.asker:
            # It may wait for ever for something that was corrected here, such as the attestor's choice of a key.
            self.report(f"{pending.name} was made with other settings; requesting anew")
            return None
        return pending if pending.evidence_version in self.attestation.versions() else None

    def _fresh(self) -> PendingRequest:
        versions = self.attestation.versions()
        if not versions:
            raise NoEvidence(f"attestor {self.subject.provider} writes no known evidence version: upgrade")
        return self._gathered(new_key(), versions[-1], tried=(), challenge="")

    def _challenged(self, pending: PendingRequest, answer: Challenged) -> PendingRequest:
        if pending.step is Step.ANSWER:
            raise Denied(f"{pending.name} answered a challenge and was challenged again; starting anew")
        self.report("the controller challenges this node; answering")
        return self._gathered(
            pending.key, pending.evidence_version, tried=pending.tried_versions, challenge=answer.challenge
        )

    def _with_older_version(self, pending: PendingRequest, answer: VersionUnsupported) -> PendingRequest:
        known = [
            version
            for version in self.attestation.versions()
            if version in answer.supported and version not in pending.tried_versions
        ]
        if not known:
            read = [version for version in answer.supported if _VERSION.fullmatch(version)]
            raise Denied(
                f"the controller reads evidence of {', '.join(read) or 'no version'} from attestor "
                f"{self.subject.provider}, this node writes {', '.join(self.attestation.versions())}: upgrade the older"
            )
        self.report(f"the controller does not read evidence {pending.evidence_version}; retrying with {known[-1]}")
        return self._gathered(pending.key, known[-1], tried=pending.tried_versions, challenge="")

    def _gathered(self, key: str, version: str, *, tried: tuple[str, ...], challenge: str) -> PendingRequest:
        trust_version = self.trust_version()  # first: the request may report a newer one
        pending = self.attestation.pending_request(
            self.subject,
            key,
            purpose=self.purpose,
            evidence_version=version,
            tried=tried,
            challenge=challenge,
            further=self.further(key),
        )
        return self._save(replace(pending, asker=self.asker, trust_version=trust_version))

    # Sending and waiting.

    def _decision(self, pending: PendingRequest) -> tuple[PendingRequest, Decision]:
        """Send ``pending`` unless it was sent, and wait for the decision.

        Returns the decision with the request that was decided: a new one if ``pending`` was lost.
        """
        seen: dict[str, Any] | None = None
        if pending.sent is Sent.YES:
            self.report(f"waiting for {pending.name}, which was requested before; {_WHERE_TO_LOOK}")
        while pending.sent is not Sent.YES:
            if pending.sent is Sent.MAYBE:
                pending, seen = self._find(pending)
            if pending.sent is Sent.NO:
                pending, seen = self._send(pending)
        return pending, Waiting(self.server, self._retry, pending).decision(seen)

    def _send(self, pending: PendingRequest) -> tuple[PendingRequest, dict[str, Any] | None]:
        perhaps = self._save(replace(pending, sent=Sent.MAYBE))
        try:
            created = self.server.create(signing_request(pending, self.purpose))
        except AlreadyExists as error:
            # A proxy sent it twice, or an answer was lost. It stays invisible only if the server misbehaves.
            if not self.deadline.back_off():
                raise ApiUnavailable(str(error)) from error
            return perhaps, None
        except PerhapsDone as error:
            self._retry.wait_after(error)
            return perhaps, None
        except NotDone as error:
            self._save(pending)
            self._retry.wait_after(error)
            return pending, None
        self.report(f"requested {SignerName(self.purpose, self.subject.provider)} as {pending.name}; {_WHERE_TO_LOOK}")
        return self._sent(perhaps, created), created

    def _find(self, pending: PendingRequest) -> tuple[PendingRequest, dict[str, Any] | None]:
        try:
            found = self._retry.call(lambda: self.server.get(pending.name))
        except NotFound:
            # Never the same name twice: the lost request may still arrive, or it existed and is gone.
            return self._fresh(), None
        if not is_same_request(found, pending):
            return self._fresh(), None
        return self._sent(pending, found), found

    def _sent(self, pending: PendingRequest, created: dict[str, Any]) -> PendingRequest:
        uid = metadata_of(created).get("uid")
        # A text longer than any UID is not kept: the request's content identifies it too.
        known = uid if isinstance(uid, str) and len(uid) <= _MAXIMUM_UID_CHARACTERS else ""
        return self._save(replace(pending, sent=Sent.YES, uid=known))

    def _accept(self, issued: Issued, pending: PendingRequest) -> Received:
        try:
            pair = accept(
                issued.certificate,
                pending.key,
                node_name=self.subject.node_name,
                purpose=self.purpose,
                dns_names=self.subject.dns_names,
                ip_addresses=self.subject.ip_addresses,
                now=self.clock.today(),
            )
        except UnusableCertificate as error:
            raise Denied(f"the certificate of {pending.name} is unusable: {error}") from error
        text = issued.certificate
        return Received(pair, statements_in(text), find(text), pending.trust_version)

    # Storing.

    def _save(self, pending: PendingRequest) -> PendingRequest:
        self.store.save_attempt(self.purpose, Attempt(pending, self.store.attempt(self.purpose).pause))
        return pending

    def _remember(self, failure: Failure, *, pending: PendingRequest | None) -> None:
        pause = pause_after(
            self.store.attempt(self.purpose).pause,
            exit_code=failure.exit_code,
            message=str(failure),
            credential=self.credential,
            now=self.clock.now(),
            jitter=self.clock.jitter(),
        )
        self.store.save_attempt(self.purpose, Attempt(pending, pause))
