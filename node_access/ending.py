"""How the node's programs end: with what they print, or with one line that says why not."""

from __future__ import annotations

import sys
from typing import Final

from attestors.standard_output import OutputNotWritten, discard_output, standard_output

EXIT_FAILED: Final = 1


def end_with_output(program: str, text: str) -> int:
    """Print to standard output; returns the exit code."""
    try:
        with standard_output():
            print(text)
    except OutputNotWritten as error:
        discard_output(sys.stdout)
        why = f"standard output cannot be written: {error}: fix that, or write elsewhere"
        return end_with_reason(program, EXIT_FAILED, why)
    except BrokenPipeError:
        discard_output(sys.stdout)
        return EXIT_FAILED
    return 0


def end_with_reason(program: str, code: int, why: str) -> int:
    """Print the reason to standard error; returns the exit code."""
    print(f"{program}: {why}", file=sys.stderr)
    return code
