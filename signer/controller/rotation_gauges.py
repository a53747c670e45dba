"""The gauges of one cluster's rotation. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from signer.controller.telemetry.metrics_collector import (
    ROTATION_LINK,
    ROTATION_NODES,
    ROTATION_PREPARED,
    ROTATION_SERVERS,
    ROTATION_STEP,
    ServiceGauge,
)
from signer.rotation.facts import Facts, NotObserved
from signer.rotation.phases import Phase
from signer.rotation.progress import lagging_nodes, lagging_servers, link_end
from signer.rotation.record import Moment, RotationRecord


def rotation_gauges(record: RotationRecord, facts: Facts | None) -> tuple[ServiceGauge, ...]:
    """The gauges; ``facts`` are those of the last pass, None before the first one. None of a rotation that is over."""
    if record.phase.is_over:
        return ()
    observed = () if facts is None else _of_facts(record, facts)
    return (*_of_record(record), *observed)


def _of_record(record: RotationRecord) -> Iterator[ServiceGauge]:
    moments = [(ROTATION_STEP, Moment.STEP)]
    if record.phase is Phase.PREPARED:
        moments.append((ROTATION_PREPARED, Moment.PREPARED))
    for family, moment in moments:
        at = record.at(moment)
        if isinstance(at, datetime):
            yield ServiceGauge(family, at.timestamp())


def _of_facts(record: RotationRecord, facts: Facts) -> Iterator[ServiceGauge]:
    end = link_end(facts)
    if isinstance(end, datetime):
        yield ServiceGauge(ROTATION_LINK, end.timestamp())
    yield ServiceGauge(ROTATION_NODES, len(lagging_nodes(record, facts)))
    servers = lagging_servers(record, facts)
    if not isinstance(servers, NotObserved):
        yield ServiceGauge(ROTATION_SERVERS, len(servers))
