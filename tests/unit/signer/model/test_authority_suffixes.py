"""Which Secrets hold a cluster's CAs."""

from __future__ import annotations

import pytest

from signer.model.authority_suffixes import (
    BY_CONTROL_PLANE,
    CLIENT_AND_SERVER,
    ONE_AUTHORITY,
    SUFFIX,
    AuthoritySuffixes,
    ByExistence,
    suffixes_for,
)

KINDS = ["KubeadmControlPlane", "RKE2ControlPlane", "KThreesControlPlane", "CK8sControlPlane", "Other", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_by_the_kind_of_control_plane(kind: str) -> None:
    expected = {"KubeadmControlPlane": ONE_AUTHORITY, "Other": ByExistence(), "": ByExistence()}
    assert suffixes_for(BY_CONTROL_PLANE, kind) == expected.get(kind, CLIENT_AND_SERVER)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policys_choice_comes_first(kind: str) -> None:
    chosen = AuthoritySuffixes("kubelet-client", "kubelet-serving")
    assert suffixes_for(chosen, kind) is chosen


def test_names() -> None:
    assert (ONE_AUTHORITY.client, ONE_AUTHORITY.serving) == ("ca", "ca")
    assert (CLIENT_AND_SERVER.client, CLIENT_AND_SERVER.serving) == ("cca", "ca")


@pytest.mark.parametrize("text", ["ca", "a", "0", "ca-abcdefgh-old", "x" * 63])
def test_suffixes(text: str) -> None:
    assert SUFFIX.fullmatch(text)


@pytest.mark.parametrize("text", ["", "-", "-ca", "ca-", "CA", "c.a", "x" * 64, "ca\n", "ä", "c/a"])
def test_what_is_no_suffix(text: str) -> None:
    assert SUFFIX.fullmatch(text) is None
