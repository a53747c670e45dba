from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from attestors.wire import statement
from attestors.wire.statement import ClusterTrust, MalformedStatement, accept_trust, authorities_in, node_digest
from attestors.wire.statement.verification import PinnedController
from signer.kube.errors import Conflict, NotFound
from signer.rotation.statements import (
    NotPublished,
    SequenceTooLow,
    TrustFacts,
    publish_statement,
    turns_of,
)
from signer.rotation.statements.rendering import LIFETIME
from signer.store.statements import SIGNED_AGAIN
from tests.support.statements import IDENTITY, NOW, ROTATION, authority, bundle_of, controller

OLD, NEW = authority("old"), authority("new")
START = datetime.fromtimestamp(NOW, UTC)
FACTS = TrustFacts(IDENTITY, ROTATION, 5, (NEW, OLD), (), ("node-1", "node-2", "node-3"))
PATH = "/api/v1/namespaces/kube-system/configmaps/node-attestation-trust"
KEYS = controller()


class Workload:
    """The one ConfigMap."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.writes = 0
        self.changes: Callable[[dict[str, Any]], None] = lambda stored: None
        """Another client, right after a write."""

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        if self.stored is None:
            raise NotFound("no such object", status=404)
        return copy.deepcopy(self.stored)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH.rpartition("/")[0]
        return self._store(body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH
        assert self.stored is not None
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        return self._store(body)

    def _store(self, body: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self.writes)
        self.changes(stored)
        self.stored = stored
        return stored

    @property
    def text(self) -> str:
        assert self.stored is not None
        found: str = self.stored["data"]["statement"]
        return found

    def tamper(self, text: str) -> None:
        assert self.stored is not None
        self.stored["data"]["statement"] = text


def accepted_bundle(workload: Workload, *, trusts: Any = OLD, last: int = 0) -> str:
    found = accept_trust(
        statement.decode(workload.text.encode("ascii")),
        trusted=authorities_in([trusts.certificate.der]),
        pin=PinnedController(IDENTITY, KEYS.public, 1),
        last_sequence=last,
        now=NOW,
    )
    return found.trust.bundle


async def test_a_node_accepts_what_is_published() -> None:
    workload = Workload()
    published = await publish_statement(workload, FACTS, KEYS, START)
    assert published.written
    assert accepted_bundle(workload) == accepted_bundle(workload, trusts=NEW) == bundle_of(NEW, OLD)


async def test_the_same_is_not_written_again() -> None:
    workload = Workload()
    first = await publish_statement(workload, FACTS, KEYS, START)
    later = replace(FACTS, sequence=9, node_names=("node-1", "node-4"))
    again = await publish_statement(workload, later, KEYS, START + timedelta(days=1))
    assert (again.signed, again.written, workload.writes) == (first.signed, False, 1)


async def test_another_bundle_is_written_with_its_sequence() -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    dropped = replace(FACTS, sequence=6, trusted=(NEW,), signers=(OLD,))
    assert (await publish_statement(workload, dropped, KEYS, START)).written
    assert accepted_bundle(workload, last=5) == bundle_of(NEW)


async def test_the_ca_that_is_dropped_signs_too() -> None:
    """For nodes that missed the statement before."""
    workload = Workload()
    await publish_statement(workload, replace(FACTS, trusted=(NEW,), signers=(OLD,)), KEYS, START)
    assert accepted_bundle(workload, trusts=OLD) == bundle_of(NEW)


@pytest.mark.parametrize("sequence", [4, 5])
async def test_a_sequence_that_nodes_would_refuse_is_not_published(sequence: int) -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    with pytest.raises(SequenceTooLow):
        await publish_statement(workload, replace(FACTS, sequence=sequence, trusted=(NEW,)), KEYS, START)
    assert workload.writes == 1


async def test_it_is_signed_again_before_it_expires() -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    due = START + LIFETIME - SIGNED_AGAIN
    assert not (await publish_statement(workload, FACTS, KEYS, due - timedelta(seconds=1))).written
    assert (await publish_statement(workload, FACTS, KEYS, due)).signed.statement.sequence == 5
    assert workload.writes == 2


async def test_it_is_signed_again_with_a_new_controller_key_and_a_new_ca() -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    rotated = controller("d", "c")
    assert (await publish_statement(workload, FACTS, rotated, START)).written
    assert not (await publish_statement(workload, FACTS, rotated, START)).written
    assert (await publish_statement(workload, replace(FACTS, signers=(authority("older"),)), rotated, START)).written


@pytest.mark.parametrize("text", ["", "{", "[" * 10_000, "ä", None, 7])
async def test_what_the_owner_of_the_cluster_wrote_is_replaced(text: Any) -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    workload.tamper(text)
    assert (await publish_statement(workload, FACTS, KEYS, START)).written
    assert accepted_bundle(workload) == bundle_of(NEW, OLD)


async def test_a_planted_statement_with_a_huge_sequence_is_replaced() -> None:
    workload = Workload()
    await publish_statement(workload, replace(FACTS, sequence=2**50), controller("x"), START)
    assert (await publish_statement(workload, FACTS, KEYS, START)).signed.statement.sequence == 5


async def test_a_statement_with_a_forged_signature_of_ours_does_not_count() -> None:
    workload = Workload()
    published = await publish_statement(workload, FACTS, KEYS, START)
    later = replace(published.signed.statement, sequence=2**50)
    workload.tamper(statement.encode(replace(published.signed, statement=later)).decode("ascii"))
    assert (await publish_statement(workload, FACTS, KEYS, START)).written


async def test_what_is_read_back_is_compared() -> None:
    workload = Workload()
    workload.changes = lambda stored: stored["data"].update(statement="{}")
    with pytest.raises(NotPublished):
        await publish_statement(workload, FACTS, KEYS, START)


async def test_another_writer_is_a_conflict() -> None:
    workload = Workload()
    await publish_statement(workload, FACTS, KEYS, START)
    get = workload.get

    async def outdated(path: str) -> dict[str, Any]:
        found = await get(path)
        found["metadata"]["resourceVersion"] = "0"
        return found

    workload.get = outdated  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await publish_statement(workload, replace(FACTS, sequence=6, trusted=(NEW,)), KEYS, START)


# Turns.


@pytest.mark.parametrize(("nodes", "together"), [(0, 0), (1, 1), (3, 1), (19, 1), (20, 2), (50, 5), (1000, 100)])
def test_at_most_a_tenth_of_the_nodes_or_one_restarts_at_once(nodes: int, together: int) -> None:
    names = [f"node-{number}" for number in range(nodes)]
    turns = turns_of(names)
    assert max(map(len, turns), default=0) == together
    assert sorted(digest for turn in turns for digest in turn) == sorted(map(node_digest, names))
    ClusterTrust(ROTATION, bundle_of(OLD), turns)


async def test_more_nodes_than_a_statement_lists_are_refused() -> None:
    """They would share one turn."""
    crowd = tuple(f"node-{number}" for number in range(8001))
    with pytest.raises(MalformedStatement):
        await publish_statement(Workload(), replace(FACTS, node_names=crowd), KEYS, START)
