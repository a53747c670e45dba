"""The statement that client certificates are to be renewed, beside that about trust."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_SPREAD_SECONDS,
    ClientRenewal,
    PinnedController,
    accept_client_renewal,
    authorities_in,
)
from attestors.wire.statement.names import RENEWAL_KEY, STATEMENT_KEY
from signer.rotation.statements import (
    NotPublished,
    Published,
    RenewalFacts,
    SequenceTooLow,
    publish_renewal,
    publish_statement,
)
from signer.rotation.statements.rendering import LIFETIME
from signer.store.statements import SIGNED_AGAIN
from tests.support.statements import IDENTITY, authority, controller
from tests.unit.signer.rotation.statements.test_publishing import FACTS as TRUST
from tests.unit.signer.rotation.statements.test_publishing import KEYS, START, Workload

CLUSTER, FORMER = authority("old"), authority("former")
FACTS = RenewalFacts(IDENTITY, FORMER.certificate, 5, CLUSTER, nodes=3)


def publish(workload: Workload, facts: RenewalFacts = FACTS, *, later: timedelta = timedelta(0)) -> Published:
    return asyncio.run(publish_renewal(workload, facts, KEYS, START + later))


def renewal(workload: Workload) -> str:
    assert workload.stored is not None
    return str(workload.stored["data"][RENEWAL_KEY])


def test_what_is_published_is_what_nodes_accept() -> None:
    workload = Workload()
    assert publish(workload).written
    found = accept_client_renewal(
        statement.decode(renewal(workload).encode()),
        trusted=authorities_in([CLUSTER.certificate.der]),
        pin=PinnedController(IDENTITY, KEYS.public, 1),
        last_sequence=4,
        now=int(START.timestamp()),
    )
    identifier = FORMER.certificate.subject_key_identifier
    assert identifier is not None
    assert found == ClientRenewal(identifier.digest.hex(), int(START.timestamp()), 60)


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 60), (1000, 500), (10**6, MAXIMUM_SPREAD_SECONDS)])
def test_the_spread_grows_with_the_nodes(nodes: int, seconds: int) -> None:
    assert replace(FACTS, nodes=nodes).spread_seconds == seconds


def test_it_keeps_its_times_and_is_signed_again_before_its_end() -> None:
    workload = Workload()
    publish(workload)
    before = renewal(workload)
    assert not publish(workload, replace(FACTS, nodes=9000), later=timedelta(hours=1)).written
    assert renewal(workload) == before
    assert publish(workload, later=LIFETIME - SIGNED_AGAIN).written
    assert statement.decode(renewal(workload).encode()).statement.sequence == 5


def test_the_other_statement_stays() -> None:
    workload = Workload()
    asyncio.run(publish_statement(workload, TRUST, KEYS, START))
    trust = workload.text
    publish(workload)
    assert workload.text == trust
    published = renewal(workload)
    asyncio.run(publish_statement(workload, replace(TRUST, sequence=6), controller("d"), START))
    assert (renewal(workload), workload.text != trust) == (published, True)


@pytest.mark.parametrize("text", ["", "garbage", "other"])
def test_what_somebody_else_put_there_is_replaced(text: str) -> None:
    workload = Workload()
    publish(workload)
    mine = renewal(workload)
    assert workload.stored is not None
    if text == "other":
        other = Workload()
        asyncio.run(publish_renewal(other, FACTS, controller("x"), START))
        text = renewal(other)
    workload.stored["data"][RENEWAL_KEY] = text
    assert publish(workload).written
    assert renewal(workload) == mine


def test_it_is_signed_for_each_controller_key_and_for_the_present_ca() -> None:
    workload = Workload()
    publish(workload)
    both = controller("d", "c")
    assert asyncio.run(publish_renewal(workload, FACTS, both, START)).written
    assert not asyncio.run(publish_renewal(workload, FACTS, both, START)).written
    assert asyncio.run(publish_renewal(workload, replace(FACTS, signer=authority("new")), both, START)).written


def test_a_later_one_stands_in_the_way() -> None:
    workload = Workload()
    publish(workload, replace(FACTS, sequence=6))
    with pytest.raises(SequenceTooLow):
        publish(workload)


def test_a_change_right_after_the_write_is_noticed() -> None:
    workload = Workload()
    workload.changes = lambda stored: stored["data"].update({RENEWAL_KEY: "other", STATEMENT_KEY: ""})
    with pytest.raises(NotPublished):
        publish(workload)


def test_another_authority_under_the_same_number_is_published() -> None:
    workload = Workload()
    publish(workload)
    other = replace(FACTS, authority=authority("new").certificate)
    assert publish(workload, other).written
    assert statement.decode(renewal(workload).encode()).statement.payload == ClientRenewal(
        other.key_identifier, int(START.timestamp()), 60
    )
