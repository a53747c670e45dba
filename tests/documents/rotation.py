"""The parts of ``docs/rotation.md`` that are made from the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import MappingProxyType
from typing import Final

from signer.model.cluster import ClusterKey
from signer.model.rotation_waits import Waits
from signer.rotation.authorities import AuthorityKind, AuthorityReference, Role, RotatedAuthority
from signer.rotation.control_plane.kind import _KINDS, Assisted, Refused, Rotatable
from signer.rotation.control_plane.readiness import (
    RequiredArgument,
    RequiredCommand,
    RequiredFile,
    requirements,
)
from signer.rotation.control_plane.renewal import SETTLING
from signer.rotation.desired import AsBefore, contents, published, signing, split_pairs
from signer.rotation.facts import Link
from signer.rotation.phases import (
    BACK,
    FORWARD,
    Phase,
    RollbackAvailable,
    SigningPairs,
    Step,
    TakesBack,
    rollback_available,
)
from signer.rotation.plan import TITLES
from signer.rotation.proofs import AGAIN
from signer.rotation.record import RotationRecord, WorkersRollout
from signer.rotation.statements.rendering import TURN_SECONDS, turns_of

SPLIT_ONLY: Final = " ([split signing pairs](#split-signing-pairs) alone)"
FLEETS: Final = (3, 50, 1000)
"""Nodes beside a control plane of three."""
CONTROL_PLANE_MACHINES: Final = 3
MACHINE_MINUTES: Final = (5, 10)
"""A Machine of the control plane on a cloud, replaced by KubeadmControlPlane."""
TURN: Final = timedelta(seconds=TURN_SECONDS)
_LINKS: Final = {Link.NONE: "empty", Link.OLD_WITH_NEW: "the new CA certifies the old one"}
_ROLLBACK: Final = {RollbackAvailable.FULL: "all", RollbackAvailable.CLIENTS_ONLY: "clients only"}


def _record(step: Step) -> RotationRecord:
    """A first rotation of all four authorities at that step."""
    reference = AuthorityReference("0" * 64, "sha256:" + "0" * 64, datetime(2036, 1, 1, tzinfo=UTC))
    new = replace(reference, digest="1" * 64, public_key_hash="sha256:" + "1" * 64)
    return RotationRecord(
        cluster=ClusterKey("default", "production"),
        rotation_id="aaaaaaaa",
        sequence=1,
        phase=_phase(step),
        step=step,
        authorities=tuple(RotatedAuthority(kind, reference, new) for kind in AuthorityKind),
        workers_rollout=WorkersRollout.BY_CONTROLLER,
        takes_back=TakesBack.NOT_LINKED,
        operation="documents",
        times=MappingProxyType({}),
    )


def _phase(step: Step) -> Phase:
    if step in BACK:
        return Phase.ROLLING_BACK
    if step is Step.PREPARED:
        return Phase.PREPARED
    return Phase.COMPLETING if step.is_at_least(Step.SWITCH) else Phase.PREPARING


def steps() -> Iterator[Sequence[str]]:
    """Every step in its order, and what can be taken back while the rotation works on it."""
    for number, step in enumerate((*FORWARD, *BACK), start=1):
        first, later = (
            _ROLLBACK.get(rollback_available(_phase(step), step, link), "nothing")
            for link in (TakesBack.NOT_LINKED, TakesBack.LINKED)
        )
        order = str(number) if step in FORWARD else ""
        title = TITLES[step] + (SPLIT_ONLY if step is Step.CONTROLLER_MANAGERS_SIGN else "")
        yield (order, f"`{step.value}`", _phase(step).value, title, first, later)


def secrets() -> Iterator[Sequence[str]]:
    """What Secrets, kubeconfig and cluster-info hold, for runs of steps that are alike."""

    def row(step: Step) -> tuple[str, ...]:
        record = _record(step)
        wanted = published(record)
        held = [contents(record, kind) for kind in (AuthorityKind.CLUSTER, AuthorityKind.ETCD)]
        account = contents(record, AuthorityKind.SERVICE_ACCOUNT)
        pairs = [f"{_roles(one.certificates)}; key: {one.key.value}" for one in (*held, account)]
        kubeconfig = f"{_roles(wanted.kubeconfig)}; client: {wanted.kubeconfig_client.value}"
        return (*pairs, _roles(wanted.client), _roles(wanted.server), _LINKS[wanted.link], kubeconfig)

    return _runs(row)


def signers() -> Iterator[Sequence[str]]:
    """Which CA signs what, and which evidence may name."""

    def row(step: Step) -> tuple[str, ...]:
        decided = signing(_record(step))
        if isinstance(decided, AsBefore):
            return ("old", "old", "old")
        accepted = _roles(role for role in Role if role in decided.accepted)
        return (decided.client.value, decided.serving.value, accepted)

    return _runs(row)


def split_signers() -> Iterator[Sequence[str]]:
    """What kube-controller-managers sign with that start at a step, with split pairs."""

    def row(step: Step) -> tuple[str, ...]:
        held = split_pairs(replace(_record(step), signing_pairs=SigningPairs.SPLIT))
        return (held.client.value, held.serving.value)

    return _runs(row)


def _runs(row: Callable[[Step], tuple[str, ...]]) -> Iterator[Sequence[str]]:
    for direction in (FORWARD, BACK):
        for cells, group in groupby(direction, row):
            found = list(group)
            names = [f"`{found[0].value}`"] + ([f"`{found[-1].value}`"] if len(found) > 1 else [])
            yield (" to ".join(names), *cells)


def _roles(roles: Iterable[Role]) -> str:
    return ", ".join(role.value for role in roles)


def template_lines(signing: SigningPairs = SigningPairs.ONE_PAIR) -> Iterator[Sequence[str]]:
    """What the template of a control plane must have; with split pairs, what it must have besides."""
    lines = requirements("<cluster>", signing)
    also = lines if signing is SigningPairs.ONE_PAIR else lines[len(requirements("", SigningPairs.ONE_PAIR)) :]
    for one in also:
        match one:
            case RequiredArgument(component, name, value):
                yield (f"`{'.'.join(component.value)}`", f"`{name}`: `{value}`" if value else f"`{name}`: empty")
            case RequiredFile(path, source, permissions):
                mode = "" if permissions == "0644" else f", `permissions`: `{permissions}`"
                yield ("`files`", f"`{path}`, `contentFrom.secret`: key `{source.key}` of `{source.name}`{mode}")
            case RequiredCommand(command):
                yield ("`postKubeadmCommands`", f"`{command}`")


def kinds() -> Iterator[Sequence[str]]:
    """Every known kind of control plane."""
    for (group, kind), found in _KINDS.items():
        name = f"{kind}.{group.split('.')[0]}" if group.startswith("infra") else kind
        match found:
            case Rotatable():
                yield (f"`{name}`", "yes", "")
            case Assisted(reason, what_to_do):
                yield (f"`{name}`", "no", f"{_quoted(reason)}. {_quoted(what_to_do)}.")
            case Refused(reason):
                yield (f"`{name}`", "no", f"{_quoted(reason)}.")


def _quoted(text: str) -> str:
    """Names with a placeholder as code; Markdown takes them for elements otherwise."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"<\w+>[-\w]*", r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def times() -> Iterator[Sequence[str]]:
    """How long each part takes, computed, with a control plane of three Machines."""
    rollout = [_minutes(SETTLING) + CONTROL_PLANE_MACHINES * minutes for minutes in MACHINE_MINUTES]
    waits = Waits()
    nodes = [1 + _minutes(TURN) * (_turns(fleet) + 1) for fleet in FLEETS]
    one, other = rollout
    again = round(AGAIN.total_seconds())
    yield ("`ServersTrust`: first rollout", *[f"{one} to {other} min"] * len(FLEETS))
    more = [f"{one} to {other} min"] * len(FLEETS)
    yield ("`ControllerManagersSign`: a rollout more, with [split signing pairs](#split-signing-pairs) alone", *more)
    yield ("`NodesTrust`: agents' turns, and renewals", *(f"up to {minutes} min" for minutes in nodes))
    yield ("`Prepared`", *[f"a person; at least {_minutes(waits.trust_age)} min after `PublishTrust`"] * len(FLEETS))
    yield ("`ServersPresent`: second rollout", *[f"{one} to {other} min, within the overlap"] * len(FLEETS))
    yield ("`SignServing`: overlap since `Switch`", *[f"{_minutes(waits.overlap) // 60} h"] * len(FLEETS))
    yield ("`DropOld`: third rollout, asked twice", *[f"{one} to {other} min, and {again} s"] * len(FLEETS))
    yield ("`Prune`", *[f"{again} s"] * len(FLEETS))


def _turns(fleet: int) -> int:
    return len(turns_of(f"node-{number}" for number in range(fleet)))


def _minutes(wait: timedelta) -> int:
    return round(wait.total_seconds() / 60)
