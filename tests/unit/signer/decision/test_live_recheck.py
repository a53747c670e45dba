"""Every denial by a check of a Machine or of a record is preceded by a read of what it rests on."""

from __future__ import annotations

import pytest

from signer.decision.live_recheck import LiveRecheck, rests_on_cached_objects
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.rules.machine import MachineGone
from tests.unit.signer.builders import CLUSTER, NODE, machine_view

MACHINE, RECORDED = machine_view(), machine_view(name="recorded")


class API:
    """What is read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.known = True

    async def refresh(self, cluster: object, name: str) -> None:
        self.read.append("record")

    async def is_as_known(self, machine: object) -> bool:
        self.read.append("Machine" if machine == MACHINE else "recorded Machine")
        return self.known


def looks(api: API) -> LiveRecheck:
    return LiveRecheck(api, api)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "read"),
    [
        (Reason.ATTESTOR_NOT_AUTHORIZED, ["Machine"]),
        (Reason.CLUSTER_DELETING, ["record"]),
        (Reason.MACHINE_DELETING, ["record", "Machine"]),
        (Reason.NODE_NAME_MISMATCH, ["Machine"]),
        (Reason.IDENTITY_CONFLICT, ["record", "recorded Machine"]),
        (Reason.SUPERSEDED, ["record"]),
        (Reason.FOREIGN_CREDENTIAL, ["record"]),
        (Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, ["Machine"]),
    ],
)
async def test_what_is_read(reason: Reason, read: list[str]) -> None:
    """In the order of the checks that deny with it."""
    api, refused = API(), Refused(reason, "no")
    assert rests_on_cached_objects(refused)
    await looks(api).look(refused, CLUSTER, NODE, MACHINE, RECORDED)
    assert api.read == read


async def test_a_machine_that_differs_denies_nothing() -> None:
    api = API()
    api.known = False
    with pytest.raises(Deferred, match="has changed"):
        await looks(api).look(Refused(Reason.ATTESTOR_NOT_AUTHORIZED, "no"), CLUSTER, NODE, MACHINE, MachineGone())


def test_what_rests_on_no_object_is_not_read_for() -> None:
    assert not rests_on_cached_objects(Refused(Reason.BINDING_MISMATCH, "no"))
