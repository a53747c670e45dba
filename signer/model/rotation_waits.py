"""The times that a rotation of certificate authorities waits. The operator's configuration may change them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

MAXIMUM_WAIT: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Waits:
    """Times that no observation replaces, each from zero to :data:`MAXIMUM_WAIT`.

    The operator's configuration may shorten them; the record of a rotation keeps what held at its start.
    """

    trust_age: timedelta = timedelta(minutes=10)
    """client-go looks at a CA file at most every 5 minutes (measured: 295 s), so clients get twice that."""
    overlap: timedelta = timedelta(hours=24)
    """Between the switch and the end of the old CA. KCP keeps its etcd client, with its certificate, for 24 hours
    (cluster-api ``controlplane/kubeadm/pkg/cluster.go``)."""
    open_watches: timedelta = timedelta(hours=1)
    """A watch that a dropped CA authenticated goes on until the API server ends it (``--min-request-timeout`` 30 to 60
    minutes)."""
