"""Kinds of certificates that the journal of a record names.

The set is open. A part of the program whose certificates are journaled declares its kinds where it defines them, and no
other part is changed for it. A record may still name a kind that this program does not know, because a newer version
wrote it: no approval rests on such a certificate, and the answer to which certificates may be in use says that it is
not complete (:mod:`signer.model.certificates_in_use`).
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
    """A text that is no name of a kind, or one that was declared before."""


def check_kind(name: str) -> str:
    """Return ``name`` if it can be the name of a kind, known or not.

    Raises:
        InvalidKind: it cannot.
    """
    if not _KIND.fullmatch(name):
        raise InvalidKind("the name of a kind has 1 to 63 characters: lower-case letters, digits, inner hyphens")
    return name


def declare_kind(name: str) -> str:
    """Make a kind known, once, where it is defined.

    Raises:
        InvalidKind: the name is not of the right form, or another part of the program has taken it.
    """
    if check_kind(name) in _DECLARED:
        raise InvalidKind(f"kind {name} is declared twice")
    _DECLARED.add(name)
    return name


def is_known(kind: str) -> bool:
    """Whether this program knows what a certificate of that kind is for."""
    return kind in _DECLARED


KUBELET_CLIENT: Final = declare_kind("kubelet-client")
KUBELET_SERVING: Final = declare_kind("kubelet-serving")
BUILTIN_KUBELET_SERVING: Final = declare_kind("builtin-kubelet-serving")
"""Of ``kubernetes.io/kubelet-serving``: the controller approves the request, kube-controller-manager signs."""

KUBELET_KINDS: Final[Mapping[Purpose, str]] = MappingProxyType(
    {Purpose.CLIENT: KUBELET_CLIENT, Purpose.SERVING: KUBELET_SERVING}
)
"""The certificate that a CSR to one of our signers asks for. Others may come with it."""
