"""``node-attestation-controller node-access …``: what administrators need to reach nodes by SSH."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.keys import HostKey
from signer.cli.arguments import WrongUse
from signer.cli.cluster_action import Found, run_on_cluster
from signer.cli.plain_output import print_text, print_to_stderr
from signer.controller.named_cluster import NoSuchCluster
from signer.kube.client import Client
from signer.kube.errors import NotFound
from signer.kube.resources import ATTESTED_NODES, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.addresses import ADDRESS_TYPES
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, MachineView, machine_view
from signer.model.command_failures import CommandFailed
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.record import AttestedNode
from signer.model.record_object import InvalidRecord, parse_record
from signer.model.seal import ControllerKeys, RecordSeals, Unauthentic
from signer.ssh.client_files import (
    ClientFilesRefused,
    ClientSettings,
    ClusterHosts,
    LeftOutNode,
    check_path,
    cluster_hosts,
    host_authorities,
    hosts_in,
    known_hosts,
    plain_known_hosts,
    ssh_config,
)
from signer.ssh.condition_types import SSH_AUTHORITIES_AVAILABLE
from signer.store.cluster_api import ClusterAPIVersion, discover_cluster_api
from signer.store.controller_key import SECRET_NAME, MalformedControllerKey, parse_controller_keys

CONFIG_FILE: Final = "config"
KNOWN_HOSTS_FILE: Final = "known_hosts"
_MAXIMUM_SHOWN: Final = 20


class NodeAccessFailed(CommandFailed):
    """The command cannot do what it is for; the message says why."""


def run_config(options: argparse.Namespace) -> int:
    """Run ``node-access config`` with its parsed arguments."""
    try:
        settings = ClientSettings(
            port=options.port,
            login=options.login,
            jump_host=options.jump_host,
            identity_file=os.path.abspath(os.path.expanduser(options.identity)) if options.identity else "",
        )
        folder = Path(os.path.abspath(os.path.expanduser(options.folder)))
        check_path(str(folder))
    except ClientFilesRefused as error:
        raise WrongUse(str(error)) from error
    types = tuple(dict.fromkeys(options.address_type or ADDRESS_TYPES))
    proof = _proof(options)
    hosts = _run(options, lambda management, key: read_hosts(management, key, types, proof))
    written = folder / f"{hosts.cluster.namespace}.{hosts.cluster.name}"
    try:
        config = ssh_config(hosts, settings, str(written / KNOWN_HOSTS_FILE))
        lines = known_hosts(hosts) + (plain_known_hosts(hosts) if options.plain_keys else "")
        _write(written, {KNOWN_HOSTS_FILE: lines, CONFIG_FILE: config})
    except ClientFilesRefused as error:
        raise NodeAccessFailed(f"Cluster {hosts.cluster}: {error}") from error
    except OSError as error:
        raise NodeAccessFailed(f"{str(written)!a} cannot be written: {error.strerror or error}") from error
    print_text(f"{written / CONFIG_FILE}\n")
    _tell(hosts)
    _warn_of_same_names(folder, written, config)
    print_to_stderr(f'{len(hosts.nodes)} hosts; the first line of ~/.ssh/config: Include "{folder}/*/{CONFIG_FILE}"')
    return 0


def run_known_hosts(options: argparse.Namespace) -> int:
    """Run ``node-access known-hosts`` with its parsed arguments."""
    proof = _proof(options)
    hosts = _run(
        options,
        lambda management, key: (
            _read_authorities(management, key)
            if isinstance(proof, NotAsked)
            else read_hosts(management, key, ADDRESS_TYPES, proof)
        ),
    )
    try:
        lines = known_hosts(hosts) + (plain_known_hosts(hosts) if options.plain_keys else "")
    except ClientFilesRefused as error:
        raise NodeAccessFailed(f"Cluster {hosts.cluster}: {error}") from error
    print_text(lines)
    _tell(hosts)
    return 0


def _warn_of_same_names(folder: Path, written: Path, config: str) -> None:
    """Names that another Cluster's file has, too: a tenant may choose them, and ssh takes the first file."""
    own = hosts_in(config)
    for file in sorted(folder.glob(f"*/{CONFIG_FILE}")):
        with contextlib.suppress(OSError):
            both = () if file.parent == written else sorted(own & hosts_in(file.read_text("ascii", "replace")))
            if both:
                names = f"{printable(both[0])}{f' and {len(both) - 1} more' if len(both) > 1 else ''}"
                first = min(file.parent.name, written.name)
                print_to_stderr(
                    f"warning: {names}: also in {printable(str(file))}; ssh takes the host of {printable(first)}, so "
                    "use a folder of its own for one of the two Clusters"
                )


def _tell(hosts: ClusterHosts) -> None:
    """What a person should compare, and what is missing, to standard error."""
    for authority in hosts.authorities:
        print_to_stderr(
            f"host authority {authority.fingerprint}: compare it with the fingerprint of ssh-publickey in "
            f"Secret {hosts.cluster.name}-ssh-host, if you trust it for the first time"
        )
    for one in hosts.left_out[:_MAXIMUM_SHOWN]:
        print_to_stderr(f"not in the file: {printable(one.name)}: {one.why}")
    if len(hosts.left_out) > _MAXIMUM_SHOWN:
        print_to_stderr(f"not in the file: {len(hosts.left_out) - _MAXIMUM_SHOWN} more")


@dataclass(frozen=True, slots=True)
class ControllerNamespace:
    """Where the controller key is, which proves records."""

    name: str


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Records need no proof: nothing is trusted by them alone."""


def _proof(options: argparse.Namespace) -> ControllerNamespace | NotAsked:
    return ControllerNamespace(options.controller_namespace) if options.plain_keys else NotAsked()


async def read_hosts(
    management: Client, key: ClusterKey, address_types: tuple[str, ...], proof: ControllerNamespace | NotAsked
) -> ClusterHosts:
    """The Cluster's attested nodes and its host authorities.

    Raises:
        NodeAccessFailed: the policy shows no authorities, or the controller key does not exist.
        ApiError: the management cluster cannot be asked.
    """
    authorities = await _authorities(management, key)
    version = await discover_cluster_api(management)
    records = [record async for record in _records(management, key)]
    forged: list[LeftOutNode] = []
    if isinstance(proof, ControllerNamespace):
        seals = RecordSeals(await _controller_keys(management, proof.name))
        verified = [(record, seals.unseal(record)) for record in records]
        records = [record for record, found in verified if isinstance(found, AttestedNode)]
        forged = [
            LeftOutNode(record.node_name, f"its record does not count: {found.fault.value}")
            for record, found in verified
            if isinstance(found, Unauthentic)
        ]
    machines = await _machines(management, version, key)
    hosts = cluster_hosts(key, authorities, records, machines, address_types)
    return replace(hosts, left_out=(*forged, *hosts.left_out))


async def _controller_keys(management: Client, namespace: str) -> ControllerKeys:
    title = f"Secret {namespace}/{SECRET_NAME}"
    try:
        return parse_controller_keys(await management.get(SECRETS.object(SECRET_NAME, namespace)))
    except NotFound:
        raise NodeAccessFailed(f"{title}, which proves records, does not exist: give --controller-namespace") from None
    except MalformedControllerKey as error:
        raise NodeAccessFailed(f"{title} is malformed: {error}") from None


async def _machines(management: Client, version: ClusterAPIVersion, key: ClusterKey) -> list[MachineView]:
    selected = {"labelSelector": f"{CLUSTER_NAME_LABEL}={key.name}"}
    pages = management.list_pages(version.machines.collection(key.namespace), selected)
    return [machine_view(item) async for page in pages for item in page["items"]]


async def _read_authorities(management: Client, key: ClusterKey) -> ClusterHosts:
    return ClusterHosts(key, await _authorities(management, key))


async def _records(management: Client, key: ClusterKey) -> AsyncIterator[AttestedNode]:
    """The AttestedNodes of one Cluster. What is no record of the controller's is passed over."""
    async for page in management.list_pages(ATTESTED_NODES.collection(key.namespace)):
        for item in page["items"]:
            with contextlib.suppress(InvalidRecord):
                record = parse_record(item)
                if record.machine.cluster == key:
                    yield record


async def _authorities(management: Client, key: ClusterKey) -> tuple[HostKey, ...]:
    try:
        policy = await management.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace))
    except NotFound:
        raise NodeAccessFailed(f"Cluster {key} has no NodeAttestationPolicy, so it has no SSH authorities") from None
    try:
        found = host_authorities(policy)
    except ClientFilesRefused as error:
        raise NodeAccessFailed(f"the policy of Cluster {key}: {error}") from error
    if found:
        return found
    conditions = items_of(mapping_of(policy, "status"), "conditions")
    said = [one for one in conditions if isinstance(one, dict) and one.get("type") == SSH_AUTHORITIES_AVAILABLE]
    why = f"{text_of(said[0], 'reason')}: {text_of(said[0], 'message')}" if said else "its spec does not turn SSH on"
    raise NodeAccessFailed(f"the policy of Cluster {key} shows no SSH authorities: {printable(why)}")


def _write(folder: Path, files: dict[str, str]) -> None:
    """Replace each file in one step, in a folder that only this user may enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(stat.S_IRWXU)
    for name, text in files.items():
        descriptor, new = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(new, folder / name)
        finally:
            Path(new).unlink(missing_ok=True)


def _run(options: argparse.Namespace, action: Callable[[Client, ClusterKey], Coroutine[Any, Any, Found]]) -> Found:
    try:
        return run_on_cluster(options, action, NodeAccessFailed)
    except NoSuchCluster as error:
        raise NodeAccessFailed(str(error)) from error
