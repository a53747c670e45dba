"""Tests that play thousands of rotations parse the same few certificates, keys and kubeconfigs in each of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from signer.authority.der import read_blocks
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.authority.private_key import read_private_key
from signer.kube.kubeconfig import parse_kubeconfig

PURE: Final[tuple[Callable[..., Any], ...]] = (read_blocks, parse_ca_certificate, read_private_key, parse_kubeconfig)
"""Functions of bytes alone, whose results do not change."""
_ENTRIES: Final = 4096


@pytest.fixture(scope="module")
def parsed_once() -> Iterator[None]:
    """The same bytes are parsed once: a module's tests of whole rotations take a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for function in PURE:
            remembered = functools.lru_cache(_ENTRIES)(function)
            for module in list(sys.modules.values()):
                if vars(module).get(function.__name__) is function:
                    patch.setattr(module, function.__name__, remembered)
        yield
