"""``kubelet-authenticator``: the entry point. It prints a stored certificate before it imports anything else."""

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
        # Perhaps not even the libraries can be imported. A valid certificate is printed whatever fails.
        code = _print(given, last_resort=True)
        if code is None:
            raise
        _report(f"{error!r}; the stored certificate is still valid")
        return code


def _run(given: list[str]) -> int:
    from authenticator.commands import run

    return run(given)


def _print(given: list[str], *, last_resort: bool = False) -> int | None:
    """The exit code; None if nothing was printed, because there is more to do."""
    try:
        compared = print_stored(given[1:], last_resort=last_resort)
    except MoreToDo:
        return None
    except OSError as error:  # of standard output; an unreadable file raises MoreToDo
        from authenticator.commands.output import end_without_output

        return end_without_output(error)
    if not compared:
        _compare(given)
    return 0


def _compare(given: list[str]) -> None:
    """Report in what the printed certificate is not what is configured. It takes longer, and must change nothing."""
    try:
        from authenticator.commands import report_mismatches

        report_mismatches(given)
    except Exception as error:  # noqa: BLE001 - the certificate is printed already, whatever fails now
        _report(f"the stored certificate could not be compared with the configuration: {error!r}")


def _report(text: str) -> None:
    """Write to stderr unbuffered: Python would flush a buffer at exit, and fail there if the log is full."""
    import contextlib

    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            os.write(2, f"kubelet-authenticator: {text}\n".encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    sys.exit(main())
