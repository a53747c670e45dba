"""The garbage collector does not scan long-lived objects again and again."""

from __future__ import annotations

import argparse
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer import cli
from signer.cli import commands
from signer.cli import run as run_command
from signer.cli.collector import YOUNG_OBJECTS, collect_less_often, freeze_existing_objects, no_collections
from signer.cli.loading import Run
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


def test_the_collector_is_off_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(options: argparse.Namespace) -> int:
        seen.append(gc.isenabled())
        return 0

    def load() -> Run:
        seen.append(gc.isenabled())
        return run

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        seen.append(gc.isenabled())
        parser.set_defaults(load=load)

    monkeypatch.setattr(cli, "COMMANDS", (commands.Command("audit", "", add_arguments),))
    assert cli.main(["audit"]) == 0
    assert seen == [False, False, True]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_after_wrong_usage(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with pytest.raises(SystemExit), no_collections():
            raise SystemExit(2)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


async def test_a_started_controller_freezes_its_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    async def access(options: argparse.Namespace) -> Any:
        return SimpleNamespace(connection=None, token_source=None)

    async def starts(*_: object, started: Callable[[Caches], None], **__: object) -> None:
        assert gc.get_freeze_count() == 0
        started(cast("Caches", None))

    monkeypatch.setattr(run_command, "management_access", access)
    monkeypatch.setattr(run_command, "run_replica", starts)
    addresses = {"health_addr": "", "diagnostics_address": "", "access_webhook_address": ""}
    options = argparse.Namespace(audit_log_path="", **addresses)
    await run_command._run_until_signal(options, Configuration(namespace="node-attestation"))
    assert gc.get_freeze_count() > 0
