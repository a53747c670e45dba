"""The process's limit of open files and connections."""

from __future__ import annotations

import contextlib
import resource


def open_as_many_files_as_allowed() -> None:
    """Raise the soft limit to the hard limit, as the Go runtime does.

    Container runtimes leave the soft limit at systemd's 1,024 (systemd.exec(5), ``LimitNOFILE=``), which the watches of
    about a hundred clusters exhaust. It is that low for programs that call select(2); this process does not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # on macOS the soft limit cannot reach the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
