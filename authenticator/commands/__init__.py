"""The commands, for everything beyond printing a stored certificate."""

from __future__ import annotations

import argparse
import os
import threading
import traceback
from importlib.metadata import version
from typing import Final

from attestors.command_parser import CommandParser
from attestors.standard_output import OutputNotWritten, checked_argparse_output, prepare_streams
from authenticator.commands import agent, credential, prepare, request, status, tpm
from authenticator.commands.arguments import report
from authenticator.commands.output import end_without_output, flush_log
from authenticator.model.failures import ExitCode, Failure

__all__ = ["parser", "report_mismatches", "run"]

_EXIT_CODES = """\
exit codes:
   0 done                      7 denied
   1 a defect of ours          8 no credential, or an expired one
   2 wrong configuration       9 no evidence
   3 still pending            10 store unusable or locked
   4 API server unreachable   11 output not written
   5 API server not trusted   12 valid, and not what is configured
   6 credential refused
"""

# The convention of shells: 128 + SIGINT.
_INTERRUPTED: Final = 130


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    threads = {*threading.enumerate()}
    try:
        code = _run(arguments)
    except SystemExit as end:
        _exit_past_threads(threads, end.code if isinstance(end.code, int) else ExitCode.UNEXPECTED)
        raise
    except Exception:  # a defect must not wait for an attestor's threads either
        if _has_new_threads(threads):
            traceback.print_exc()
        _exit_past_threads(threads, ExitCode.UNEXPECTED)
        raise
    _exit_past_threads(threads, code)
    return code


def report_mismatches(arguments: list[str]) -> None:
    """Report in what the stored certificate is not what is configured. ``arguments`` are those of ``credential``."""
    credential.report_mismatches(parser().parse_args(arguments))


def _run(arguments: list[str]) -> int:
    prepare_streams()
    try:
        known = parser()
        with checked_argparse_output():
            options = known.parse_args(arguments)
        return int(options.command(options))
    except (OutputNotWritten, BrokenPipeError) as error:
        return end_without_output(error)
    except Failure as failure:
        report(str(failure))
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        flush_log()


def _has_new_threads(threads: set[threading.Thread]) -> bool:
    return not threads.issuperset(threading.enumerate())


def _exit_past_threads(threads: set[threading.Thread], code: int) -> None:
    """Exit at once if an attestor left a thread, which may hang: Python would wait for its end."""
    if _has_new_threads(threads):
        flush_log()
        os._exit(code)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = CommandParser(
        prog="kubelet-authenticator",
        description="The node's program of node attestation: the kubelet's exec credential plugin, and its agent.",
        epilog=_EXIT_CODES,
        shows_words=False,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {version('capi-node-attestation')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for module in (credential, prepare, agent, request, status, tpm):
        module.add(commands)
    return top
