"""Waiting for the decision about a request that was sent: looks, and watches in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from authenticator.api.errors import Busy, CallFailed, Expired, NotFound, PerhapsDone, Unreachable
from authenticator.api.server import ApiServer
from authenticator.flow.deadline import RetryUntilDeadline, lasting
from authenticator.model.answer import Answer, Decision, Undecided, read_answer
from authenticator.model.attempt import PendingRequest
from authenticator.model.failures import Denied, Failure, StillPending

_LONGEST_WATCH_SECONDS: Final = 300.0
_SHORTEST_WATCH_SECONDS: Final = 1.0


class Gone(Failure):
    """The request was deleted, or another stands in its place."""

    exit_code = Denied.exit_code


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits for one decision, as long as ``retry`` lasts."""

    server: ApiServer
    retry: RetryUntilDeadline
    pending: PendingRequest

    def decision(self, seen: dict[str, Any] | None) -> Decision:
        """The decision; ``seen`` is the request as the API server showed it a moment ago, or None.

        Raises:
            Gone: the request is not there any more.
            StillPending: nobody has decided, and there is no time left.
            Failure: the API server cannot be asked.
        """
        deadline = self.retry.deadline
        while True:
            found = seen if seen is not None else self._look()
            seen = None
            answer = self._judge(found)
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

    def _look(self) -> dict[str, Any]:
        try:
            return self.retry.call(lambda: self.server.get(self.pending.name))
        except NotFound:
            raise self._gone() from None

    def _watch(self, resource_version: str) -> Decision | None:
        """The decision, or None when the watch ended or broke without one."""
        seconds = min(max(self.retry.deadline.left(), _SHORTEST_WATCH_SECONDS), _LONGEST_WATCH_SECONDS)
        try:
            for event in self.server.watch(self.pending.name, resource_version, seconds=seconds):
                if event.type == "DELETED":
                    raise self._gone()
                if event.type in ("ADDED", "MODIFIED"):
                    answer = self._judge(event.object)
                    if not isinstance(answer, Undecided):
                        return answer
                elif event.type == "ERROR":
                    return None  # too old a resourceVersion, as a rule: look again
        except (Unreachable, Busy, Expired, PerhapsDone):
            return None
        except CallFailed as error:
            raise lasting(error) from error
        return None

    def _judge(self, found: dict[str, Any]) -> Answer:
        if not is_the_same(found, self.pending):
            raise self._gone()
        return read_answer(found)

    def _gone(self) -> Gone:
        return Gone(f"{self.pending.name} was deleted before it was decided; the next one will have a new key")

    def _still_pending(self, answer: Undecided) -> StillPending:
        subject = self.pending.subject
        shown = f"its provider ID {subject.provider_id}"
        if subject.dns_names or subject.ip_addresses:
            shown += ", and addresses of each kind that is asked for"
        what = "is approved and not signed" if answer.approved else "has been waiting for a decision"
        return StillPending(
            f"{self.pending.name} {what}, and {self.retry.deadline.seconds:.0f} s are over; the same request is "
            "waited for next time. Does node-attestation-controller watch this cluster, does its NodeAttestationPolicy "
            f"authorize attestor {subject.provider}, and has the Machine {shown}?"
        )


def is_the_same(found: dict[str, Any], pending: PendingRequest) -> bool:
    """Whether ``found`` is the request that was sent, and not one that somebody put in its place."""
    spec = found.get("spec")
    same_content = isinstance(spec, dict) and spec.get("request") == pending.request
    return same_content and (not pending.uid or metadata_of(found).get("uid") == pending.uid)


def metadata_of(found: dict[str, Any]) -> dict[str, Any]:
    """The object's metadata; empty where it has none."""
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
