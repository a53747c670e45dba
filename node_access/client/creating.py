"""Creates objects in the person's own name."""

from __future__ import annotations

import contextlib
from typing import Final

from node_access.client.errors import ClientFailed, Conflict, Forbidden, Invalid, ManagementFailed
from node_access.client.grants import APPROVAL_KIND, created_by, key_of
from node_access.client.kubectl import Kubectl
from node_access.client.manifests import JsonObject, NotAsSent, Person, require_as_sent, with_creator

_WITHOUT: Final = "the API server does not fill in spec.createdBy, and does not say who you are"


def create_as_self(kubectl: Kubectl, manifest: JsonObject, user: str) -> JsonObject:
    """Create an AccessGrant or AccessApproval. ``user`` is the name that the person gave, or empty.

    A dry run without ``createdBy`` shows whether the API server fills it in; if not, it is filled in here. The answer
    is compared with what was sent.

    Raises:
        ClientFailed: the API server refuses, or stored another object, which is deleted again if it is a grant.
    """
    me, namespace = _me(kubectl), kubectl.namespace()
    sent = manifest if _is_filled_in(kubectl, manifest) else with_creator(manifest, _named(me, user))
    made = kubectl.create(sent)
    try:
        require_as_sent(sent, made)
        if manifest["kind"] != APPROVAL_KIND and key_of(made).namespace != namespace:
            # It is a part of the names in ssh's configuration: a server of ~/.ssh/config could have that name.
            raise NotAsSent("the API server returned another metadata.namespace than was asked for")
        names = {*(person.username for person in me), *([user] if user else [])}
        if names and created_by(made) not in names:
            raise NotAsSent("the API server stored another creator than you")
    except ClientFailed:
        if manifest["kind"] != APPROVAL_KIND:
            with contextlib.suppress(ClientFailed):
                kubectl.delete_grant(key_of(made))
        raise
    return made


def _me(kubectl: Kubectl) -> tuple[Person, ...]:
    """Who this is; nothing where the API server does not say so (before 1.28)."""
    try:
        return (kubectl.who_am_i(),)
    except ManagementFailed:
        return ()


def _is_filled_in(kubectl: Kubectl, manifest: JsonObject) -> bool:
    try:
        return bool(created_by(kubectl.create(manifest, dry_run=True)))
    except (Forbidden, Invalid):
        return False  # perhaps for the missing name; the attempt with it tells
    except Conflict as error:
        raise ManagementFailed(str(error)) from error


def _named(me: tuple[Person, ...], user: str) -> Person:
    if user and all(one.username != user for one in me):
        return Person(user)
    if not me:
        raise ClientFailed(f"{_WITHOUT}: give --user NAME")
    return me[0]
