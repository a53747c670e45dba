"""Kinds of certificates in the journal of a record.

The set is open: each part of the program declares the kinds of its certificates where it defines them. A record may
name a kind that this version does not know, because a newer version wrote it. No approval depends on such a
certificate, and :mod:`signer.model.certificates_in_use` reports its result as incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.wire.names import Purpose

_KIND: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DECLARED: Final[set[str]] = set()


class InvalidKind(ValueError):
    """The text is not a valid name of a kind, or was declared before."""


def check_kind(name: str) -> str:
    """Return ``name`` if it is a valid name of a kind, known or not.

    Raises:
        InvalidKind: it is not.
    """
    if not _KIND.fullmatch(name):
        raise InvalidKind("the name of a kind has 1 to 63 characters: lower-case letters, digits, inner hyphens")
    return name


def declare_kind(name: str) -> str:
    """Make a kind known. Each kind is declared once, where it is defined.

    Raises:
        InvalidKind: the name is not valid, or was declared before.
    """
    if check_kind(name) in _DECLARED:
        raise InvalidKind(f"kind {name} is declared twice")
    _DECLARED.add(name)
    return name


def is_known(kind: str) -> bool:
    """Whether this version knows the kind."""
    return kind in _DECLARED


KUBELET_CLIENT: Final = declare_kind("kubelet-client")
KUBELET_SERVING: Final = declare_kind("kubelet-serving")
BUILTIN_KUBELET_SERVING: Final = declare_kind("builtin-kubelet-serving")
"""Certificates of ``kubernetes.io/kubelet-serving``: the controller approves, kube-controller-manager signs."""

KUBELET_KINDS: Final[Mapping[Purpose, str]] = MappingProxyType(
    {Purpose.CLIENT: KUBELET_CLIENT, Purpose.SERVING: KUBELET_SERVING}
)
"""The kind of certificate that a CSR to one of our signers requests. Others may be issued with it."""
