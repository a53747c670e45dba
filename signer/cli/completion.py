"""``node-attestation-controller completion SHELL``, and the completion itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from signer.cli.plain_output import print_text

PROGRAM: Final = "node-attestation-controller"
ASKED_BY_A_SHELL: Final = "_ARGCOMPLETE"
"""Environment variable that the shell's function sets (argcomplete, ``bash_completion.d``)."""


def run_completion(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    from argcomplete.shell_integration import shellcode

    script = shellcode([PROGRAM], shell=options.shell)
    print_text(f"{script.strip()}\n")
    return 0


def answer_shell(line: str, parser_for: Callable[[list[str]], argparse.ArgumentParser]) -> None:
    """Write the words that fit at the end of ``line`` to the shell's function, and end the process."""
    import argcomplete

    argcomplete.autocomplete(parser_for(line.split()[1:]), always_complete_options=False)
