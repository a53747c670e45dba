"""``rotate CLUSTER status``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from signer.cli.output import print_result
from signer.cli.rotate_action import EXIT_NEEDS_ATTENTION, EXIT_WAITS, run_action
from signer.cli.rotate_output import show_status, status_as_json
from signer.cli.rotate_reading import read_view
from signer.cli.rotate_watch import watch
from signer.rotation.view import Attention

_BY_ATTENTION: Final[Mapping[Attention, int]] = {
    Attention.NONE: 0,
    Attention.PERSON: EXIT_WAITS,
    Attention.NEEDED: EXIT_NEEDS_ATTENTION,
}


def run_status(options: argparse.Namespace) -> int:
    """Run ``rotate status`` with its parsed arguments."""
    if options.watch:
        last = run_action(options, lambda management, key: watch(management, key, options.output))
        return _BY_ATTENTION[last.attention]
    view = run_action(options, read_view)
    print_result(
        options.output,
        lambda: status_as_json(view),
        lambda console: show_status(view, console, datetime.now(UTC)),
    )
    return _BY_ATTENTION[view.attention]
