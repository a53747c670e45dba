"""Tests that play thousands of rotations parse the same few certificates, keys and kubeconfigs in each of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.statement import signatures
from attestors.wire.statement.authorities import parse_authority
from signer.authority.der import read_blocks
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.authority.private_key import read_private_key
from signer.kube import resources
from signer.kube.kubeconfig import parse_kubeconfig
from signer.model import seal
from signer.rotation.bundles import is_issued_by

PURE: Final[tuple[Callable[..., Any], ...]] = (
    *(read_blocks, parse_ca_certificate, read_private_key, parse_kubeconfig, parse_authority),
    *(is_issued_by, seal._subkey, resources.segment),
)
"""Functions of bytes alone, whose results do not change."""
_ENTRIES: Final = 4096


@pytest.fixture(scope="module")
def parsed_once() -> Iterator[None]:
    """The same bytes are parsed once: a module's tests of whole rotations take a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for function in PURE:
            replace(patch, function, functools.lru_cache(_ENTRIES)(function))
        replace(patch, signatures.verify, _verified_once(signatures.verify))
        yield


def replace(patch: pytest.MonkeyPatch, function: Callable[..., Any], by: Callable[..., Any]) -> None:
    """In every module that has it under its own name."""
    for module in list(sys.modules.values()):
        if vars(module).get(function.__name__) is function:
            patch.setattr(module, function.__name__, by)


def _verified_once(verify: Callable[[Any, bytes, bytes], None]) -> Callable[[Any, bytes, bytes], None]:
    """The same, for keys, which cannot be keys of a dictionary."""
    verified: set[tuple[bytes, bytes, bytes]] = set()

    def remembered(key: Any, signature: bytes, data: bytes) -> None:
        known = (key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), signature, data)
        if known not in verified:
            verify(key, signature, data)
            verified.add(known)

    return remembered
