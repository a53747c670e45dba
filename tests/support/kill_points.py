"""Kills ``kubelet-authenticator`` at its N-th step in the store, towards the API server, or at its end.

::

    python -m tests.support.kill_points 17 -- credential --config FILE      SIGKILL at step 17
    python -m tests.support.kill_points --stop 17 -- credential ...         SIGSTOP there instead
    python -m tests.support.kill_points --steps FILE 0 -- credential ...    run to the end, and write the steps' names
    python -m tests.support.kill_points                                     one run for each line, see :class:`Order`

A step is the moment before or after a call with an effect outside the process. This process wraps the calls; the
product is unaware. A write has one more step, after half of the content.

Instead of sending a signal, a step may make the call fail, as on a full or broken disk (:data:`FALLIBLE`).

Without arguments each run is a fork of this process, which has already imported the product, so that hundreds of kills
take no longer than dozens of starts of Python. In a fork, sleeps are :data:`HASTE` times shorter.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TextIO, cast

HASTE: Final = 20.0
ROOT: Final = Path(__file__).parents[2]

FALLIBLE: Final = re.compile(
    r"(before (os\.(?!close)|fcntl\.flock|io\.open (kubelet|bootstrap)|file\.write)|amid file|after (os|file)\.close).*"
)
"""The steps at which a file system may fail: instead of the call, halfway through it, or at the end."""
WRITES: Final = re.compile(r"(before (os\.(?!close|unlink)|file\.write)|amid file).*")
"""The subset of steps at which a full disk fails."""

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY
_OF_OS: Final = ("mkdir", "replace", "unlink", "fsync", "fchmod", "ftruncate", "pwrite", "close")


@dataclass
class Steps:
    """Counts steps, and at one of them sends this process a signal or raises an error."""

    last: int = 0
    """0: none."""
    signal: signal.Signals = signal.SIGKILL
    error: int = 0
    """The ``errno`` of a failure instead of the signal; 0 for none."""
    lasting: bool = False
    """From that step on, fail at every step at which a full disk fails."""
    names: list[str] = field(default_factory=list)

    def take(self, name: str) -> None:
        """Count a step.

        Raises:
            OSError: this step fails.
        """
        self.names.append(name)
        here = len(self.names) == self.last
        if not self.error:
            if here:
                os.kill(os.getpid(), self.signal)
        elif (here and FALLIBLE.fullmatch(name)) or (self._is_full and WRITES.fullmatch(name)):
            raise OSError(self.error, os.strerror(self.error))

    @property
    def _is_full(self) -> bool:
        return self.lasting and len(self.names) >= self.last

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` with a step before and a step after it."""

        @functools.wraps(call)
        def wrapped(*positional: Any, **named: Any) -> Any:
            full = f"{name}{_of(positional)}"
            self.take(f"before {full}")
            result = call(*positional, **named)
            self.take(f"after {full}")
            return result

        return wrapped

    def wrap(self, holder: Any, name: str) -> None:
        """Replace an attribute of a module or class."""
        setattr(holder, name, self.around(f"{holder.__name__}.{name}", getattr(holder, name)))

    def wrap_everything(self) -> None:
        """Wrap all calls of the node's program with effects outside its memory, except reads."""
        import fcntl
        import http.client
        import ssl

        from authenticator.api import server

        for name in _OF_OS:
            self.wrap(os, name)
        if self.error:
            open_file = self.around("io.open", io.open)  # also for reads, which have no effect but may fail
            for holder in (io, builtins):
                setattr(holder, "open", open_file)  # noqa: B010 - mypy guards the name of a function
        open_plainly, fdopen_plainly = os.open, os.fdopen
        open_counted = self.around("os.open", open_plainly)

        def counted_open(path: Any, flags: int, *positional: Any, **named: Any) -> int:
            opening = open_counted if flags & _WRITING else open_plainly
            descriptor: int = opening(path, flags, *positional, **named)
            return descriptor

        def counted_fdopen(descriptor: int, *positional: Any, **named: Any) -> CountedFile:
            name = "stdout" if os.path.sameopenfile(descriptor, 1) else "file"
            return CountedFile(self, name, fdopen_plainly(descriptor, *positional, **named))

        replacements: dict[str, Callable[..., Any]] = {"open": counted_open, "fdopen": counted_fdopen}
        for name, replacement in replacements.items():
            setattr(os, name, replacement)
        self.wrap(fcntl, "flock")
        self.wrap(server, "dial")
        self.wrap(ssl.SSLContext, "wrap_socket")
        for name in ("request", "getresponse", "close"):
            self.wrap(http.client.HTTPConnection, name)
        for name in ("read", "readline"):
            self.wrap(http.client.HTTPResponse, name)
        sys.stdout = cast("TextIO", CountedFile(self, "stdout", sys.stdout))


class CountedFile:
    """A file whose writes and close are steps."""

    def __init__(self, steps: Steps, name: str, file: Any) -> None:
        self._steps = steps
        self._name = name
        self._file = file

    def write(self, content: Any) -> int:
        """Write in two halves, each of which reaches the kernel."""
        middle = len(content) // 2
        self._steps.take(f"before {self._name}.write")
        if middle:
            self._file.write(content[:middle])
            self._file.flush()
            self._steps.take(f"amid {self._name}.write")
        self._file.write(content[middle:])
        self._steps.take(f"after {self._name}.write")
        return len(content)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps.take(f"before {self._name}.close")
        self._file.close()
        self._steps.take(f"after {self._name}.close")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _of(arguments: Sequence[Any]) -> str:
    """The file or verb in a call's arguments."""
    texts = [os.path.basename(os.fspath(one)) for one in arguments if isinstance(one, (str, os.PathLike))]
    return f" {' '.join(texts)}" if texts else ""


@dataclass(frozen=True)
class Order:
    """A request for one run: a line of JSON on standard input. The response is a line with the exit code."""

    arguments: Sequence[str]
    """Arguments of ``kubelet-authenticator``."""
    environment: Mapping[str, str]
    output: str
    """File for the standard output."""
    log: str
    """File for the standard error."""
    step: int = 0
    """The step at which to end; 0 for none."""
    steps: str = ""
    """File for the steps' names."""
    attestation: str = ""
    """``module:function`` that replaces :meth:`authenticator.flow.evidence.Attestation.of`."""
    error: int = 0
    """The ``errno`` of a failure at that step, instead of a signal."""
    lasting: bool = False
    """The disk is full from that step on."""


class KillPoints:
    """Runs the program in forks of one process, a context manager."""

    def __init__(self) -> None:
        self.runs = 0
        self.kills = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kill_points"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    @property
    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("use KillPoints as a context manager")
        return self._process

    def run(self, order: Order) -> int:
        """The exit code, or the negative number of the signal that ended it."""
        process = self._running
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("without pipes")
        process.stdin.write(json.dumps(asdict(order)) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        self.runs += 1
        self.kills += code == -signal.SIGKILL
        return code


def _serve() -> None:
    """Run orders until the end of the input."""
    slowly = time.sleep
    time.sleep = lambda seconds: slowly(float(seconds) / HASTE)  # before the product imports it
    for module in ("authenticator.cli", "authenticator.commands", "authenticator.flow.evidence", "keyed_mac.node"):
        importlib.import_module(module)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        child = os.fork()
        if child == 0:
            _carry_out(order)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _carry_out(order: Order) -> NoReturn:
    code = 1
    try:
        for path, descriptor in ((order.output, 1), (order.log, 2)):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, descriptor)
            os.close(file)
        os.environ.clear()
        os.environ.update(order.environment)
        steps = Steps(order.step, error=order.error, lasting=order.lasting)
        code = _run(steps, order.arguments, order.steps, order.attestation)
    except BaseException:  # noqa: BLE001 - a fork must never return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(steps: Steps, arguments: Sequence[str], steps_file: str, attestation: str) -> int:
    from authenticator.cli import main

    if attestation:
        _replace_attestation(attestation)
    _renew_in_this_process()
    steps.wrap_everything()
    try:
        code = main(list(arguments))
        sys.stdout.flush()
        steps.take("end")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    if steps_file:
        Path(steps_file).write_text("".join(f"{name}\n" for name in steps.names))
    return code


def _replace_attestation(name: str) -> None:
    from authenticator.commands import credential
    from authenticator.flow.certificates import NodeCertificates

    module, _, function = name.partition(":")
    load = getattr(importlib.import_module(module), function)
    replacement = functools.partial(NodeCertificates, load_attestation=load)
    setattr(credential, "NodeCertificates", replacement)  # noqa: B010 - mypy guards the name of a class


def _renew_in_this_process() -> None:
    """Renew in this process, so that the steps of plugin and renewal are counted together."""
    from authenticator.commands import credential
    from tests.support.renewal_here import renew_here

    setattr(credential, "renew_in_child", renew_here)  # noqa: B010 - mypy guards the name of a function


def _main() -> int:
    if len(sys.argv) == 1:
        _serve()
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.support.kill_points")
    parser.add_argument("step", type=int, help="where to end; 0 is nowhere")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL")
    parser.add_argument("--steps", default="", metavar="FILE", help="where to write the steps' names")
    parser.add_argument("--attestation", default="", metavar="MODULE:FUNCTION")
    parser.add_argument("arguments", nargs="+", help="of kubelet-authenticator, behind --")
    options = parser.parse_args()
    steps = Steps(options.step, signal.SIGSTOP if options.stop else signal.SIGKILL)
    return _run(steps, options.arguments, options.steps, options.attestation)


if __name__ == "__main__":
    sys.exit(_main())
