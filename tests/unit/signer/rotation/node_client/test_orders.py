"""What an order to replace the node-client authority leads to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.rotation.facts import Absent, HeldCertificate, HeldPair, Unusable
from signer.rotation.node_client.former import NodesGate, Retired, Retirement, Retiring
from signer.rotation.node_client.orders import CarriedOut, KeepFormer, SkipNodes, carry_out
from signer.rotation.node_client.plan import NotWanted, Reason
from signer.rotation.operations import Operation, OperationRejected, Order
from tests.unit.signer.authority.support import NOW
from tests.unit.signer.rotation.node_client.test_plan import FACTS, FORMER, OTHER, OWN

SINCE: Final = NOW.replace(microsecond=0)
ORDER: Final = Order(Operation.ROTATE_NODE_CLIENT, "new")
SKIPPING: Final = replace(ORDER, skip_gates=("unreachable-nodes",))
RETIRING: Final = Retiring(FORMER, Retirement("old", SINCE))


def test_the_present_pair_is_kept() -> None:
    assert carry_out(ORDER, FACTS) == KeepFormer(Retiring(OWN, Retirement("new", SINCE)))


def test_what_nodes_are_told_has_a_higher_number_each_time() -> None:
    """Also if the clock was set back: nodes refuse a lower one."""
    later = SINCE + timedelta(days=3)
    facts = replace(FACTS, former=Retired(FORMER, Retirement("old", later)))
    assert carry_out(ORDER, facts) == KeepFormer(Retiring(OWN, Retirement("new", later + timedelta(seconds=1))))


def test_nodes_are_skipped() -> None:
    facts = replace(FACTS, former=RETIRING, signs=OWN)
    expected = Retiring(FORMER, Retirement("new", SINCE, NodesGate.SKIPPED))
    assert carry_out(SKIPPING, facts) == SkipNodes(expected)


@pytest.mark.parametrize("former", [RETIRING, Retired(FORMER, RETIRING.retirement)])
def test_the_same_order_is_carried_out_once(former: Any) -> None:
    paused = NotWanted(Reason.PAUSED, "paused")
    assert carry_out(replace(ORDER, identifier="old"), replace(FACTS, former=former, wanted=paused)) == CarriedOut()


@pytest.mark.parametrize(
    ("order", "changes", "why"),
    [
        (ORDER, {"wanted": NotWanted(Reason.PAUSED, "the Cluster is paused")}, "paused"),
        (ORDER, {"former": Unusable("no seal")}, "no seal"),
        (ORDER, {"former": RETIRING, "signs": OWN}, "still being retired"),
        (ORDER, {"own": Absent()}, "no node-client authority yet"),
        (ORDER, {"own": Unusable("no seal")}, "no seal"),
        (ORDER, {"own": HeldCertificate(OWN)}, "one CA with its key"),
        (ORDER, {"own": HeldPair((OWN, OTHER), OWN)}, "one CA with its key"),
        (ORDER, {"cluster": Absent()}, "<cluster>-ca"),
        (ORDER, {"trust": Unusable("garbage")}, "garbage"),
        (SKIPPING, {}, "without skip-gates first"),
        (SKIPPING, {"former": RETIRING}, "once the new authority signs"),
        (SKIPPING, {"former": RETIRING, "signs": OTHER}, "once the new authority signs"),
        (replace(ORDER, skip_gates=("overlap",)), {"former": RETIRING, "signs": OWN}, "unreachable-nodes alone"),
        (replace(ORDER, skip_gates=("all",)), {"former": RETIRING, "signs": OWN}, "is no gate"),
    ],
)
def test_it_is_rejected(order: Order, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(OperationRejected, match=why):
        carry_out(order, replace(FACTS, **changes))
