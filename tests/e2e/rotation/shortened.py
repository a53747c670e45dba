"""Waits of the controller that no configuration shortens, shortened for whole rotations of tests and demo.

Here every process reads its files at its start, and all clocks are one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from unittest import mock

from signer.kube.backoff import Backoff
from signer.rotation import proofs, reconciler
from signer.rotation.control_plane import renewal


@contextlib.contextmanager
def shortened(looks: Backoff = reconciler.WAITING) -> Iterator[None]:
    """A second for caches and clocks, three between two proofs, and ``looks`` between two looks at the world."""
    with (
        mock.patch.object(renewal, "SETTLING", timedelta(seconds=1)),
        mock.patch.object(proofs, "AGAIN", timedelta(seconds=3)),
        mock.patch.object(reconciler, "WAITING", looks),
    ):
        yield


OFTEN = Backoff(base_seconds=0.5, maximum_seconds=1.0, jitter=0.2)
"""For what is watched, and for what must be short."""
