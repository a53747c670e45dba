"""``kubelet-authenticator``: the entry point. A stored certificate is printed before anything else is imported."""

from __future__ import annotations

import os
import sys

from authenticator.stored_credential import MoreToDo, print_stored


def main(arguments: list[str] | None = None) -> int:
    """Entry point of ``kubelet-authenticator``; returns its exit code (:mod:`authenticator.model.failures`)."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] != ["credential"]:
        return _run(given)
    try:
        code = _print(given)
        return _run(given) if code is None else code
    except Exception as error:
        # Not even the libraries can be imported, perhaps. A valid certificate is printed whatever goes wrong.
        code = _print(given, nothing_else_works=True)
        if code is None:
            raise
        _say(f"{error!r}; the stored certificate is still valid")
        return code


def _run(given: list[str]) -> int:
    from authenticator.commands import run

    return run(given)


def _print(given: list[str], *, nothing_else_works: bool = False) -> int | None:
    """The exit code; None where nothing was printed, for there is more to do."""
    try:
        print_stored(given[1:], nothing_else_works=nothing_else_works)
    except MoreToDo:
        return None
    except OSError as error:  # of standard output: what cannot be read is more to do
        from authenticator.commands.output import end_without_output

        return end_without_output(error)
    return 0


def _say(text: str) -> None:
    """Without a buffer, which Python would empty at the end: a log that is full keeps no credential back."""
    import contextlib

    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"kubelet-authenticator: {text}\n".encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    sys.exit(main())
