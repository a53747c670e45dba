"""``node-attestation-controller completion SHELL``, and the completion itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from signer.cli.output import print_text

_SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "node-attestation-controller"
ASKED_BY_A_SHELL: Final = "_ARGCOMPLETE"
"""Environment variable that the shell's function sets (argcomplete, ``bash_completion.d``)."""


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Prints a function for the shell, which asks this program for the words that fit. For this shell: "
        f"`source <({PROGRAM} completion bash)`; for all later ones, write it to a file that your shell reads at its "
        f"start. fish: `{PROGRAM} completion fish | source`."
    )
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=f"one of {', '.join(_SHELLS)}")
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    script = shellcode([PROGRAM], shell=options.shell)
    print_text(f"{script.strip()}\n")
    return 0


def answer_shell(line: str, parser_for: Callable[[list[str]], argparse.ArgumentParser]) -> None:
    """Write the words that fit at the end of ``line`` to the shell's function, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser_for(line.split()[1:]), always_complete_options=False)
