"""Logs: one JSON object per line, and never an exception's message."""

from __future__ import annotations

import ast
import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signer.controller.telemetry.log_fields import LOG_FIELDS
from signer.controller.telemetry.logs import configure_logging, log_context, log_loop_fault

SECRET = "c2VjcmV0LWtleQ=="


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for own in ("signer", "attestors"):
        logging.getLogger(own).setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def configured(*, as_json: bool = True, level: int = logging.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(as_json=as_json, level=level, stream=stream)
    return stream


def document(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def fail() -> None:
    raise ValueError(f"cannot read {SECRET}")


def log_failure() -> None:
    try:
        fail()
    except ValueError as error:
        logging.getLogger("signer.test").error("unexpected fault", exc_info=error, extra={"cluster": "ns/c"})


def test_debug_applies_to_our_own_loggers_only() -> None:
    """botocore's and urllib3's loggers write requests and responses, including keys from AssumeRole."""
    stream = configured(level=logging.DEBUG)
    for library in ("botocore.parsers", "urllib3.connectionpool", "google.auth", "plugin"):
        logging.getLogger(library).debug(f"Response body: {SECRET}")
    assert not stream.getvalue()
    for own in ("signer.controller.run", "attestors.aws"):
        logging.getLogger(own).debug("looked")
    assert stream.getvalue().count("looked") == 2
    logging.getLogger("botocore.credentials").info("found")
    assert stream.getvalue().endswith('"message": "found"}\n')
    configured()
    assert not logging.getLogger("attestors.aws").isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize("as_json", [True, False])
def test_foreign_messages_stay_on_one_line(as_json: bool) -> None:
    stream = configured(as_json=as_json)
    logging.getLogger("somebody.else").warning("first\nINFO forged line \x1b[31m")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


async def test_an_unawaited_task_is_logged_without_its_message() -> None:
    stream = configured()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    task = loop.create_task(_failing_task())
    await asyncio.wait([task])
    del task
    gc.collect()
    found = document(stream)
    assert (found["message"], found["exception"][0]) == ("a task or callback failed", "ValueError")
    assert SECRET not in stream.getvalue()


async def _failing_task() -> None:
    fail()


def test_one_object_per_line() -> None:
    stream = configured()
    logging.getLogger("signer.test").warning("it %s", "happened", extra={"cluster": "ns/c", "count": 3})
    found = document(stream)
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "warning", "message": "it happened", "cluster": "ns/c", "count": 3}


@pytest.mark.parametrize("as_json", [True, False])
def test_hostile_text_stays_on_one_line(as_json: bool) -> None:
    stream = configured(as_json=as_json)
    logging.getLogger("signer.test").info("decided", extra={"requester": 'eve\n{"level": "info"}\x1b[2J\u2028'})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_is_logged_without_its_message(as_json: bool) -> None:
    stream = configured(as_json=as_json)
    log_failure()
    assert SECRET not in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert "test_logs.py:" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 1


def test_an_exception_has_its_stack_frames() -> None:
    stream = configured()
    log_failure()
    kind, *places = document(stream)["exception"]
    assert kind == "ValueError"
    assert len(places) == 2


def test_causes_are_not_logged() -> None:
    stream = configured()
    try:
        try:
            fail()
        except ValueError as error:
            raise RuntimeError(f"because of {SECRET}") from error
    except RuntimeError as error:
        logging.getLogger("signer.test").error("unexpected fault", exc_info=error)
    assert SECRET not in stream.getvalue()


def test_values_that_are_not_json() -> None:
    stream = configured()
    logging.getLogger("signer.test").info("what", extra={"things": frozenset({1})})
    assert document(stream)["things"] == "frozenset({1})"


def test_level() -> None:
    stream = configured(level=logging.WARNING)
    logging.getLogger("signer.test").info("quiet")
    assert stream.getvalue() == ""


def test_plain_line() -> None:
    stream = configured(as_json=False)
    logging.getLogger("signer.test").info("serving cluster", extra={"cluster": "ns/c"})
    assert stream.getvalue().split(" ", 1)[1] == 'INFO    serving cluster cluster="ns/c"\n'


def test_warnings_are_logged() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("soon gone", stacklevel=1)
    assert "soon gone" in document(stream)["message"]
    logging.captureWarnings(False)


def test_lines_within_carry_the_context() -> None:
    stream = configured()
    logger = logging.getLogger("an.attestor")
    with log_context(cluster="ns/c"), log_context(csr="csr-1"):
        logger.info("asked", extra={"csr": "its own word"})
    logger.info("later")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["cluster"], first["csr"]) == ("ns/c", "its own word")
    assert "cluster" not in second


async def test_tasks_created_within_the_context_carry_it() -> None:
    stream = configured()

    async def work() -> None:
        logging.getLogger("signer.test").info("working")

    with log_context(cluster="ns/c"):
        task = asyncio.create_task(work())
    await task
    assert document(stream)["cluster"] == "ns/c"


def extras() -> Iterator[tuple[Path, ast.expr]]:
    """The ``extra`` of every log call in the controller."""
    package = Path(__file__).parents[5] / "signer"
    for file in package.rglob("*.py"):
        if "testing" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield from ((file, keyword.value) for keyword in node.keywords if keyword.arg == "extra")


def test_every_field_is_documented() -> None:
    used = {"time", "level", "message", "exception"}
    for file, extra in extras():
        assert isinstance(extra, ast.Dict), file
        used |= {str(key.value) for key in extra.keys if isinstance(key, ast.Constant)}
    assert used == set(LOG_FIELDS)
