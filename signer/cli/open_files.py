"""How many files and connections the process may have open at once."""

from __future__ import annotations

import contextlib
import resource


def open_as_many_files_as_allowed() -> None:
    """Raise the soft limit to the hard one, as Go programs do by themselves.

    Container runtimes leave the soft one at systemd's 1,024 (systemd.exec(5), ``LimitNOFILE=``), which some hundred
    clusters with their watches need. It is so low for programs that call select(2), which nothing here does.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has a hard limit that the soft one cannot reach
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
