"""The checks of the management cluster: what it serves, whom it grants what, the controller key and the Lease."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from signer.cli.check.definitions import definitions_findings
from signer.cli.check.findings import Finding, fine, needs_attention, not_checked
from signer.cli.check.grants import Right, Subject, grants_findings, is_allowed
from signer.cli.check.roles import needed_roles
from signer.cli.remedies import remedy_of
from signer.configuration import AccessPermission, Configuration, NoLeaderElection, Sharding
from signer.explain.controller_lease import LeaseExpired, LeaseRenewed, judge_lease
from signer.kube.client import Client
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import ATTESTED_NODES, LEASES, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.model.lease import InvalidLease, parse_lease
from signer.model.seal import NoPreviousKey
from signer.store.cluster_api import discover_cluster_api
from signer.store.controller_key import SECRET_NAME, MalformedControllerKey, parse_controller_keys

MANAGEMENT_CLUSTER: Final = "management cluster"
CONTROLLER_KEY: Final = "controller key"
LEASE: Final = "Lease"
_MALFORMED_KEY: Final = "restore the copy of the Secret; a new key makes every record invalid"


async def cluster_findings(
    client: Client, configuration: Configuration, lease_name: str, subject: Subject
) -> tuple[Finding, ...]:
    """Check the management cluster. A check that is not possible is a finding, and never an error."""
    try:
        version = await discover_cluster_api(client)
    except ResourceNotServed as error:
        return (needs_attention(MANAGEMENT_CLUSTER, str(error), "install Cluster API, or name another --kubeconfig"),)
    except ApiError as error:
        remedy = remedy_of(error).removeprefix(": ") or "see --kubeconfig and --context, and the network between"
        return (needs_attention(MANAGEMENT_CLUSTER, str(error), remedy),)
    found = [fine(MANAGEMENT_CLUSTER, f"reachable; it serves {version}")]
    access = isinstance(configuration.access, AccessPermission)
    try:
        found += await definitions_findings(client, access=access)
    except ApiError as error:
        found.append(not_checked("definitions", str(error)))
    try:
        served = await _namespaces_with_policies(client, configuration)
    except ApiError as error:
        served = frozenset()
        found.append(not_checked("policies", f"not readable here: {error}"))
    found += await grants_findings(client, needed_roles(configuration), configuration, served, lease_name, subject)
    found.append(await _controller_key(client, configuration, subject))
    found.append(await _lease(client, configuration, lease_name))
    return tuple(found)


async def _namespaces_with_policies(client: Client, configuration: Configuration) -> frozenset[str]:
    found: set[str] = set()
    async for page in client.list_pages(NODE_ATTESTATION_POLICIES.collection(configuration.watch_namespace)):
        items = page.get("items")
        found |= {
            text_of(mapping_of(item, "metadata"), "namespace")
            for item in (items if isinstance(items, list) else [])
            if isinstance(item, dict)
        }
    return frozenset(found - {""})


async def _controller_key(client: Client, configuration: Configuration, subject: Subject) -> Finding:
    namespace = configuration.namespace
    secret = f"Secret {namespace}/{SECRET_NAME}"
    try:
        keys = parse_controller_keys(await client.get(SECRETS.object(SECRET_NAME, namespace)))
    except NotFound:
        return await _missing_key(client, configuration, subject, secret)
    except MalformedControllerKey as error:
        return needs_attention(CONTROLLER_KEY, f"{secret}: {error}", _MALFORMED_KEY)
    except Forbidden:
        return not_checked(CONTROLLER_KEY, f"not readable here: {secret}; whether it is valid is unknown")
    except ApiError as error:
        return not_checked(CONTROLLER_KEY, f"{secret}: {error}")
    previous = "" if isinstance(keys.previous, NoPreviousKey) else ", and a previous one"
    return fine(CONTROLLER_KEY, f"{secret} holds a current key{previous}")


async def _missing_key(client: Client, configuration: Configuration, subject: Subject, secret: str) -> Finding:
    """Before a first start, the controller may create the key; later, a new key makes every record invalid."""
    missing = f"{secret} does not exist"
    right = Right("create", "", "secrets", "", configuration.namespace)
    try:
        if await _has_records(client, configuration):
            return needs_attention(
                CONTROLLER_KEY,
                f"{missing}, and there are AttestedNodes that were sealed with it",
                "restore its copy before a controller starts, because that creates a new key",
            )
        if await is_allowed(client, right, subject):
            return fine(CONTROLLER_KEY, f"{missing}: the controller creates it at its first start")
    except ApiError as error:
        return not_checked(CONTROLLER_KEY, f"{missing}; whether the controller may create it is unknown: {error}")
    return needs_attention(
        CONTROLLER_KEY,
        f"{missing}, and {subject} may not create it",
        "bind role node-attestation-controller-key-creation, or make it with 32 random bytes in data.current",
    )


async def _has_records(client: Client, configuration: Configuration) -> bool:
    async for page in client.list_pages(ATTESTED_NODES.collection(configuration.watch_namespace), limit=1):
        if page.get("items"):
            return True
    return False


async def _lease(client: Client, configuration: Configuration, name: str) -> Finding:
    if isinstance(configuration.leader_election, Sharding):
        return not_checked(LEASE, "with --shards each shard has a Lease of its own")
    lease = f"Lease {configuration.namespace}/{name}"
    try:
        holding = parse_lease(await client.get(LEASES.object(name, configuration.namespace))).holding
        state = judge_lease(client, lease, holding, datetime.now(UTC)) if holding.holder else LeaseRenewed()
    except NotFound:
        return fine(
            LEASE,
            f"{lease} does not exist: no controller has led, none elects a leader, or the Lease has another name, "
            "which --leader-elect-resource-name says",
        )
    except InvalidLease as error:
        return needs_attention(LEASE, f"{lease}: {error}", "delete it: the next leader creates it")
    except Forbidden:
        return not_checked(LEASE, f"not readable here: {lease}; whether a controller leads is unknown")
    except ApiError as error:
        return not_checked(LEASE, f"{lease}: {error}")
    if not holding.holder:
        return fine(LEASE, f"{lease} is held by no controller")
    if isinstance(state, LeaseExpired):
        return needs_attention(LEASE, state.message, "start the controller with the arguments of this command")
    held = f"{lease} is held by {printable(holding.holder)}, renewed at {printable(holding.renew_time)}"
    if isinstance(configuration.leader_election, NoLeaderElection):
        return fine(LEASE, f"{held}; a controller without --leader-elect stands by meanwhile")
    return fine(LEASE, held)
