"""The garbage collector does not scan long-lived objects again and again."""

from __future__ import annotations

import argparse
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.cli import run
from signer.cli.collector import YOUNG_OBJECTS, collect_less_often, freeze_existing_objects
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


def test_threshold() -> None:
    collect_less_often()
    assert gc.get_threshold()[0] == YOUNG_OBJECTS


def test_freezing_exempts_live_objects_and_frees_garbage() -> None:
    kept, garbage = [object()], _Cycle()
    gone = weakref.ref(garbage)
    del garbage
    freeze_existing_objects()
    assert not any(one is kept for one in gc.get_objects())
    assert gone() is None


async def test_a_started_controller_freezes_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    async def access(options: argparse.Namespace) -> Any:
        return SimpleNamespace(connection=None, token_source=None)

    async def starts(*_: object, started: Callable[[Caches], None], **__: object) -> None:
        assert gc.get_freeze_count() == 0
        started(cast("Caches", None))

    monkeypatch.setattr(run, "management_access", access)
    monkeypatch.setattr(run, "run_replica", starts)
    addresses = {"health_addr": "", "diagnostics_address": "", "access_webhook_address": ""}
    options = argparse.Namespace(audit_log_path="", **addresses)
    await run._run_until_signal(options, Configuration(namespace="node-attestation"))
    assert gc.get_freeze_count() > 0
