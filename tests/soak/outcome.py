"""The outcome of a soak test: counts and problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from signer.testing.world import Verdict
from tests.soak.ledger import Ledger
from tests.soak.replicas import Ran
from tests.soak.weather import Fault


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one soak test."""

    seed: int
    seconds: float
    """Duration of traffic under faults."""
    total_seconds: float
    """From the start of the first API server to the final check."""
    joins: int
    renewals: int
    serving: int
    challenged: int
    started_again: int
    not_yet_valid: int
    copies: int
    impostors_denied: int
    certificates: int
    """CSRs with a certificate at the end."""
    requests: int
    controllers: Ran
    disruptions: Mapping[str, int]
    faults: Mapping[str, int]
    """Faults of single requests, over all API servers."""
    slowest_seconds: float
    slowest: str
    left_waiting: tuple[str, ...]
    """Requests still undecided after the time to settle, including impostors'."""
    findings: tuple[str, ...]
    """Wrong decisions, and unexpected exits and errors of the controller."""
    violations: tuple[str, ...]
    """Violations of the invariant (``tests/integration/endorsement_key_sources.py``)."""

    @classmethod
    def of(
        cls,
        seed: int,
        seconds: float,
        total_seconds: float,
        ledger: Ledger,
        decided: Mapping[str, Mapping[str, Verdict]],
        broken: list[str],
        faults: Mapping[str, Mapping[Fault, int]],
        ran: Ran,
    ) -> Outcome:
        """Build the outcome; ``decided`` is the final verdict on every CSR, by cluster and name."""
        open_ones = {
            f"{cluster} {name}"
            for cluster, verdicts in decided.items()
            for name, verdict in verdicts.items()
            if not verdict.certificate and verdict.condition != "Denied"
        }
        impostors = [
            f"{cluster} {name}: an impostor has a certificate"
            for cluster, verdicts in decided.items()
            for name, verdict in verdicts.items()
            if name.startswith("impostor-") and verdict.certificate
        ]
        met: dict[str, int] = {}
        for of_server in faults.values():
            for fault, count in of_server.items():
                met[fault.value] = met.get(fault.value, 0) + count
        every = [verdict for verdicts in decided.values() for verdict in verdicts.values()]
        return cls(
            seed=seed,
            seconds=seconds,
            total_seconds=total_seconds,
            joins=ledger.joins,
            renewals=ledger.renewals,
            serving=ledger.serving,
            challenged=ledger.challenged,
            started_again=ledger.started_again,
            not_yet_valid=ledger.not_yet_valid,
            copies=ledger.copies,
            impostors_denied=ledger.impostors_denied,
            certificates=sum(bool(verdict.certificate) for verdict in every),
            requests=len(every),
            controllers=ran,
            disruptions=dict(sorted(ledger.disruptions.items())),
            faults=dict(sorted(met.items())),
            slowest_seconds=ledger.slowest_seconds,
            slowest=ledger.slowest,
            left_waiting=tuple(sorted(open_ones | set(ledger.waiting))),
            findings=tuple(ledger.findings),
            violations=(*impostors, *broken),
        )

    @property
    def is_clean(self) -> bool:
        """Whether there are no problems."""
        return not (self.left_waiting or self.findings or self.violations)

    @property
    def problems(self) -> list[str]:
        """All problems, one text each."""
        waiting = [f"left waiting: {name}" for name in self.left_waiting]
        return [*(f"invariant: {text}" for text in self.violations), *self.findings, *waiting]

    def as_json(self) -> dict[str, Any]:
        """The outcome for the machine-readable report."""
        return {**asdict(self), "isClean": self.is_clean}

    def table(self) -> Table:
        """The outcome as a table."""
        table = Table(title=f"Soak test of {self.seconds:.0f} s, seed {self.seed}", show_header=False)
        table.add_column("name")
        table.add_column("value", justify="right")
        for name, value in (
            ("joins", self.joins),
            ("renewals", self.renewals),
            ("serving certificates", self.serving),
            ("challenges answered", self.challenged),
            ("copies of requests", self.copies),
            ("impostors denied", self.impostors_denied),
            ("certificates / requests", f"{self.certificates} / {self.requests}"),
            ("expired challenges, requested again", self.started_again),
            ("not yet valid (clock ahead), requested again", self.not_yet_valid),
            ("controller starts", self.controllers.starts),
            ("replicas share work by", ", ".join(self.controllers.divisions)),
            ("changes of shard owner", self.controllers.shard_changes),
            ("slowest certificate", f"{self.slowest_seconds:.1f} s ({self.slowest})"),
        ):
            table.add_row(name, str(value))
        table.add_section()
        for name, count in (*self.disruptions.items(), *self.faults.items()):
            table.add_row(name, str(count))
        table.add_section()
        for name, number in (
            ("left waiting", len(self.left_waiting)),
            ("findings", len(self.findings)),
            ("violations of the invariant", len(self.violations)),
        ):
            table.add_row(name, str(number), style="bold red" if number else "green")
        return table
