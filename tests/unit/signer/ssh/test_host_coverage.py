"""Which nodes count as without a host certificate."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from signer.model.host_keys import AttestedHostKey, AttestedHostKeys
from signer.model.record import AttestedNode
from signer.ssh.host_coverage import HostCoverage
from tests.unit.signer.builders import NOW, machine_view, record

SSH: Final = AttestedHostKeys(
    trust_version=1,
    attested=NOW,
    host_keys=(AttestedHostKey("ssh-ed25519 AAAA", 1),),
    principals=("n",),
    not_before=NOW,
    not_after=NOW + timedelta(days=30),
    authority="SHA256:x",
    nonce_key="k",
)
WITH: Final = record(ssh=SSH)
WITHOUT: Final = record()


def shown(*records: AttestedNode, node_ref: str = "", later: timedelta = timedelta()) -> tuple[bool | None, str]:
    coverage = HostCoverage(NOW + later)
    coverage.add(machine_view(node_ref=node_ref), records)
    condition = coverage.condition
    return condition.met, condition.message.rpartition(": ")[2]


def test_what_counts() -> None:
    assert shown(WITH) == (True, "each of 1 nodes has a host certificate")
    assert shown() == (True, "each of 0 nodes has a host certificate"), "it has no node yet"
    assert shown(WITHOUT) == (False, WITHOUT.node_name)
    assert shown(node_ref="init") == (False, "init"), "it never attested"
    assert shown(WITH, later=timedelta(days=30)) == (False, WITH.node_name), "it has run out"
    assert shown(WITHOUT, WITH)[0]


def test_a_record_that_its_machine_disproves_does_not_count() -> None:
    machine = machine_view()
    key = replace(WITH.machine, provider_id="test:///another", claimed_by=machine.uid)
    assert shown(replace(WITH, machine=key), node_ref="n") == (False, "n")


def test_many_are_counted() -> None:
    coverage = HostCoverage(NOW)
    for number in range(12):
        coverage.add(machine_view(node_ref=f"n{number:02}\n"), ())
    assert coverage.condition.message.startswith("12 of 12 nodes have no host certificate")
    assert coverage.condition.message.endswith(" and 2 more")
    assert coverage.condition.message.isprintable()
    assert not coverage.condition.type.counts_toward_ready(None)
