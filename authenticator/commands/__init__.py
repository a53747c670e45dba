"""The commands, for everything beyond printing a stored certificate."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from importlib.metadata import version
from typing import Final, NoReturn

from attestors.standard_output import OutputNotWritten, checked_argparse_output, prepare_streams
from authenticator.commands import agent, credential, prepare, request, status, tpm
from authenticator.commands.arguments import report
from authenticator.commands.output import end_without_output, flush_log
from authenticator.model.failures import ExitCode, Failure

__all__ = ["parser", "report_mismatches", "run"]

_EXIT_CODES = """\
exit codes:
  0 done                     4 API server unreachable    8 no credential, or expired
  1 a defect of ours         5 API server not trusted    9 no evidence
  2 wrong configuration      6 credential refused       10 store unusable or locked
  3 still pending            7 denied                   11 output not written
                                                        12 valid, and not what is configured
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(ExitCode.CONFIGURATION, f"{self.prog}: {_without_values(message)}\n")


def _without_values(message: str) -> str:
    """Remove values from argparse's message: an unknown argument may be a misspelt flag with a secret as its value."""
    what, colon, words = message.partition("unrecognized arguments: ")
    if colon:
        flags = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
        return f"{what}{colon}{' '.join(flags) or 'a word without a flag'}"
    what, colon, words = message.partition("ambiguous option: ")
    if colon:
        given, could_match, known = words.rpartition(" could match ")
        return f"{what}{colon}{given.partition('=')[0]}{could_match}{known}"
    what, ignored, _ = message.partition("ignored explicit argument ")
    return f"{what}it takes no value" if ignored else message


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = _Parser(
        prog="kubelet-authenticator",
        description="The node's program of node attestation: the kubelet's exec credential plugin, and its agent.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {version('capi-node-attestation')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for module in (credential, prepare, agent, request, status, tpm):
        module.add(commands)
    return top
