"""``rotate CLUSTER status --watch``: shows a rotation until it is over or waits for a person."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from signer.cli.output import as_yaml, print_report
from signer.cli.plain_output import print_text
from signer.cli.rotate_output import change_line, show_status, status_as_json, status_as_json_line
from signer.cli.rotate_reading import read_view
from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.model.cluster import ClusterKey
from signer.rotation.phases import Phase
from signer.rotation.view import RotationView, View

LOOK_SECONDS: Final = 2.0
"""Between two looks of ``--watch``."""
_DOCUMENTS: Final[Mapping[str, Callable[[View], str]]] = {
    "json": lambda view: f"{status_as_json_line(view)}\n",
    "yaml": lambda view: f"---\n{as_yaml(status_as_json(view))}",
}
_CLEAR: Final = "\x1b[H\x1b[2J"


async def watch(management: Get, key: ClusterKey, output: str) -> View:
    """Show the rotation again and again: on a terminal as one page, else one line or document for each change.

    ``output`` is the value of ``--output``.

    Returns:
        The last state: the rotation is over, or waits for a person.

    Raises:
        NoPolicy, ApiError: the first look failed. Later failures are shown, and it goes on.
    """
    shown = ""
    document = _DOCUMENTS.get(output)
    page = sys.stdout.isatty() and document is None
    view = await read_view(management, key)
    while True:
        now = datetime.now(UTC)
        if page:
            _redraw(view, now)
        else:
            line = change_line(view) if document is None else document(view)
            if line != shown:
                print_text(f"{now:%Y-%m-%dT%H:%M:%SZ} {line}\n" if document is None else line)
                sys.stdout.flush()
            shown = line
        if is_at_rest(view):
            return view
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(ApiError):
            view = await read_view(management, key)


def is_at_rest(view: View) -> bool:
    """Whether nothing changes before a person orders something. A rotation that waits for workers goes on when their
    owner has replaced them.
    """
    if view.pending_order:
        return False
    return not isinstance(view, RotationView) or view.phase.is_over or view.held or view.phase is Phase.PREPARED


def _redraw(view: View, now: datetime) -> None:
    print_text(_CLEAR)
    print_report(lambda console: show_status(view, console, now))
