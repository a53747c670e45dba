"""The process keeps much: the collector of cycles must not look through it again and again."""

from __future__ import annotations

import argparse
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.cli import run
from signer.cli.collector import YOUNG_OBJECTS, collect_seldom, keep_what_there_is
from signer.configuration import Configuration
from signer.store.caches import Caches


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_seldom() -> None:
    collect_seldom()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS


def test_what_is_kept_is_not_looked_through_and_garbage_is_not_kept() -> None:
    kept, garbage = [object()], _Cycle()
    gone = weakref.ref(garbage)
    del garbage
    keep_what_there_is()
    assert not any(one is kept for one in gc.get_objects())
    assert gone() is None


async def test_a_controller_that_has_started_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def access(kubeconfig: str) -> Any:
        return SimpleNamespace(connection=None, token_source=None)

    async def starts(*_: object, started: Callable[[Caches], None], **__: object) -> None:
        assert gc.get_freeze_count() == 0
        started(cast("Caches", None))

    monkeypatch.setattr(run, "management_connection", access)
    monkeypatch.setattr(run, "run_replica", starts)
    options = argparse.Namespace(kubeconfig="", health_addr="", diagnostics_address="", audit_log_path="")
    await run._run_until_signal(options, Configuration(namespace="node-attestation"))
    assert gc.get_freeze_count() > 0
