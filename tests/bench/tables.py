"""Tables of the smaller measurements."""

from __future__ import annotations

from typing import Final

from tests.bench.challenge_flood import (
    MAXIMUM_GROWTH,
    MAXIMUM_SECONDS_SLOWER,
    Flood,
    Flooded,
    measure_challenge_flood,
)
from tests.bench.cloud_verification import measure_cloud_verification
from tests.bench.figures import Better, Column, Figure, Row, Table
from tests.bench.host_certificates import measure_host_certificates
from tests.bench.many_clusters import Started, start_over
from tests.bench.progress import Say
from tests.bench.revocations import REVOCATIONS, measure_revocations
from tests.bench.settings import Settings
from tests.bench.tpm_verification import measure_tpm_verification
from tests.bench.warm_start import measure_warm_start
from tests.bench.wave import measure_wave
from tests.support.control_plane import ControlPlane

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB


def start(settings: Settings, say: Say) -> Table:
    """The start of the node's program."""
    measured = measure_warm_start(settings.start_runs)
    columns = (Column("ms", "ms", 1), Column("ratio", "ratio to the bare interpreter", 2))
    times = (
        ("python -c pass", measured.interpreter_milliseconds, 1.0),
        ("kubelet-authenticator", measured.plugin_milliseconds, measured.ratio),
    )
    rows = (Row(name, {"ms": Figure.once(ms), "ratio": Figure.once(ratio)}) for name, ms, ratio in times)
    title = "kubelet-authenticator with a valid stored certificate"
    return Table("start", title, columns, tuple(rows), (f"Whole processes; medians of {measured.runs} runs in turn.",))


def verification(settings: Settings, say: Say) -> Table:
    """Verification of each attestor's evidence."""
    runs = settings.verification_runs
    measured = [
        *measure_tpm_verification(runs),
        *measure_cloud_verification(runs),
        *measure_host_certificates(runs),
    ]
    return Table(
        "verification",
        "CPU time of the controller to verify evidence",
        (Column("ms", "median, ms", 2), Column("most", "maximum, ms", 2)),
        tuple(
            Row(one.title, {"ms": Figure.once(one.median_milliseconds), "most": Figure.once(one.maximum_milliseconds)})
            for one in measured
        ),
        (f"{runs} runs each, without network: the clouds' responses are given.",),
    )


def revocations(settings: Settings, say: Say) -> Table:
    """Revocations on their way to a node."""
    found = measure_revocations(REVOCATIONS, settings.revocation_rounds)
    rows = (
        ("the controller builds, signs and publishes", found.published),
        ("the node reads, judges and writes", found.in_place),
        ("altogether", found.altogether),
        ("ssh-keygen -Q on the node, for comparison", found.openssh),
    )
    return Table(
        "revocations",
        f"{found.count:,} revoked key ids on their way to sshd",
        (Column("s", "seconds", 3),),
        tuple(Row(name, {"s": Figure.of(seconds)}) for name, seconds in rows),
        (
            f"Medians of {settings.revocation_rounds} rounds, with the range in brackets, over a real kube-apiserver.",
            f"Each round revokes other key ids: {found.list_bytes:,} bytes of list, {found.text_bytes:,} of ConfigMap.",
            "The node's time has that of the ssh-keygen that reads the list before it takes its place.",
            "An agent looks once a minute, which is not counted.",
        ),
    )


def floods(settings: Settings, say: Say) -> Table:
    """Floods, each on a control plane of its own."""
    rows = []
    for flood in Flood:
        say(flood.value)
        with ControlPlane() as control_plane:
            control_plane.seed_kubeadm()
            rows.append(_flood_row(measure_challenge_flood(control_plane, flood, settings.flood_requests)))
    return Table(
        "floods",
        f"A flood of {settings.flood_requests:,} first requests with TPM evidence and one stolen token",
        (
            Column("grown", "memory growth, MiB", 0),
            Column("before", "p99 of an honest join before, s", 2, Better.NEITHER),
            Column("meanwhile", "during the flood, s", 2),
            Column("slower", "delay, s", 2),
        ),
        tuple(rows),
        (
            f"Limits: {MAXIMUM_GROWTH // _MIB} MiB and {MAXIMUM_SECONDS_SLOWER:.0f} s. "
            "Honest machines join with the same token, two per second.",
        ),
    )


def _flood_row(flooded: Flooded) -> Row:
    figures = {
        "grown": flooded.grown / _MIB,
        "before": flooded.p99_seconds_before,
        "meanwhile": flooded.p99_seconds_meanwhile,
        "slower": flooded.slower_seconds,
    }
    return Row(flooded.flood, {key: Figure.once(value) for key, value in figures.items()})


def clusters(settings: Settings, say: Say) -> Table:
    """Idle workload clusters, on embedded API servers."""
    started = []
    for count in settings.clusters:
        say(f"{count:,} idle clusters")
        started.append(start_over(count, settings.idle_seconds))
    first, *_, last = started
    each = (last.resident - first.resident) / (last.clusters - first.clusters) / _KIB
    rows = [_clusters_row(one) for one in started[:-1]]
    rows.append(_clusters_row(last, kibibytes_each=each))
    return Table(
        "clusters",
        "One controller with idle workload clusters",
        (
            Column("mebibytes", "resident memory, MiB", 0),
            Column("kibibytes_each", "KiB per cluster", 0),
            Column("seconds", "time until all are watched, s", 1),
            Column("ready", "time until all are Ready, s", 1),
            Column("start_cpu", "CPU until then, s", 1),
            Column("idle_cpu", "CPU per idle minute, s", 2),
        ),
        tuple(rows),
        (
            f"The memory per cluster is computed from {first.clusters:,} and {last.clusters:,} clusters.",
            "The API servers are embedded ones in another process on the same cores.",
        ),
    )


def _clusters_row(started: Started, **more: float) -> Row:
    figures = {
        "mebibytes": started.resident / _MIB,
        "seconds": started.watched_seconds,
        "ready": started.ready_seconds,
        "start_cpu": started.start_cpu_seconds,
        "idle_cpu": started.idle_cpu_seconds,
        **more,
    }
    return Row(str(started.clusters), {key: Figure.once(value) for key, value in figures.items()})


def wave(settings: Settings, say: Say) -> Table:
    """A wave of joins in one cluster, and single joins in another."""
    say(f"{settings.wave_requests:,} first joins in one cluster")
    with ControlPlane() as control_plane:
        control_plane.seed_kubeadm()
        measured = measure_wave(control_plane, settings.wave_requests)
    figures = {
        "p50_before": measured.p50_seconds_before,
        "p99_before": measured.p99_seconds_before,
        "p50": measured.p50_seconds_meanwhile,
        "p99": measured.p99_seconds_meanwhile,
        "slower": measured.slower_seconds,
        "wave": measured.wave_seconds,
    }
    return Table(
        "wave",
        f"Single joins during a wave of {measured.requests:,} first joins in another cluster, in seconds",
        (
            Column("p50_before", "p50 before", 2, Better.NEITHER),
            Column("p99_before", "p99 before", 2, Better.NEITHER),
            Column("p50", "p50 during the wave", 2),
            Column("p99", "p99 during the wave", 2),
            Column("slower", "delay of p99", 2),
            Column("wave", "duration of the wave", 0),
        ),
        (Row("single joins", {key: Figure.once(value) for key, value in figures.items()}),),
        ("One controller; each cluster has its own API server. Two single joins start per second.",),
    )
