"""``node-attestation-controller workload-kubeconfig CLUSTER``: make or renew the controller's restricted kubeconfig."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console
from rich.text import Text

from attestors.wire.names import InvalidProviderName, Purpose, SignerName
from signer.cli.arguments import WrongUse, cluster_key
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.cli.plain_output import print_text, print_to_stderr
from signer.cli.remedies import remedy_of
from signer.cli.workload_kubeconfig.features import FEATURES, Feature
from signer.cli.workload_kubeconfig.making import KubeconfigNotMade, Made, Wish, make_kubeconfig
from signer.cli.workload_kubeconfig.roles import wanted_objects
from signer.configuration import read_configuration_file
from signer.controller.named_cluster import require_cluster
from signer.controller.workload_access import WorkloadAccessRefused, making_command, workload_administrator
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.kubeconfig import MAXIMUM_KUBECONFIG_BYTES, KubeconfigRefused, parse_kubeconfig
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey, cluster_view
from signer.model.decision import printable
from signer.model.fields import format_time
from signer.model.floors import NO_FLOOR, Floor
from signer.model.policy import InvalidPolicy, Mode, Policy, parse_policy
from signer.store.cluster_api import discover_cluster_api

FLOORS_NOT_READ: Final = (
    "Without --config, the operator's floors are not known. Where one is Enforce, the controller needs the rights that "
    "--no-enforce leaves out: give the controller's configuration file."
)


@dataclass(frozen=True, slots=True)
class FloorNotRead:
    """No configuration file was given."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a dry run would make, as YAML for ``kubectl apply``."""

    manifests: str


def run_workload_kubeconfig(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)
    named = _attestors(options.attestors)
    floor = _floor(options.config, key.namespace)
    if options.no_enforce:
        _require_no_floor(floor, key.namespace)
    try:
        found = asyncio.run(_make(options, key, named))
    except (WorkloadAccessRefused, TlsMaterialRefused) as error:
        remedy = remedy_of(error.__cause__) if isinstance(error, WorkloadAccessRefused) else ""
        raise KubeconfigNotMade(f"Cluster {key}: {error}{remedy}") from error
    if isinstance(found, Planned):
        print_text(found.manifests)
    else:
        print_result(options.output, lambda: as_json(key, found), lambda console: show(key, found, console))
    return 0


async def _make(options: argparse.Namespace, key: ClusterKey, named: frozenset[str]) -> Made | Planned:
    access = await management_access(options)
    async with Client(access.connection, token_source=access.token_source) as management:
        version = await discover_cluster_api(management)
        await require_cluster(management, version.clusters, key)
        policy = await _policy(management, key)
        attestors = named or _attestors_of(policy, key)
        features = frozenset(one for one in FEATURES if getattr(options, one.value.replace("-", "_")))
        if not options.no_enforce:
            features |= {Feature.ENFORCE}
        elif isinstance(policy, Policy) and policy.mode is Mode.ENFORCE:
            raise WrongUse(f"--no-enforce: NodeAttestationPolicy {key} says mode Enforce")
        if options.dry_run:
            return Planned(_manifests(features, attestors))
        cluster = cluster_view(await management.get(version.clusters.object(key.name, key.namespace)))
        wish = Wish(cluster, version.clusters.api_version, features, attestors, timedelta(days=options.days))
        address = await _administrator(management, options.workload_kubeconfig, key)
        async with Client(address) as workload:
            try:
                return await make_kubeconfig(management, workload, address, wish)
            except ApiError as error:
                raise KubeconfigNotMade(f"Cluster {key}: {error}{_remedy(error)}") from error


def _remedy(error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return (
            ": this command needs an administrator's rights at both clusters; give --kubeconfig, and "
            "--workload-kubeconfig if the credential in Secret CLUSTER-kubeconfig is not an administrator's"
        )
    return ": correct that, and repeat the command"


async def _policy(management: Client, key: ClusterKey) -> Policy | None:
    try:
        return parse_policy(await management.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace)), NO_FLOOR)
    except NotFound:
        return None
    except InvalidPolicy as error:
        raise KubeconfigNotMade(f"NodeAttestationPolicy {key}: {error}: correct it, or give --attestors") from error


def _floor(config: Path | None, namespace: str) -> Floor | FloorNotRead:
    return FloorNotRead() if config is None else read_configuration_file(config).floors.of(namespace)


def _require_no_floor(floor: Floor | FloorNotRead, namespace: str) -> None:
    """Raise WrongUse if the operator's floor is Enforce. The policy may be written later, and cannot fall below it."""
    if isinstance(floor, FloorNotRead):
        print_to_stderr(FLOORS_NOT_READ)
    elif floor.mode is Mode.ENFORCE:
        raise WrongUse(
            f"--no-enforce: the operator's floor for namespace {namespace} is mode Enforce: leave the option out"
        )


def _attestors_of(policy: Policy | None, key: ClusterKey) -> frozenset[str]:
    if policy is None:
        raise KubeconfigNotMade(
            f"there is no NodeAttestationPolicy {key}, so it is not known whose requests the controller may sign: "
            "write the policy first, or give --attestors"
        )
    return frozenset(one.provider for one in policy.authorized_attestors)


def _attestors(text: str) -> frozenset[str]:
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    for name in names:
        try:
            SignerName(Purpose.CLIENT, name)
        except InvalidProviderName as error:
            raise WrongUse(f"--attestors: {error}") from None
    return names


async def _administrator(management: Client, file: Path | None, key: ClusterKey) -> ClusterConnection:
    if file is None:
        return await workload_administrator(management, key)
    try:
        with file.open("rb") as opened:
            return parse_kubeconfig(opened.read(MAXIMUM_KUBECONFIG_BYTES + 1))
    except (OSError, KubeconfigRefused) as error:
        raise WrongUse(f"--workload-kubeconfig {file}: {error}") from None


def _manifests(features: Collection[Feature], attestors: Collection[str]) -> str:
    return yaml.safe_dump_all([one.body for one in wanted_objects(features, attestors)], sort_keys=False)


def as_json(key: ClusterKey, made: Made) -> dict[str, Any]:
    """The result as JSON. Fields are only ever added."""
    return {
        "cluster": str(key),
        "secret": made.secret,
        "expires": format_time(made.expires),
        "written": list(made.written),
        "removed": list(made.removed),
        "revoked": made.revoked,
    }


def show(key: ClusterKey, made: Made, console: Console) -> None:
    """Print the result as text."""
    for words, names in (("Written", made.written), ("Removed", made.removed)):
        for name in names:
            console.print(Text(f"{words} in the workload cluster: {printable(name)}"))
    if made.revoked:
        console.print(Text(f"Former credentials ended: {made.revoked}"))
    until = f"{made.expires:%Y-%m-%d %H:%M} UTC"
    console.print(Text(f"Secret {made.secret} holds the credential, which ends at {until}.", style="green"))
    console.print(Text("The controller uses it within six minutes. Before it ends, repeat:"))
    console.print(Text(f"  {making_command(key)}"))
