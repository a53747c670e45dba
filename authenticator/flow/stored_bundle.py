"""The trust bundle in force, as the store has it."""

from __future__ import annotations

import hashlib

from attestors.wire import statement
from attestors.wire.node_access import Trust
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    MalformedStatement,
    NodeAccessTrust,
    UnsupportedStatement,
)
from attestors.wire.statement.strict_json import canonical
from authenticator.model.node_access import UnknownTrust
from authenticator.model.ssh_state import SSHState, digest_of
from authenticator.store.store import Store


def bundle_digest(payload: NodeAccessTrust) -> str:
    """Of a bundle's content: the same sequence never stands for another one."""
    return hashlib.sha256(canonical(payload.document()).encode("ascii")).hexdigest()


def stored_bundle(store: Store, digest: str) -> NodeAccessTrust | None:
    """The stored bundle of that content; None if the store does not have it.

    Raises:
        StoreUnusable: the file is unreadable.
    """
    try:
        signed = statement.decode(store.bundle(), maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
    except (MalformedStatement, UnsupportedStatement):
        return None
    payload = signed.statement.payload
    return payload if isinstance(payload, NodeAccessTrust) and bundle_digest(payload) == digest else None


def trust_in_force(store: Store, state: SSHState) -> Trust | UnknownTrust:
    """The trust of ``state``, if a bundle brought it. One that came with a certificate is not kept.

    Raises:
        StoreUnusable: a file is unreadable.
    """
    bundle = stored_bundle(store, store.bundle_state().digest)
    if bundle is None or (bundle.trust.version, digest_of(bundle.trust)) != (state.trust_version, state.trust_digest):
        return UnknownTrust()
    return bundle.trust
