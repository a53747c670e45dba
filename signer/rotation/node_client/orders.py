"""What an order to replace the node-client authority leads to, or why it is rejected. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from signer.rotation.facts import Absent, HeldPair, Unusable
from signer.rotation.node_client.former import NodesGate, Retired, Retirement, Retiring, skipping_nodes
from signer.rotation.node_client.plan import NodeClientFacts, NotWanted
from signer.rotation.operations import Gate, OperationRejected, Order, UnknownGate, read_gates

_SKIPS: Final = frozenset({Gate.UNREACHABLE_NODES})


@dataclass(frozen=True, slots=True)
class KeepFormer:
    """Copy the present pair to Secret ``<cluster>-node-client-ca-old``. All else follows from that."""

    former: Retiring


@dataclass(frozen=True, slots=True)
class SkipNodes:
    """Write in that Secret that nodes are waited for no longer."""

    former: Retiring


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """This order was carried out before."""


Outcome: TypeAlias = KeepFormer | SkipNodes | CarriedOut


def carry_out(order: Order, facts: NodeClientFacts) -> Outcome:
    """What the order leads to. The API servers need not have been asked.

    Raises:
        OperationRejected: it is not possible now; the message says why.
    """
    former = facts.former
    if isinstance(former, (Retiring, Retired)) and former.retirement.order == order.identifier:
        return CarriedOut()
    if isinstance(facts.wanted, NotWanted):
        raise OperationRejected(f"the node-client authority is not in use: {facts.wanted.message}")
    if isinstance(former, Unusable):
        raise OperationRejected(f"Secret <cluster>-node-client-ca-old cannot be used: {former.message}")
    gates = _gates(order)
    if isinstance(former, Retiring):
        return SkipNodes(_skipping(former, order, gates, facts))
    if gates:
        raise OperationRejected("nodes can be skipped once the new authority signs: order it without skip-gates first")
    return KeepFormer(_retiring(order, facts))


def _gates(order: Order) -> frozenset[Gate]:
    try:
        gates = read_gates(order.skip_gates)
    except UnknownGate as error:
        raise OperationRejected(str(error)) from error
    if not gates <= _SKIPS:
        raise OperationRejected(f"this operation can skip {Gate.UNREACHABLE_NODES.value} alone")
    return gates


def _skipping(former: Retiring, order: Order, gates: frozenset[Gate], facts: NodeClientFacts) -> Retiring:
    if not gates:
        raise OperationRejected(
            "the former node-client authority is still being retired. To wait for nodes no longer, order it again with "
            f"skip-gates {Gate.UNREACHABLE_NODES.value}"
        )
    if former.retirement.nodes is NodesGate.SKIPPED:
        raise OperationRejected("nodes are waited for no longer already")
    if not isinstance(facts.own, HeldPair) or facts.signs != facts.own.signs:
        raise OperationRejected("nodes can be skipped once the new authority signs: no node could have renewed yet")
    return skipping_nodes(former, order.identifier)


def _retiring(order: Order, facts: NodeClientFacts) -> Retiring:
    match facts.own:
        case HeldPair(certificates=(_,), signs=authority):
            pass
        case Absent():
            raise OperationRejected("there is no node-client authority yet")
        case Unusable(message):
            raise OperationRejected(f"Secret <cluster>-node-client-ca cannot be used: {message}")
        case _:
            raise OperationRejected("Secret <cluster>-node-client-ca does not hold one CA with its key")
    if not isinstance(facts.cluster, HeldPair):
        raise OperationRejected("Secret <cluster>-ca holds no CA that can be read")
    if isinstance(facts.trust, Unusable):
        raise OperationRejected(f"Secret <cluster>-trust cannot be used: {facts.trust.message}")
    since = facts.now.replace(microsecond=0)
    if isinstance(facts.former, Retired):  # nodes accept no lower number than before
        since = max(since, facts.former.retirement.since + timedelta(seconds=1))
    return Retiring(authority, Retirement(order.identifier, since))


__all__ = ["CarriedOut", "KeepFormer", "Outcome", "SkipNodes", "carry_out"]
