"""The ConfigMap of removed grants: whose it is, and that it reads back as it was written."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.model.cluster import ClusterKey
from signer.model.kept_grants import (
    MAXIMUM_KEPT_BINDINGS,
    GrantsNotKept,
    KeptGrants,
    kept_data,
    kept_name,
    parse_kept,
    parse_owner,
)
from signer.model.side_door import ClusterIdentity, ClusterRoleBinding, Subject

OWNER: Final = ClusterIdentity(ClusterKey("team-a", "one"), "ab" * 32)
BINDING: Final = ClusterRoleBinding(
    "kubeadm:x",
    "uid-1",
    "7",
    "role",
    (Subject("Group", "rbac.authorization.k8s.io", "a", ""), Subject("ServiceAccount", "", "b", "c")),
    {"team": "d"},
    {"note": "e"},
)


def config_map(**data: str) -> dict[str, Any]:
    written = kept_data(OWNER, {BINDING.name: BINDING}) | data
    return {"metadata": {"name": kept_name(OWNER), "uid": "u", "resourceVersion": "3"}, "data": written}


def test_it_reads_back_as_it_was_written() -> None:
    assert parse_kept(config_map()) == KeptGrants(OWNER, {BINDING.name: BINDING}, "u", "3")
    assert parse_owner(config_map()) == OWNER


def test_each_cluster_has_its_own_name() -> None:
    keys = [("a", "b-c"), ("a-b", "c"), ("ab", "-c")]
    owners = [ClusterIdentity(ClusterKey(*key), digest) for key in keys for digest in ("1", "2")]
    names = {kept_name(owner) for owner in owners}
    assert len(names) == 6
    assert all(len(name) < 64 for name in names)


@pytest.mark.parametrize("field", ["clusterNamespace", "clusterName", "caCertHash"])
def test_it_belongs_to_the_cluster_that_its_name_is_the_digest_of(field: str) -> None:
    for value in ("another", ""):
        with pytest.raises(ValueError, match=r"digest|empty"):
            parse_kept(config_map(**{field: value}))


@pytest.mark.parametrize("manifest", [{}, {"data": []}, {"metadata": {}, "data": {"clusterName": 1}}])
def test_what_is_none_of_ours(manifest: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="which cluster"):
        parse_owner(manifest)


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
def test_without_a_version_nothing_could_be_changed_safely(missing: str) -> None:
    manifest = config_map()
    del manifest["metadata"][missing]
    with pytest.raises(ValueError, match="UID or resourceVersion"):
        parse_kept(manifest)


def test_bounds() -> None:
    bindings = {f"b{number}": BINDING for number in range(MAXIMUM_KEPT_BINDINGS)}
    kept_data(OWNER, bindings)
    with pytest.raises(GrantsNotKept):
        kept_data(OWNER, {**bindings, "one more": BINDING})
