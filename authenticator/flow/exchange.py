"""One exchange with the API server: from a key to a certificate, over crashes, lost connections and challenges.

Every step is stored before it is taken, so that whoever comes back after a crash goes on with the same step of the same
CertificateSigningRequest:

=====================  ==============================================================================================
stored                 next
=====================  ==============================================================================================
nothing                make a key, gather evidence, store both
request, not sent      store "perhaps sent", send it
request, perhaps sent  look whether it is there; if not, it may still come or be gone again: never twice, so a new key
request, sent          wait for the decision
challenged             gather evidence that answers, with the same key; a request of its own
version unsupported    gather evidence of an older version both know, with the same key; a request of its own
denied, failed, gone   forget the key; keep still for a while that grows with each time
=====================  ==============================================================================================

So no name is ever created twice, and for one key there is at most one request of each step and version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from attestors.wire.names import Purpose, SignerName
from authenticator.api.errors import (
    AlreadyExists,
    Busy,
    CallFailed,
    Expired,
    Forbidden,
    NotDone,
    NotFound,
    PerhapsDone,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from authenticator.api.server import ApiServer
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation, signing_request
from authenticator.model.answer import (
    Answer,
    Challenged,
    Decision,
    Issued,
    Outdated,
    Refused,
    Undecided,
    VersionUnsupported,
    read_answer,
)
from authenticator.model.attempt import Attempt, PendingRequest, Sent, Step, Subject, pause_after
from authenticator.model.certificate import UnusableCertificate, accept, load_key, new_key
from authenticator.model.failures import (
    ApiUnavailable,
    CredentialRefused,
    Denied,
    Failure,
    NoEvidence,
    StillPending,
    UntrustedServer,
)
from authenticator.model.pair import Pair
from authenticator.store.store import Store

_FIRST_BACKOFF_SECONDS: Final = 0.25
_LONGEST_BACKOFF_SECONDS: Final = 15.0
_LONGEST_WATCH_SECONDS: Final = 300.0
_SHORTEST_WATCH_SECONDS: Final = 1.0

_SHORTEST_EVIDENCE_SECONDS: Final = 30.0
"""No evidence runs out sooner; what is said to have is denied, with a pause, or it would be asked without end."""

_MAXIMUM_UID_CHARACTERS: Final = 128
_VERSION: Final = re.compile(r"v[0-9]{1,4}")
"""What is shown to people of an annotation that anybody may have written."""

_T = TypeVar("_T")


class Gone(Failure):
    """The request was deleted, or another stands in its place."""

    exit_code = Denied.exit_code


@dataclass
class Deadline:
    """Until when to be patient, and how long to wait before the next try."""

    clock: Clock
    seconds: float

    def __post_init__(self) -> None:
        self._end = self.clock.monotonic() + self.seconds
        self._backoff = _FIRST_BACKOFF_SECONDS

    def left(self) -> float:
        """Seconds; negative behind the end."""
        return self._end - self.clock.monotonic()

    def back_off(self, *, at_least: float = 0.0) -> bool:
        """Sleep before the next try; False, at once, where there is no time left for it."""
        pause = max(self._backoff * (0.75 + self.clock.jitter() / 2), at_least)
        if pause >= self.left():
            return False
        self.clock.sleep(pause)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF_SECONDS)
        return True


@dataclass
class Exchange:
    """Ask for one certificate. The caller holds the lock of ``purpose``."""

    store: Store
    attestation: Attestation
    server: ApiServer
    clock: Clock
    deadline: Deadline
    purpose: Purpose
    find_subject: Callable[[], Subject]
    """Who asks whom for what. It may have to ask, too: for this machine's provider ID."""
    credential: str
    """Digest of the bootstrap credential that ``server`` is asked with, empty for a certificate."""
    report: Callable[[str], None]
    """Says to a person what is going on."""
    subject: Subject = field(init=False)

    def run(self) -> Pair:
        """The certificate and its key, checked, not stored yet; the attempt is still stored.

        Raises:
            Failure: there is none; what was refused is remembered, with a pause.
        """
        try:
            self.subject = self.find_subject()
        except NoEvidence as failure:
            # What is under way is waited for once it can be found out.
            self._remember(failure, pending=self.store.attempt(self.purpose).pending)
            raise
        try:
            return self._run()
        except (Denied, Gone, NoEvidence) as failure:
            self._remember(failure, pending=None)
            raise
        except CredentialRefused as failure:
            # Another credential may go on with the same request.
            self._remember(failure, pending=self.store.attempt(self.purpose).pending)
            raise

    def _run(self) -> Pair:
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
                if self.clock.monotonic() - made < _SHORTEST_EVIDENCE_SECONDS:
                    raise Denied(f"{pending.name} was {answer} (it was new: is this node's clock right?)")
                self.report(f"{pending.name} waited longer than its evidence is good for; asking anew")
                made = self.clock.monotonic()
                pending = self._fresh()
            elif isinstance(answer, Challenged):
                pending = self._challenged(pending, answer)
            else:
                pending = self._refiled(pending, answer)

    # What is sent.

    def _stored(self) -> PendingRequest | None:
        pending = self.store.attempt(self.purpose).pending
        if pending is None or pending.subject != self.subject:
            return None
        try:
            load_key(pending.key)
        except ValueError:
            return None  # nobody has a certificate for it, and nobody could use one
        return pending if pending.evidence_version in self.attestation.versions() else None

    def _fresh(self) -> PendingRequest:
        versions = self.attestation.versions()
        if not versions:
            raise NoEvidence(f"attestor {self.subject.provider} writes no evidence version that is known here: upgrade")
        return self._gathered(new_key(), versions[-1], tried=(), challenge="")

    def _challenged(self, pending: PendingRequest, answer: Challenged) -> PendingRequest:
        if pending.step is Step.ANSWER:
            raise Denied(f"{pending.name} answered a challenge and was challenged again; starting anew")
        self.report("the controller challenges this node; answering")
        return self._gathered(
            pending.key, pending.evidence_version, tried=pending.tried_versions, challenge=answer.challenge
        )

    def _refiled(self, pending: PendingRequest, answer: VersionUnsupported) -> PendingRequest:
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
        self.report(f"the controller does not read evidence {pending.evidence_version}; filing again with {known[-1]}")
        return self._gathered(pending.key, known[-1], tried=pending.tried_versions, challenge="")

    def _gathered(self, key: str, version: str, *, tried: tuple[str, ...], challenge: str) -> PendingRequest:
        pending = self.attestation.pending_request(
            self.subject, key, purpose=self.purpose, evidence_version=version, tried=tried, challenge=challenge
        )
        return self._save(pending)

    # What becomes of it.

    def _decision(self, pending: PendingRequest) -> tuple[PendingRequest, Decision]:
        """Send ``pending`` where it was not sent, and wait until somebody decides.

        Returned with the request that was decided: another one, where ``pending`` was lost.
        """
        seen: dict[str, Any] | None = None
        while pending.sent is not Sent.YES:
            if pending.sent is Sent.MAYBE:
                pending, seen = self._find(pending)
            if pending.sent is Sent.NO:
                pending, seen = self._send(pending)
        return pending, self._wait(pending, seen)

    def _send(self, pending: PendingRequest) -> tuple[PendingRequest, dict[str, Any] | None]:
        perhaps = self._save(replace(pending, sent=Sent.MAYBE))
        try:
            created = self.server.create(signing_request(pending, self.purpose))
        except AlreadyExists as error:
            # A proxy sent it twice, or an answer was lost. It is slow to be there only where the server lies.
            if not self.deadline.back_off():
                raise ApiUnavailable(str(error)) from error
            return perhaps, None
        except PerhapsDone as error:
            self._again(error)
            return perhaps, None
        except NotDone as error:
            self._save(pending)
            self._again(error)
            return pending, None
        self.report(f"asked for {SignerName(self.purpose, self.subject.provider)} as {pending.name}")
        return self._sent(perhaps, created), created

    def _find(self, pending: PendingRequest) -> tuple[PendingRequest, dict[str, Any] | None]:
        try:
            found = self._patiently(lambda: self.server.get(pending.name))
        except NotFound:
            # Never the same name twice: the lost request may still arrive, or it was there and is gone.
            return self._fresh(), None
        if not _is_the_same(found, pending):
            return self._fresh(), None
        return self._sent(pending, found), found

    def _sent(self, pending: PendingRequest, created: dict[str, Any]) -> PendingRequest:
        uid = _metadata(created).get("uid")
        # What is longer than any UID is not kept: the request's content tells it, too.
        known = uid if isinstance(uid, str) and len(uid) <= _MAXIMUM_UID_CHARACTERS else ""
        return self._save(replace(pending, sent=Sent.YES, uid=known))

    def _wait(self, pending: PendingRequest, seen: dict[str, Any] | None) -> Decision:
        while True:
            found = seen if seen is not None else self._look(pending)
            seen = None
            answer = self._judge(found, pending)
            if not isinstance(answer, Undecided):
                return answer
            if self.deadline.left() <= 0:
                raise StillPending(self._still_pending(pending, answer))
            began = self.clock.monotonic()
            decided = self._watch(pending, str(_metadata(found).get("resourceVersion", "")))
            if decided is not None:
                return decided
            if self.clock.monotonic() - began < _SHORTEST_WATCH_SECONDS and not self.deadline.back_off():
                raise StillPending(self._still_pending(pending, answer))

    def _look(self, pending: PendingRequest) -> dict[str, Any]:
        try:
            return self._patiently(lambda: self.server.get(pending.name))
        except NotFound:
            raise Gone(_gone(pending)) from None

    def _watch(self, pending: PendingRequest, resource_version: str) -> Decision | None:
        """The decision, or None when the watch ended or broke without one."""
        seconds = min(max(self.deadline.left(), _SHORTEST_WATCH_SECONDS), _LONGEST_WATCH_SECONDS)
        try:
            for event in self.server.watch(pending.name, resource_version, seconds=seconds):
                if event.type == "DELETED":
                    raise Gone(_gone(pending))
                if event.type in ("ADDED", "MODIFIED"):
                    answer = self._judge(event.object, pending)
                    if not isinstance(answer, Undecided):
                        return answer
                elif event.type == "ERROR":
                    return None  # too old a resourceVersion, as a rule: look again
        except (Unreachable, Busy, Expired, PerhapsDone):
            return None
        except CallFailed as error:
            raise _lasting(error) from error
        return None

    def _judge(self, found: dict[str, Any], pending: PendingRequest) -> Answer:
        if not _is_the_same(found, pending):
            raise Gone(_gone(pending))
        return read_answer(found)

    def _accept(self, issued: Issued, pending: PendingRequest) -> Pair:
        try:
            return accept(
                issued.certificate,
                pending.key,
                node_name=self.subject.node_name,
                purpose=self.purpose,
                dns_names=self.subject.dns_names,
                ip_addresses=self.subject.ip_addresses,
                now=self.clock.today(),
            )
        except UnusableCertificate as error:
            raise Denied(f"the certificate of {pending.name} is of no use: {error}") from error

    # Calls that may fail for a while.

    def _patiently(self, call: Callable[[], _T]) -> _T:
        while True:
            try:
                return call()
            except NotFound:
                raise
            except CallFailed as error:
                self._again(error)

    def _again(self, error: CallFailed) -> None:
        """Return when it is time to try again.

        Raises:
            Failure: it would not help, or there is no time left.
        """
        if not isinstance(error, (Unreachable, Busy, PerhapsDone)):
            raise _lasting(error) from error
        retry_after = error.retry_after if isinstance(error, Busy) else 0.0
        if not self.deadline.back_off(at_least=retry_after):
            raise ApiUnavailable(str(error)) from error
        self.report(f"{error}; trying again")

    # What is remembered.

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

    def _still_pending(self, pending: PendingRequest, answer: Undecided) -> str:
        what = "is approved and not signed" if answer.approved else "has been waiting for a decision"
        return (
            f"{pending.name} {what}, and {self.deadline.seconds:.0f} s are over; the same request is waited for next "
            "time. Does node-attestation-controller watch this cluster, does its NodeAttestationPolicy authorize "
            f"attestor {self.subject.provider}, and has the Machine its provider ID {self.subject.provider_id}?"
        )


def _lasting(error: CallFailed) -> Failure:
    """What a call that need not be tried again means for a person."""
    if isinstance(error, Untrusted):
        return UntrustedServer(str(error))
    if isinstance(error, Unauthorized):
        return CredentialRefused(
            f"{error}. The bootstrap token has run out or was removed, or the certificate is none of this cluster: "
            "supply a new bootstrap kubeconfig"
        )
    if isinstance(error, Forbidden):
        return CredentialRefused(
            f"{error}. The credential may not create, get and watch CertificateSigningRequests: is it a bootstrap "
            "token of group system:bootstrappers, and are kubeadm's grants for it there?"
        )
    return Denied(f"the API server refused the request: {error}")


def _is_the_same(found: dict[str, Any], pending: PendingRequest) -> bool:
    """Whether ``found`` is the request that was sent, and not one that somebody put in its place."""
    spec = found.get("spec")
    same_content = isinstance(spec, dict) and spec.get("request") == pending.request
    return same_content and (not pending.uid or _metadata(found).get("uid") == pending.uid)


def _metadata(found: dict[str, Any]) -> dict[str, Any]:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _gone(pending: PendingRequest) -> str:
    return f"{pending.name} was deleted before it was decided; the next one will have a new key"
