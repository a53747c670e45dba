"""Waits for the decision about a sent request: reads it, and watches it in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from authenticator.api.errors import Busy, CallFailed, Expired, NotFound, PerhapsDone, Unreachable
from authenticator.api.server import ApiServer
from authenticator.flow.deadline import RetryUntilDeadline, permanent_failure
from authenticator.model.answer import Answer, Decision, Undecided, read_answer
from authenticator.model.attempt import PendingRequest
from authenticator.model.failures import Denied, Failure, StillPending

_LONGEST_WATCH_SECONDS: Final = 300.0
_SHORTEST_WATCH_SECONDS: Final = 1.0


class Gone(Failure):
    """The request was deleted, or replaced by another one."""

    exit_code = Denied.exit_code


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits for one decision, until the deadline of ``retry``."""

    server: ApiServer
    retry: RetryUntilDeadline
    pending: PendingRequest

    def decision(self, seen: dict[str, Any] | None) -> Decision:
        """The decision; ``seen`` is the request as the API server returned it a moment ago, or None.

        Raises:
            Gone: the request no longer exists.
            StillPending: there is no decision, and no time is left.
            Failure: the API server is unavailable.
        """
        deadline = self.retry.deadline
        while True:
            found = seen if seen is not None else self._get()
            seen = None
            answer = self._answer(found)
            if not isinstance(answer, Undecided):
                return answer
            if deadline.left() <= 0:
                raise self._still_pending(answer)
            began = deadline.clock.monotonic()
            decided = self._watch(str(metadata_of(found).get("resourceVersion", "")))
            if decided is not None:
                return decided
            if deadline.clock.monotonic() - began < _SHORTEST_WATCH_SECONDS and not deadline.back_off():
                raise self._still_pending(answer)

    def _get(self) -> dict[str, Any]:
        try:
            return self.retry.call(lambda: self.server.get(self.pending.name))
        except NotFound:
            raise self._gone() from None

    def _watch(self, resource_version: str) -> Decision | None:
        """The decision, or None if the watch ended or broke without one."""
        seconds = min(max(self.retry.deadline.left(), _SHORTEST_WATCH_SECONDS), _LONGEST_WATCH_SECONDS)
        try:
            for event in self.server.watch(self.pending.name, resource_version, seconds=seconds):
                if event.type == "DELETED":
                    raise self._gone()
                if event.type in ("ADDED", "MODIFIED"):
                    answer = self._answer(event.object)
                    if not isinstance(answer, Undecided):
                        return answer
                elif event.type == "ERROR":
                    return None  # usually a resourceVersion that is too old: read again
        except (Unreachable, Busy, Expired, PerhapsDone):
            return None
        except CallFailed as error:
            raise permanent_failure(error) from error
        return None

    def _answer(self, found: dict[str, Any]) -> Answer:
        if not is_same_request(found, self.pending):
            raise self._gone()
        return read_answer(found)

    def _gone(self) -> Gone:
        return Gone(f"{self.pending.name} was deleted before it was decided; the next one will have a new key")

    def _still_pending(self, answer: Undecided) -> StillPending:
        subject = self.pending.subject
        shown = f"its provider ID {subject.provider_id}"
        if subject.dns_names or subject.ip_addresses:
            shown += ", and addresses of each requested kind"
        what = "is approved but still not signed" if answer.approved else "is still undecided"
        return StillPending(
            f"{self.pending.name} {what} after {self.retry.deadline.seconds:.0f} s; the next run waits for the same "
            "request. Does node-attestation-controller watch this cluster, does its NodeAttestationPolicy authorize "
            f"attestor {subject.provider}, and does the Machine have {shown}?"
        )


def is_same_request(found: dict[str, Any], pending: PendingRequest) -> bool:
    """Whether ``found`` is the request that was sent, and not a replacement by another client."""
    spec = found.get("spec")
    same_content = isinstance(spec, dict) and spec.get("request") == pending.request
    return same_content and (not pending.uid or metadata_of(found).get("uid") == pending.uid)


def metadata_of(found: dict[str, Any]) -> dict[str, Any]:
    """The object's metadata; empty if it has none."""
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
