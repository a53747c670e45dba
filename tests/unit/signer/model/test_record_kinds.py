from __future__ import annotations

import pytest

from attestors.wire.names import Purpose
from signer.model import record
from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    KUBELET_CLIENT,
    KUBELET_KINDS,
    KUBELET_SERVING,
    InvalidKind,
    check_kind,
    declare_kind,
    is_known,
)


def test_what_records_hold_for_ever() -> None:
    assert (KUBELET_CLIENT, KUBELET_SERVING) == ("kubelet-client", "kubelet-serving")
    assert BUILTIN_KUBELET_SERVING == "builtin-kubelet-serving"
    assert KUBELET_KINDS == {Purpose.CLIENT: KUBELET_CLIENT, Purpose.SERVING: KUBELET_SERVING}


def test_a_kind_is_known_once_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_DECLARED", {KUBELET_CLIENT})
    assert is_known(KUBELET_CLIENT)
    assert not is_known("ssh-host")
    assert declare_kind("ssh-host") == "ssh-host"
    assert is_known("ssh-host")


def test_two_parts_of_the_program_cannot_mean_different_things_by_one_kind() -> None:
    with pytest.raises(InvalidKind, match="declared twice"):
        declare_kind(KUBELET_CLIENT)


@pytest.mark.parametrize("name", ["a", "ssh-host", "0", "x" * 63])
def test_names(name: str) -> None:
    assert check_kind(name) == name


@pytest.mark.parametrize("name", ["", "-", "a-", "-a", "A", "a.b", "a\n", "x" * 64, "\u0661"])
def test_other_texts(name: str) -> None:
    for check in (check_kind, declare_kind):
        with pytest.raises(InvalidKind):
            check(name)
