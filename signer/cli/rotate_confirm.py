"""``rotate CLUSTER confirm``: a person vouches for a rotation that the present controller key has not sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from signer.cli.rotate_order import NotOrdered
from signer.kube.errors import NotFound
from signer.kube.resources import SECRETS
from signer.model.authority_suffixes import NODE_CLIENT_CA
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import NotMade
from signer.rotation.confirmation import GetAndReplace, Unconfirmed, confirm, read_unconfirmed
from signer.store.controller_key import SECRET_NAME, MalformedControllerKey, parse_controller_keys


class NoControllerKey(Exception):
    """There is no key to seal with; the message says why."""


async def confirm_rotation(
    management: GetAndReplace,
    key: ClusterKey,
    controller_namespace: str,
    agreed: Callable[[Unconfirmed], bool],
    *,
    node_client: frozenset[str],
) -> Unconfirmed:
    """Show it to ``agreed``, and seal it.

    Raises:
        NotOrdered: ``agreed`` did not agree.
        NoControllerKey, NothingToConfirm, CannotBeConfirmed: see there.
        ApiError: from the management cluster.
    """
    keys = await _controller_keys(management, controller_namespace)
    found = await read_unconfirmed(management, key, keys, node_client=node_client)
    if not agreed(found):
        raise NotOrdered("nothing was confirmed")
    await confirm(management, found, keys, datetime.now(UTC))
    return found


async def _controller_keys(management: GetAndReplace, namespace: str) -> ControllerKeys:
    title = f"Secret {namespace}/{SECRET_NAME}"
    try:
        return parse_controller_keys(await management.get(SECRETS.object(SECRET_NAME, namespace)))
    except NotFound:
        message = f"{title} does not exist: start the controller first, or give --controller-namespace"
        raise NoControllerKey(message) from None
    except MalformedControllerKey as error:
        raise NoControllerKey(f"{title} is malformed: {error}") from None


def what_is_confirmed(found: Unconfirmed) -> Iterator[str]:
    """Lines to read before the answer."""
    record = found.record
    place = f"phase {record.phase.value}, step {record.step.value}"
    yield f"Cluster {record.cluster}: rotation {record.rotation_id}, {place}."
    for one in record.authorities:
        new = "not made yet" if isinstance(one.new, NotMade) else one.new.public_key_hash
        yield f"Authority {one.kind.value}: old {one.old.public_key_hash}, new {new}."
    yield f"Secret {record.cluster.name}-ca holds the {found.signs.value} one."
    for kept in found.pairs:
        if kept.name.endswith(f"-{NODE_CLIENT_CA}"):
            yield f"Node-client authority: {kept.reference.public_key_hash}, in Secret {kept.name}."
    for kept in found.left_out:
        yield (
            f"Secret {kept.name} is left out, and API servers will refuse its certificates: if you know the CA, give "
            f"--node-client-authority {kept.reference.public_key_hash}."
        )
    skipped = ", ".join(f"{one.gate.value} (ordered at {format_time(one.at)})" for one in record.skipped)
    yield f"It skips these gates: {skipped or 'none'}."
    waits = record.waits
    yield (
        f"It waits for {waits.trust_age} before a server presents the new CA, for {waits.overlap} before it drops the "
        f"old one, and for watches to end for {waits.open_watches}."
    )
    yield (
        "If one of these CAs is not the cluster's, all nodes will be told to trust a stranger. Compare them with what "
        "the API servers present (docs/rotation.md)."
    )


def confirmed_as_json(found: Unconfirmed) -> dict[str, Any]:
    """The result for scripts."""
    record = found.record
    return {
        "cluster": str(record.cluster),
        "rotationID": record.rotation_id,
        "phase": record.phase.value,
        "step": record.step.value,
        "sealedSecrets": [one.name for one in found.pairs],
    }
