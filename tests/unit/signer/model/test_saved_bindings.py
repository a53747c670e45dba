"""The ConfigMap of removed grants: whose it is, and that it reads back as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, Subject, binding_body
from signer.model.cluster import ClusterKey
from signer.model.saved_bindings import (
    MAXIMUM_GENERATIONS,
    MAXIMUM_SAVED_BINDINGS,
    BindingsNotSaved,
    OtherGenerations,
    SavedBindings,
    generation_field,
    parse_owner,
    parse_saved,
    saved_data,
    saved_name,
)

CLUSTER: Final = ClusterKey("team-a", "one")
OWNER: Final = ClusterIdentity(CLUSTER, f"sha256:{'ab' * 32}")
FIELD: Final = f"sha256-{'ab' * 32}"
BINDING: Final = ClusterRoleBinding(
    "kubeadm:x",
    "uid-1",
    "7",
    "role",
    (Subject("Group", "rbac.authorization.k8s.io", "a", ""), Subject("ServiceAccount", "", "b", "c")),
    {"team": "d"},
    {"note": "e"},
)
GENERATIONS: Final = {FIELD: {BINDING.name: BINDING}}


def config_map(**data: str) -> dict[str, Any]:
    written = saved_data(CLUSTER, GENERATIONS) | data
    return {"metadata": {"name": saved_name(CLUSTER), "uid": "u", "resourceVersion": "3"}, "data": written}


def test_it_reads_back_as_it_was_written() -> None:
    assert parse_saved(config_map()) == SavedBindings(CLUSTER, GENERATIONS, "u", "3")
    assert parse_owner(config_map()) == CLUSTER


def test_each_ca_has_its_own_generation() -> None:
    later = replace(OWNER, ca_cert_hash=f"sha256:{'cd' * 32}")
    kept = parse_saved(config_map())
    assert kept.of(OWNER) == {BINDING.name: BINDING}
    assert kept.of(later) == {}
    both = kept.with_generation(later, {BINDING.name: replace(BINDING, uid="uid-2")})
    manifest = {**config_map(), "data": saved_data(CLUSTER, both)}
    assert parse_saved(manifest).of(OWNER) == kept.of(OWNER)
    assert parse_saved(manifest).of(later)[BINDING.name].uid == "uid-2"
    assert FIELD not in saved_data(CLUSTER, kept.with_generation(OWNER, {}))


def test_a_generation_is_a_list_that_kubectl_creates() -> None:
    """An object to be created may have neither a UID nor a resourceVersion."""
    content = json.loads(config_map()["data"][FIELD])
    assert (content["apiVersion"], content["kind"]) == ("v1", "List")
    assert content["items"] == [binding_body(BINDING)]


def test_each_cluster_has_its_own_name() -> None:
    keys = [ClusterKey(*key) for key in (("a", "b-c"), ("a-b", "c"), ("ab", "-c"))]
    names = {saved_name(key) for key in keys}
    assert len(names) == 3
    assert all(len(name) < 64 for name in names)


@pytest.mark.parametrize("field", ["clusterNamespace", "clusterName"])
def test_it_belongs_to_the_cluster_that_its_name_is_the_digest_of(field: str) -> None:
    for value in ("another", ""):
        with pytest.raises(ValueError, match=r"digest|empty"):
            parse_saved(config_map(**{field: value}))


@pytest.mark.parametrize("manifest", [{}, {"data": []}, {"metadata": {}, "data": {"clusterName": 1}}])
def test_what_is_none_of_ours(manifest: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="which cluster"):
        parse_owner(manifest)


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
def test_without_a_version_nothing_could_be_changed_safely(missing: str) -> None:
    manifest = config_map()
    del manifest["metadata"][missing]
    with pytest.raises(ValueError, match="UID or resourceVersion"):
        parse_saved(manifest)


def test_more_generations_than_are_written_are_not_read() -> None:
    text = config_map()["data"][FIELD]
    with pytest.raises(ValueError, match="larger"):
        parse_saved(config_map(**{f"g{number}": text for number in range(MAXIMUM_GENERATIONS)}))


def test_bounds() -> None:
    bindings = {f"b{number}": BINDING for number in range(MAXIMUM_SAVED_BINDINGS)}
    saved_data(CLUSTER, {FIELD: bindings})
    with pytest.raises(BindingsNotSaved, match="more than 64"):
        saved_data(CLUSTER, {FIELD: bindings, "another": {BINDING.name: BINDING}})
    generations = {f"g{number}": {BINDING.name: BINDING} for number in range(MAXIMUM_GENERATIONS)}
    saved_data(CLUSTER, {**generations, "empty": {}})
    with pytest.raises(BindingsNotSaved, match=f"4 CAs.*{saved_name(CLUSTER)}"):
        saved_data(CLUSTER, {**generations, "one more": {BINDING.name: BINDING}})
    plugin = {BINDING.name: replace(BINDING, annotations={"note": "x" * 33_000})}
    saved_data(CLUSTER, {FIELD: plugin})
    with pytest.raises(BindingsNotSaved, match="64 KiB"):
        saved_data(CLUSTER, {FIELD: plugin, "another": plugin})


def test_a_field_name_is_such_as_config_maps_allow() -> None:
    assert generation_field(OWNER) == FIELD


def test_a_person_is_told_what_to_do_with_the_other_generations() -> None:
    one = OtherGenerations("own", saved_name(CLUSTER), (FIELD,))
    assert f"kubectl get configmap {saved_name(CLUSTER)} --namespace own" in str(one)
    four = str(OtherGenerations("own", saved_name(CLUSTER), (FIELD, *(FIELD.replace("a", str(n)) for n in range(3)))))
    assert f"the same for {FIELD.replace('a', '0')} and " in four
    assert four.endswith("delete the ConfigMap")
    assert len(four) < 900
