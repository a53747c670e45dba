"""One exchange with the API server: from a key to a certificate, over crashes, lost connections and challenges.

Every step is stored before it is taken, so that whoever comes back after a crash goes on with the same step of the same
CertificateSigningRequest:

=====================  ==============================================================================================
stored                 next
=====================  ==============================================================================================
nothing                make a key, gather evidence, store both
of other settings      the same: what is mended here counts at once
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
from typing import Any, Final

from attestors.wire.names import Purpose, SignerName
from authenticator.api.errors import AlreadyExists, NotDone, NotFound, PerhapsDone
from authenticator.api.server import ApiServer
from authenticator.flow.clock import Clock
from authenticator.flow.deadline import Deadline, RetryUntilDeadline
from authenticator.flow.evidence import Attestation, signing_request
from authenticator.flow.waiting import Gone, Waiting, is_the_same, metadata_of
from authenticator.model.answer import Challenged, Decision, Issued, Outdated, Refused, VersionUnsupported
from authenticator.model.attempt import Attempt, PendingRequest, Sent, Step, Subject, pause_after
from authenticator.model.certificate import UnusableCertificate, accept, load_key, new_key
from authenticator.model.failures import ApiUnavailable, CredentialRefused, Denied, Failure, NoEvidence
from authenticator.model.pair import Pair
from authenticator.store.store import Store

_SHORTEST_EVIDENCE_SECONDS: Final = 30.0
"""No evidence runs out sooner; what is said to have is denied, with a pause, or it would be asked without end."""

_MAXIMUM_UID_CHARACTERS: Final = 128
_VERSION: Final = re.compile(r"v[0-9]{1,4}")
"""What is shown to people of an annotation that anybody may have written."""


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
    asker: str
    """With which configuration this node asks, a digest: settings of the attestor, too."""
    credential: str
    """Digest of the bootstrap credential that ``server`` is asked with, empty for a certificate."""
    report: Callable[[str], None]
    """Says to a person what is going on."""
    subject: Subject = field(init=False)

    def __post_init__(self) -> None:
        self._retry = RetryUntilDeadline(self.deadline, self.report)

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
                    raise Denied(
                        f"{pending.name} was {answer} (it was new: are this node's and the controller's clocks right?)"
                    )
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
        if pending.asker and pending.asker != self.asker:
            # It may wait for ever for what was mended here, such as which of its keys the attestor shows.
            self.report(f"{pending.name} was made with other settings; asking anew")
            return None
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
        return self._save(replace(pending, asker=self.asker))

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
        return pending, Waiting(self.server, self._retry, pending).decision(seen)

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
            self._retry.wait_after(error)
            return perhaps, None
        except NotDone as error:
            self._save(pending)
            self._retry.wait_after(error)
            return pending, None
        self.report(f"asked for {SignerName(self.purpose, self.subject.provider)} as {pending.name}")
        return self._sent(perhaps, created), created

    def _find(self, pending: PendingRequest) -> tuple[PendingRequest, dict[str, Any] | None]:
        try:
            found = self._retry.call(lambda: self.server.get(pending.name))
        except NotFound:
            # Never the same name twice: the lost request may still arrive, or it was there and is gone.
            return self._fresh(), None
        if not is_the_same(found, pending):
            return self._fresh(), None
        return self._sent(pending, found), found

    def _sent(self, pending: PendingRequest, created: dict[str, Any]) -> PendingRequest:
        uid = metadata_of(created).get("uid")
        # What is longer than any UID is not kept: the request's content tells it, too.
        known = uid if isinstance(uid, str) and len(uid) <= _MAXIMUM_UID_CHARACTERS else ""
        return self._save(replace(pending, sent=Sent.YES, uid=known))

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
