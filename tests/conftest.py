"""Fixtures for every test."""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from signer.testing.api import EmbeddedAPI
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane

# A machine under load is slow; that is no finding.
settings.register_profile("project", deadline=None)
settings.load_profile("project")
_LONGEST_NAME: Final = 100
_ROOT: Final = Path(__file__).parents[1]
_NODES: Final = ("tests/e2e/kubeadm/", "tests/e2e/containers/")
"""Folders whose files run on one worker: a kubelet's ports are those of every kubelet, and a node with containers takes
a twentieth of a core while it waits for tests.
"""
_CONFORMANCE: Final = "tests/conformance/"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``make late``: find tests that take what they have just written as known to the controller."""
    parser.addoption(
        "--late-events", type=float, default=0.0, metavar="SECONDS", help="let events of embedded APIs come so late"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Whoever opens an embedded API gets a late one."""
    _defaults()["late_events_seconds"] = config.getoption("--late-events")
    # A background job of a shell, such as a CI run, ignores SIGINT. Programs that tests start inherit that, and a test
    # that interrupts one would wait in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On several workers, files with slow tests come first: the short ones fill the time until the longest is done."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file stays on one worker, as with ``--dist loadfile``, and so do files that share a control plane or ports."""
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None
    scheduler: Any = LoadFileScheduling(config, log)
    scheduler._split_scope = lambda node_id: scope_of(node_id.partition("::")[0])
    return scheduler


@functools.cache
def scope_of(file: str) -> str:
    """What runs on one worker, one after the other: a file, or all files of a kind."""
    for folder in _NODES:
        if file.startswith(folder):
            return folder
    path = _ROOT / file
    is_real = file.startswith(_CONFORMANCE) or (path.is_file() and "real_control_plane" in path.read_text("utf-8"))
    return real_control_plane.__name__ if is_real else file


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A long value is no name: keys made anew would give each worker another one. pytest 9.2 does the same."""
    return argname if isinstance(val, str | bytes) and len(val) > _LONGEST_NAME else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The tests themselves stay until the end. The garbage collector would look through them again and again: that took
    a third of the time of their collection, and later a fifth of that of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _prompt(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before any other fixture: the API servers of tests with that marker tell events in time."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("prompt"):
            patch.setitem(_defaults(), "late_events_seconds", 0.0)
        yield


def _defaults() -> dict[str, Any]:
    """Of whoever opens an embedded API, also by the published fixtures."""
    defaults = EmbeddedAPI.__init__.__kwdefaults__
    assert defaults is not None
    return defaults


_control_planes: Final[list[contextlib.ExitStack]] = []
"""What ends those that were started."""


@pytest.fixture(scope="session")
def real_control_plane() -> Iterator[ControlPlane]:
    """One real etcd and kube-apiserver for all tests that want it, seeded like a kubeadm cluster.

    Tests that use it carry the markers ``real`` and ``slow``, make objects of their own, and leave kubeadm's grants as
    they were.
    """
    try:
        control_plane = ControlPlane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with contextlib.ExitStack() as stack:
        stack.enter_context(control_plane)
        control_plane.seed_kubeadm()
        # A crash in one test shows in the others as a refused connection; the cause is told here.
        stack.callback(control_plane.check_running)
        _control_planes.append(stack)
        yield control_plane


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """A worker runs all tests of the real control plane, and then others: it does not idle beside these."""
    result = yield
    if nextitem is not None and hasattr(item.config, "workerinput"):
        now, then = (scope_of(one.nodeid.partition("::")[0]) for one in (item, nextitem))
        while now == real_control_plane.__name__ != then and _control_planes:
            _control_planes.pop().close()
    return result
