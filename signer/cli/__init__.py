"""The command line of ``node-attestation-controller``: the controller and its operator commands.

Exit codes: 0 success; 1 failure at run time, or ``audit`` found a fault; 2 wrong usage or configuration; 3 ``check``,
``preflight`` or ``status`` found something that needs attention; 4 ``run`` lost its Lease. ``explain``: 0 the request
was or would be approved or challenged, 4 denied, 5 it waits, 6 it is left alone. ``rotate``: 3 as above, 4 the
controller rejected the order, 5 the rotation waits for a person, or the controller did not answer, 6 the caller
declined. ``node-access preflight``: 3 other ways in are declared, 5 not known. ``ssh-sign --exec``: that of ``ssh``.
All commands: 74 standard output cannot be written, 130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from attestors.command_parser import CommandParser
from attestors.standard_output import OutputNotWritten, checked_argparse_output, discard_output, prepare_streams
from signer.cli.collector import no_collections
from signer.cli.commands import COMMANDS
from signer.cli.completion import ASKED_BY_A_SHELL, PROGRAM, answer_shell
from signer.cli.plain_output import print_to_stderr
from signer.cli.remedies import remedy_of
from signer.kube.errors import ApiError
from signer.model.command_failures import CommandFailed, InputRefused
from signer.offline.show_version import ShowVersion

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_WRITTEN: Final = os.EX_IOERR
"""As in ``sysexits.h``. No command uses it for anything else."""
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""128 plus SIGINT or SIGPIPE, as shells report them."""
_PLUGIN: Final = "kubectl-node_attestation"
_EVERY_COMMAND: Final = frozenset(command.name for command in COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``node-attestation-controller``."""
    prepare_streams()
    try:
        with checked_argparse_output(), no_collections():
            if ASKED_BY_A_SHELL in os.environ:
                answer_shell(os.environ.get("COMP_LINE", ""), lambda words: _parser(_named_in(words)))
            words = sys.argv[1:] if arguments is None else arguments
            options = _parser(_named_in(words)).parse_args(words)
            run = options.load()
        return int(run(options))
    except InputRefused as error:
        _say(str(error))
        return EXIT_USAGE
    except CommandFailed as error:
        _say(str(error))
        return EXIT_FAILED
    except ApiError as error:
        _say(f"the management cluster: {error}{remedy_of(error)}")
        return EXIT_FAILED
    except OutputNotWritten as error:
        discard_output(sys.stdout)
        _say(f"standard output cannot be written: {error}: fix that, or write elsewhere")
        return EXIT_NOT_WRITTEN
    except BrokenPipeError:  # the reader stopped early, as `head` does
        discard_output(sys.stdout)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _say(text: str) -> None:
    print_to_stderr(f"{_name()}: {text}")


def _name() -> str:
    """As a person typed it: kubectl calls a plugin by its file."""
    return "kubectl node-attestation" if _PLUGIN in (sys.argv[0] if sys.argv else "") else PROGRAM


def _named_in(words: Sequence[str]) -> frozenset[str]:
    """The word that argparse takes for the command's name, if there is one."""
    return frozenset([word for word in words if not word.startswith("-")][:1])


def _parser(known: frozenset[str] = _EVERY_COMMAND) -> argparse.ArgumentParser:
    """List every command, with the arguments of those that are ``known``."""
    parser = CommandParser(
        prog=_name(),
        description="Approves and signs kubelet certificates of Cluster API workload clusters for attested nodes.",
    )
    parser.add_argument("--version", action=ShowVersion)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        added = commands.add_parser(command.name, help=command.summary)
        if command.name in known:
            command.add_arguments(added)
    return parser
