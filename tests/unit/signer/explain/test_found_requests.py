"""Which request of a Machine or node is explained: one rule, also for requests of the same second."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from signer.explain.found_requests import FoundRequest, found_request

SECOND = "2026-03-01T12:00:00Z"


def request(name: str, *conditions: tuple[str, str], created: str = SECOND, certificate: str = "") -> FoundRequest:
    status: dict[str, Any] = {"conditions": [{"type": kind, "reason": reason} for kind, reason in conditions]}
    if certificate:
        status["certificate"] = certificate
    return found_request({"metadata": {"name": name, "creationTimestamp": created}, "status": status})


def order(*requests: FoundRequest) -> list[str]:
    """The names, first that which is explained; the same whatever the API server's order."""
    [names] = {
        tuple(one.name for one in sorted(listed, key=lambda one: one.order, reverse=True))
        for listed in permutations(requests)
    }
    return list(names)


def test_requests_of_one_second_by_the_consequence_of_their_answers() -> None:
    """A node answers a challenge at once. Names say nothing: they are digests."""
    challenged = request("z-challenged", ("Denied", "ChallengeIssued"))
    denied, failed = request("d-denied", ("Denied", "ChipDenied")), request("c-failed", ("Failed", "SigningFailed"))
    signed = request("b-signed", ("Approved", "Attested"), certificate="there")
    waiting = request("a-waiting")
    assert order(challenged, denied, failed, signed, waiting) == [
        "a-waiting",
        "b-signed",
        "c-failed",
        "d-denied",
        "z-challenged",
    ]


def test_the_newer_one_counts_more_than_its_answer() -> None:
    later = request("a-challenged", ("Denied", "ChallengeIssued"), created="2026-03-01T12:00:01Z")
    assert order(later, request("z-signed", ("Approved", "Attested"))) == ["a-challenged", "z-signed"]


def test_equal_ones_by_name() -> None:
    assert order(request("a", ("Denied", "X")), request("b", ("Denied", "Y"))) == ["b", "a"]
