"""What ``explain`` is asked about: a request, or a Machine or node whose requests it looks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

MACHINE_PREFIX: Final = "machine"
NODE_PREFIX: Final = "node"
# apimachinery ``validation.IsDNS1123Subdomain``.
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)


class InvalidSubject(ValueError):
    """The text names nothing that can be explained; the message says what to write."""


@dataclass(frozen=True, slots=True)
class NamedRequest:
    """A CSR by its name, a file, or ``-`` for standard input."""

    text: str


@dataclass(frozen=True, slots=True)
class NamedMachine:
    """A Machine in the Cluster's namespace."""

    name: str


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node of the workload cluster."""

    name: str


Subject: TypeAlias = NamedRequest | NamedMachine | NamedNode


def parse_subject(text: str) -> Subject:
    """Parse ``machine/NAME`` or ``node/NAME``; any other text names a request.

    Raises:
        InvalidSubject: what follows the prefix is no name of an object.
    """
    prefix, _, name = text.partition("/")
    if not _ or prefix not in (MACHINE_PREFIX, NODE_PREFIX):
        return NamedRequest(text)
    if not _NAME.fullmatch(name):
        where = ", in the Cluster's namespace" if prefix == MACHINE_PREFIX else ""
        raise InvalidSubject(f"{text[:300]!a} is no name: write {prefix}/NAME{where}; for a file, write ./{prefix}/...")
    return NamedMachine(name) if prefix == MACHINE_PREFIX else NamedNode(name)
