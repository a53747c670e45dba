"""Which request ``explain`` explains: one that is named, one in a file, or that of a Machine or node."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from signer.cli.arguments import WrongUse
from signer.controller.workload_access import WorkloadAccessRefused, workload_connection
from signer.decision.reported_services import try_to_read_reported_services
from signer.explain.dry_run import Circumstances
from signer.explain.found_requests import MAXIMUM_REQUESTS, FoundRequests, Sought, find_requests
from signer.explain.manifests import UnreadableManifests, manifests_in, manifests_of
from signer.explain.next_commands import list_machines
from signer.explain.no_request import DELETED_REQUESTS, NoRequest, without_request
from signer.explain.readable import verified_caches
from signer.explain.source import items_of_list
from signer.explain.subject import (
    MACHINE_PREFIX,
    NODE_PREFIX,
    InvalidSubject,
    NamedMachine,
    NamedNode,
    NamedRequest,
    Subject,
    parse_subject,
)
from signer.kube.client import Client
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey, MachineView, machine_view
from signer.model.command_failures import CommandFailed
from signer.model.decision import Deferred, printable
from signer.model.service_networks import NOT_REPORTED, ReportedServices
from signer.store.cluster_api import ClusterAPIVersion

_KIND: Final = "CertificateSigningRequest"
_NAMED_OTHERS: Final = 5
_FIND_CSRS: Final = (
    ": `kubectl get csr` in the workload cluster lists the CSRs that exist, `kubectl describe machine` names those of "
    f"a Machine. {DELETED_REQUESTS}"
)


class ExplainFailed(CommandFailed):
    """The request cannot be explained; the message says why."""


@dataclass(frozen=True, slots=True)
class SelectedRequest:
    """The request to explain."""

    manifest: Mapping[str, Any]
    reported_services: ReportedServices
    is_live: bool
    """Whether it was read from the workload cluster just now."""
    notes: tuple[str, ...] = ()


Selection: TypeAlias = SelectedRequest | NoRequest


def subject_of(text: str) -> Subject:
    """What the argument names.

    Raises:
        WrongUse: it names nothing that can be explained.
    """
    try:
        return parse_subject(text)
    except InvalidSubject as error:
        raise WrongUse(str(error)) from error


async def select(
    subject: Subject, management: Client, version: ClusterAPIVersion, key: ClusterKey, around: Circumstances
) -> Selection:
    """The request to explain, or what is known if the Machine or node has none.

    Raises:
        WrongUse: the name cannot be one of an object.
        ExplainFailed: there is no such object, or the workload cluster does not show its requests.
        UnreadableManifests: the file holds no request.
        WorkloadAccessRefused, TlsMaterialRefused: the workload cluster cannot be reached.
        ApiError: the management cluster cannot be read.
    """
    if not isinstance(subject, NamedRequest):
        return await _of_machine_or_node(subject, management, version, key, around)
    from_file = request_from_file(subject.text)
    if from_file is not None:
        return SelectedRequest(from_file, await _reported_services(management, key), is_live=False)
    try:
        path = CERTIFICATE_SIGNING_REQUESTS.object(subject.text)
    except ValueError as error:
        raise WrongUse(f"CSR: {error}") from error
    async with _workload(management, key, f"CSR {subject.text}") as workload:
        try:
            return SelectedRequest(
                await workload.get(path), await try_to_read_reported_services(workload), is_live=True
            )
        except NotFound:
            instead = await _machine_or_node(subject.text, management, version, key)
            raise ExplainFailed(f"CSR {subject.text} of Cluster {key} does not exist{instead or _FIND_CSRS}") from None


async def _machine_or_node(name: str, management: Client, version: ClusterAPIVersion, key: ClusterKey) -> str:
    """What to write if the name is not a request's but that of a Machine or its node; empty if it is neither's."""
    with contextlib.suppress(ApiError):
        every = map(machine_view, await items_of_list(management, version.machines.collection(key.namespace)))
        machines = [one for one in every if one.cluster == key]
        if any(one.name == name for one in machines):
            return f", but Machine {key.namespace}/{name} does: write {MACHINE_PREFIX}/{name}"
        if any(one.node_ref == name for one in machines):
            return f", but node {name} does: write {NODE_PREFIX}/{name}"
    return ""


async def _of_machine_or_node(
    subject: NamedMachine | NamedNode,
    management: Client,
    version: ClusterAPIVersion,
    key: ClusterKey,
    around: Circumstances,
) -> Selection:
    if isinstance(subject, NamedMachine):
        text = f"Machine {key.namespace}/{subject.name}"
        sought = await _sought(await _machine(subject, management, version, key), management, around)
    else:
        text, sought = f"Node {subject.name}", Sought(frozenset(), frozenset({subject.name}))
    async with _workload(management, key, f"the requests of {text}") as workload:
        oids = around.configuration.provider_id_oids
        found = await find_requests(workload, sought, around.registry.providers, oids)
        if found.requests:
            reported = await try_to_read_reported_services(workload)
            return SelectedRequest(found.requests[0].manifest, reported, is_live=True, notes=_notes(text, found))
    caches = await verified_caches(management, around.configuration)
    return without_request(subject, key, caches, around.registry, around.configuration, around.now)


async def _machine(
    subject: NamedMachine, management: Client, version: ClusterAPIVersion, key: ClusterKey
) -> MachineView:
    try:
        machine = machine_view(await management.get(version.machines.object(subject.name, key.namespace)))
    except NotFound:
        raise ExplainFailed(
            f"Machine {key.namespace}/{subject.name} does not exist: `{list_machines(key)}` lists those of the Cluster"
        ) from None
    if machine.cluster != key:
        other = printable(str(machine.cluster))
        raise ExplainFailed(f"Machine {key.namespace}/{subject.name} is of Cluster {other}: give --cluster {other}")
    return machine


async def _sought(machine: MachineView, management: Client, around: Circumstances) -> Sought:
    """The names of a Machine's requests. The records know them where the Machine shows none yet."""
    provider_ids, node_names = {machine.provider_id}, {machine.node_ref}
    if not machine.provider_id or not machine.node_ref:
        try:
            records = (await verified_caches(management, around.configuration)).records_of(machine)
        except Deferred:
            records = ()
        provider_ids |= {record.machine.provider_id for record in records}
        node_names |= {record.node_name for record in records}
    return Sought(frozenset(provider_ids - {""}), frozenset(node_names - {""}))


def _notes(text: str, found: FoundRequests) -> tuple[str, ...]:
    first, *others = found.requests
    which = "newest of those that wait" if first.waits else "newest"
    notes = []
    if others:
        shown = others[:_NAMED_OTHERS]
        more = len(others) - len(shown) + found.others
        named = ", ".join(f"{one.name} ({one.state})" for one in shown)
        rest = f", and {more} more" if more else ""
        notes.append(f"Requests in the name of {text}: this one is the {which}. Others: {named}{rest}.")
    if not found.searched_all:
        notes.append(f"Only the first {MAXIMUM_REQUESTS} requests of the cluster were searched.")
    return tuple(notes)


@asynccontextmanager
async def _workload(management: Client, key: ClusterKey, what: str) -> AsyncIterator[Client]:
    async with Client(await workload_connection(management, key)) as workload:
        try:
            yield workload
        except Forbidden as error:
            remedy = (
                f"grant that to the user of Secret {key.namespace}/{key.name}-kubeconfig (docs/operating.md, Grants)"
            )
            raise ExplainFailed(f"{what} of Cluster {key}: {error}: {remedy}") from error
        except ApiError as error:
            raise ExplainFailed(f"{what} of Cluster {key}: {error}") from error


async def _reported_services(management: Client, key: ClusterKey) -> ReportedServices:
    """The workload cluster's report. A request from a file is explained without it if the cluster cannot be reached."""
    try:
        async with Client(await workload_connection(management, key)) as workload:
            return await try_to_read_reported_services(workload)
    except (WorkloadAccessRefused, TlsMaterialRefused, ApiError):
        return NOT_REPORTED


def request_from_file(csr: str) -> Mapping[str, Any] | None:
    """The CSR in a file or on standard input; None if ``csr`` is a name.

    Raises:
        UnreadableManifests: the file holds no CSR, or several.
        WrongUse: there is no such file.
    """
    if csr == "-":
        return _single_request(manifests_of(sys.stdin.buffer.read(), "standard input"), "standard input")
    if "/" in csr and not _exists(csr):
        raise WrongUse(
            f"{printable(csr)} is no file: write the name of a CSR, machine/NAME, node/NAME, or the path of a file"
        )
    return _single_request(manifests_in(Path(csr)), csr) if _is_file(csr) or "/" in csr else None


def _exists(csr: str) -> bool:
    try:
        return Path(csr).exists()
    except (OSError, ValueError):  # the name is too long for a file
        return False


def _is_file(csr: str) -> bool:
    try:
        return Path(csr).is_file()
    except (OSError, ValueError):  # the name is too long for a file
        return False


def _single_request(manifests: tuple[dict[str, Any], ...], name: str) -> Mapping[str, Any]:
    found = [one for one in manifests if one.get("kind") == _KIND]
    if len(found) != 1:
        raise UnreadableManifests(f"{name} holds {len(found)} CertificateSigningRequests, not one")
    return found[0]
