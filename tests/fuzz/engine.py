"""Runs targets under atheris (libFuzzer with Python's coverage), each in a process of its own.

Only our packages are instrumented, and once: the processes are forked from the one that loaded them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("attestors", "signer", "authenticator", "node_access")
_TABLE: Final = "tests.fuzz.table"
_INPUT_SECONDS: Final = 10
"""One input that takes longer is a finding."""
_MAXIMUM_INPUT_BYTES: Final = 8192
_MEMORY_MIB: Final = 1024


class AtherisMissing(Exception):
    """Atheris has no package for this Python or this machine; the corpus can be read all the same."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried: a number of inputs for tests, which then take no more on a slow machine than they must."""

    runs: int = -1
    seconds: int = 0
    seed: int = 0

    def options(self) -> list[str]:
        """LibFuzzer's."""
        return [f"-runs={self.runs}", f"-max_total_time={self.seconds}", f"-seed={self.seed}"]


def load() -> Any:
    """The table of targets, with our packages instrumented.

    Raises:
        AtherisMissing: it is not installed.
    """
    try:
        atheris = importlib.import_module("atheris")
    except ImportError as error:
        raise AtherisMissing("atheris is not installed: it has no package for this Python or this machine") from error
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES)
    if loaded:
        raise RuntimeError(f"loaded before it could be instrumented: {loaded[0]}")
    with (
        contextlib.redirect_stderr(io.StringIO()),
        atheris.instrument_imports(include=list(PACKAGES), enable_loader_override=False),
    ):
        return importlib.import_module(_TABLE)


def fuzz(table: Any, name: str, effort: Effort, findings: Path) -> bool:
    """Fuzz one target; whether it kept its contract. An input that breaks it is written to ``findings``.

    What it says goes to ``log`` there.
    """
    findings.mkdir(parents=True, exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix="capi-node-attestation-corpus-"))
    try:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _say_into(findings / "log")
            _run(table, name, effort, corpus, findings)
        _, status = os.waitpid(child, 0)
        return status == 0
    finally:
        shutil.rmtree(corpus)


def _say_into(log: Path) -> None:
    """LibFuzzer talks much, and only a finding is of interest."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _run(table: Any, name: str, effort: Effort, corpus: Path, findings: Path) -> None:
    """In a child; never returns, for libFuzzer ends the process."""
    import atheris

    from tests.fuzz.mutations import change_document
    from tests.fuzz.target import Shape

    target = table.TARGETS[name]

    def change(content: bytes, maximum: int, seed: int) -> bytes:
        changed: bytes = change_document(content, maximum, seed, atheris.Mutate)
        return changed

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except BaseException:
            (findings / f"finding-{hashlib.sha256(data).hexdigest()[:16]}").write_bytes(data)
            raise

    options = [
        f"fuzz-{name}",
        *effort.options(),
        f"-timeout={_INPUT_SECONDS}",
        f"-rss_limit_mb={_MEMORY_MIB}",
        f"-max_len={_MAXIMUM_INPUT_BYTES}",
        f"-artifact_prefix={findings}/",
        "-verbosity=1",
        "-print_final_stats=0",
        str(corpus),
        str(table.CORPUS / name),
    ]
    mutator = {"custom_mutator": change} if target.shape is Shape.JSON else {}
    try:
        atheris.Setup(options, run, **mutator)
        atheris.Fuzz()
    finally:
        os._exit(1)  # not reached: whatever comes here must not go on as the parent
