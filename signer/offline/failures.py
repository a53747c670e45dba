"""Failures of the commands, and the exit codes that they become."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from attestors.standard_output import discard_output
from attestors.wire.ssh.errors import SSHRefused
from signer.authority.ssh.errors import SSHAuthorityRefused

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class InputRefused(Exception):
    """An argument or a file is not as it must be; the message says what to do."""


class CommandFailed(Exception):
    """The command cannot do what it is for; the message says why."""


def say(text: str) -> None:
    """Print a line to standard error. A failure, as on a full disk, does not change the exit code."""
    try:
        print(f"node-attestation-controller: {text}", file=sys.stderr)
    except OSError:
        discard_output(sys.stderr)


def with_exit_code(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """The command, with its failures printed and turned into exit codes."""

    def run(options: argparse.Namespace) -> int:
        try:
            return command(options)
        except (InputRefused, SSHRefused, SSHAuthorityRefused) as error:
            say(str(error))
            return EXIT_USAGE
        except CommandFailed as error:
            say(str(error))
            return EXIT_FAILED

    return run
