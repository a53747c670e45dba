"""Which certificates of a node may be in use, by which CA, and whether that is all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from signer.model.certificates_in_use import EVER, EVERY_KIND, CertificatesInUse, NotAll, certificates_in_use
from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    HELD_AFTER_END,
    JOURNAL_ENTRIES,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    AttestedNode,
    Unjournaled,
)
from tests.unit.signer.builders import (
    CA_CERT_HASH,
    NOW,
    SERVING_SIGNER,
    attested_identity,
    builtin_approval,
    journal_entry,
    machine_view,
    record,
)

SECOND: Final = timedelta(seconds=1)
LATER: Final = NOW + timedelta(days=1)
OTHER_CA: Final = "sha256:" + "01" * 32
FORMER: Final = journal_entry(1)
CLIENT: Final = journal_entry(2, decided=LATER, ca_cert_hash=OTHER_CA)
SERVING: Final = journal_entry(3, decided=LATER, signer_name=SERVING_SIGNER)
APPROVAL: Final = builtin_approval()


def node(**changes: object) -> AttestedNode:
    """A node whose name another identity had before."""
    made = record(first_attestation=LATER, journal=(FORMER, CLIENT, SERVING), builtin_approvals=(APPROVAL,))
    return replace(made, **changes)  # type: ignore[arg-type]


def test_whose_they_are_and_by_which_ca() -> None:
    found = certificates_in_use((node(),), LATER)
    assert (found.own, found.former, found.approved) == ((CLIENT, SERVING), (FORMER,), (APPROVAL,))
    assert found.ca_cert_hashes == {CA_CERT_HASH, OTHER_CA}
    assert found.not_all == {NotAll.SIGNED_ELSEWHERE}
    assert not found.is_all


def test_of_one_kind() -> None:
    clients = certificates_in_use((node(),), LATER, KUBELET_CLIENT)
    assert clients == CertificatesInUse((CLIENT,), (FORMER,), (), frozenset())
    assert clients.is_all
    serving = certificates_in_use((node(),), LATER, KUBELET_SERVING)
    assert serving == CertificatesInUse((SERVING,), (), (), frozenset())


@pytest.mark.parametrize("approvals", [(), (APPROVAL,)], ids=["none", "one"])
def test_built_in_certificates_are_never_all_known(approvals: tuple[object, ...]) -> None:
    """Others may approve such requests, and kube-controller-manager chooses how long a certificate lives."""
    found = certificates_in_use((node(builtin_approvals=approvals),), LATER, BUILTIN_KUBELET_SERVING)
    assert found == CertificatesInUse((), (), approvals, frozenset({NotAll.SIGNED_ELSEWHERE}))  # type: ignore[arg-type]


def test_what_has_run_out_is_not_in_use() -> None:
    made = node(builtin_approvals=())
    end = CLIENT.not_after
    assert certificates_in_use((made,), end - SECOND, KUBELET_CLIENT).own == (CLIENT,)
    assert certificates_in_use((made,), end, KUBELET_CLIENT) == CertificatesInUse((), (), (), frozenset())
    assert certificates_in_use((made,), EVER, KUBELET_CLIENT).own == (CLIENT,)


def test_the_last_of_them() -> None:
    """Of several that run out at once the newest."""
    again = replace(CLIENT, serial_number=9)
    sooner = replace(CLIENT, serial_number=10, not_after=CLIENT.not_after - SECOND)
    longer = replace(FORMER, not_after=FORMER.not_after + SECOND)
    found = certificates_in_use((node(journal=(longer, CLIENT, again, sooner)),), LATER, KUBELET_CLIENT)
    assert found.last == again
    assert certificates_in_use((node(journal=(FORMER,)),), LATER, KUBELET_CLIENT).last == Unjournaled()


def test_what_had_to_leave_the_journal() -> None:
    made = record()
    for number in range(2, JOURNAL_ENTRIES + 2):
        made = made.with_entry(journal_entry(number), machine=machine_view(), identity=attested_identity())
    free = journal_entry().not_after + HELD_AFTER_END
    for kind in (KUBELET_CLIENT, KUBELET_SERVING):
        assert certificates_in_use((made,), free - SECOND, kind).not_all == {NotAll.LEFT_THE_JOURNAL}
        assert certificates_in_use((made,), free, kind).is_all
    assert certificates_in_use((record(),), EVER, KUBELET_CLIENT).is_all


@pytest.mark.parametrize("kind", [EVERY_KIND, KUBELET_CLIENT, KUBELET_SERVING])
def test_a_kind_that_this_version_does_not_know_may_be_anything(kind: str) -> None:
    unknown = journal_entry(4, kind="of-a-later-version", decided=LATER)
    made = node(journal=(CLIENT, unknown), builtin_approvals=())
    found = certificates_in_use((made,), LATER, kind)
    assert NotAll.UNKNOWN_KIND in found.not_all
    assert (unknown in found.own) == (kind == EVERY_KIND)
    assert NotAll.UNKNOWN_KIND not in certificates_in_use((made,), unknown.not_after, kind).not_all


def test_an_approval_of_a_kind_that_this_version_does_not_know() -> None:
    """It has no end that is known: it may be in use for ever."""
    approval = builtin_approval(kind="of-a-later-version")
    found = certificates_in_use((node(builtin_approvals=(approval,)),), LATER, KUBELET_CLIENT)
    assert found == CertificatesInUse((CLIENT,), (FORMER,), (), frozenset({NotAll.UNKNOWN_KIND}))


def test_of_nothing_recorded_nothing_is_known() -> None:
    assert certificates_in_use((), NOW, KUBELET_CLIENT).not_all == {NotAll.NOT_RECORDED}


def test_of_several_records_of_one_machine() -> None:
    """It was another node before. Each record says which of its certificates are its own identity's."""
    before = record(node_name="before", journal=(journal_entry(7),), dropped_not_after=NOW + timedelta(days=1))
    found = certificates_in_use((before, node()), NOW, KUBELET_CLIENT)
    assert (found.own, found.former) == ((journal_entry(7), CLIENT), (FORMER,))
    assert found.not_all == {NotAll.LEFT_THE_JOURNAL}
