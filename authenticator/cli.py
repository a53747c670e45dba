"""``kubelet-authenticator``: the entry point. A stored certificate is printed before anything else is imported."""

from __future__ import annotations

import sys

from authenticator.stored_credential import MoreToDo, print_stored


def main(arguments: list[str] | None = None) -> int:
    """Entry point of ``kubelet-authenticator``; returns its exit code (:mod:`authenticator.model.failures`)."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["credential"]:
        try:
            print_stored(given[1:])
        except MoreToDo:
            pass
        except OSError as error:  # of standard output: what cannot be read is more to do
            from authenticator.commands.output import end_without_output

            return end_without_output(error)
        else:
            return 0
    from authenticator.commands import run

    return run(given)


if __name__ == "__main__":
    sys.exit(main())
