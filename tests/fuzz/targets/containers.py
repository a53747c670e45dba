"""What the agent of containers reads: requests of users, and files of the runtime, which tenants have a part in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attestors.wire.ssh.container_names import parse_container_principal
from node_access.containers.documents import Unreadable
from node_access.containers.finding import Bundle, NotAContainer, parse_bundle
from node_access.containers.protocol import NoTerminal, Request, RequestRefused, encode_request, parse_request
from node_access.containers.running import process_document
from tests.fuzz.target import Shape, Target, require

_IDENTIFIER: Final = "a" * 64


class _NoContainer(Exception):
    """A Pod's sandbox, or something else that has no name."""


def _request(data: bytes) -> Request:
    request = parse_request(data)
    require(encode_request(request) == data, "a request has two encodings")
    return request


def _bundle(data: bytes) -> Bundle:
    try:
        bundle = parse_bundle(_IDENTIFIER, Path("/"), data)
    except NotAContainer:
        raise _NoContainer("no container") from None
    require(str(parse_container_principal(bundle.name)) == bundle.name, "the name is no user of sshd")
    require(":" not in bundle.name and "\n" not in bundle.name, "the name breaks the database of users")
    document = process_document(bundle.specification, ["/sh"], NoTerminal())
    require(document["args"] == ["/sh"], "the container's command is run again")
    return bundle


TARGETS: Final = (
    Target("container-request", _request, (RequestRefused,)),
    Target("container-bundle", _bundle, (Unreadable, _NoContainer), Shape.JSON),
)
