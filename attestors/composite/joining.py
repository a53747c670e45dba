"""Joins what the parts proved to one outcome. The strictest of their statements counts."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from attestors.contract import AttestationRequest, InvalidOutcome, VerifiedIdentity
from attestors.contract.composite import CompositeIdentity
from attestors.verdict import denied, not_yet
from attestors.wire.binding import BindingMismatch

T = TypeVar("T")


def join(
    request: AttestationRequest, proven: Mapping[str, VerifiedIdentity], names_hardware: frozenset[str]
) -> VerifiedIdentity:
    """What all parts together prove. ``names_hardware`` are the parts whose identity no provider ID determines.

    Raises:
        BindingMismatch: a part proved another binding than the request's.
        Ended: the parts prove different machines, or state things that have nothing in common.
        InvalidOutcome: the joined values are too large, or two parts name hardware.
    """
    for name, one in proven.items():
        if not hmac.compare_digest(one.binding.value, request.binding.value):
            raise BindingMismatch(f"{name}: the evidence was made for another request")
    outcomes = list(proven.values())
    # The joined identity does not keep a chip from being two Machines: with another part beside it, it is another one.
    # The name of a chip does not either: one of its certificates may name it, and another one not.
    of_hardware = [one.identity for name, one in proven.items() if name in names_hardware]
    return VerifiedIdentity(
        provider_id=_provider_id(proven),
        identity=str(CompositeIdentity({name: one.identity for name, one in proven.items()})),
        binding=outcomes[0].binding,
        node_names=_common("node names", [one.node_names for one in outcomes]),
        dns_names=_common("DNS names", [one.dns_names for one in outcomes]),
        ip_addresses=_common("IP addresses", [one.ip_addresses for one in outcomes]),
        annotations=_annotations(outcomes),
        hardware=_only_name_of_hardware(one.hardware for one in outcomes),
        hardware_identity=_only_name_of_hardware(of_hardware),
    )


def _provider_id(proven: Mapping[str, VerifiedIdentity]) -> str:
    found = {one.provider_id for one in proven.values()}
    if len(found) != 1:
        shown = ", ".join(f"{name} proves {one.provider_id}" for name, one in proven.items())
        raise denied("AttestorsProveDifferentMachines", f"the evidence is of different machines: {shown}")
    return found.pop()


def _common(what: str, stated: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """The values that every part states which states any. Empty if no part states any: then the Machine decides.

    Nothing in common must not become an empty value, which would let the Machine decide.
    """
    given = [values for values in stated if values]
    if not given:
        return ()
    common = tuple(value for value in given[0] if all(value in values for values in given[1:]))
    if not common:
        raise not_yet("AttestorsDisagree", f"the attestors state {what} that have nothing in common")
    return common


def _annotations(outcomes: Sequence[VerifiedIdentity]) -> Mapping[str, str]:
    joined: dict[str, str] = {}
    for one in outcomes:
        for key, value in one.annotations.items():
            if joined.setdefault(key, value) != value:
                raise not_yet("AttestorsDisagree", f"the attestors state different values of annotation {key}")
    return joined


def _only_name_of_hardware(names: Iterable[str]) -> str:
    found = [name for name in names if name]
    if len(found) > 1:
        raise InvalidOutcome("two parts of the composite attestor name hardware")
    return found[0] if found else ""
