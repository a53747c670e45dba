"""Runs the commands of this package without the rest of the controller."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from attestors.command_parser import CommandParser
from attestors.standard_output import OutputNotWritten, checked_argparse_output, discard_output, prepare_streams
from signer.offline import COMMANDS, KRL, SSH_SIGN
from signer.offline.failures import say
from signer.offline.krl import add_krl
from signer.offline.show_version import ShowVersion
from signer.offline.ssh_sign import add_ssh_sign

EXIT_NOT_WRITTEN: Final = os.EX_IOERR
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
_ARGUMENTS: Final = {SSH_SIGN: add_ssh_sign, KRL: add_krl}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``node-attestation-controller`` for these commands."""
    prepare_streams()
    try:
        with checked_argparse_output():
            options = _parser().parse_args(arguments)
        return int(options.load()(options))
    except OutputNotWritten as error:
        discard_output(sys.stdout)
        say(f"standard output cannot be written: {error}: fix that, or write elsewhere")
        return EXIT_NOT_WRITTEN
    except BrokenPipeError:
        discard_output(sys.stdout)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="node-attestation-controller", description="Commands that ask no API server.")
    parser.add_argument("--version", action=ShowVersion)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, add_arguments in _ARGUMENTS.items():
        add_arguments(commands.add_parser(name, help=COMMANDS[name]))
    return parser
