"""The ConfigMap of removed grants: whose it is, and that it reads back as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, Subject, binding_body
from signer.model.cluster import ClusterKey
from signer.model.saved_bindings import (
    MAXIMUM_LINEAGES,
    MAXIMUM_MARKS,
    MAXIMUM_SAVED_BINDINGS,
    BindingsNotSaved,
    Lineage,
    OtherLineages,
    SavedBindings,
    lineage_field,
    parse_owner,
    parse_saved,
    saved_data,
    saved_name,
)

CLUSTER: Final = ClusterKey("team-a", "one")
OWNER: Final = ClusterIdentity(CLUSTER, "c-1", f"sha256:{'ab' * 32}")
OTHER_CA: Final = f"sha256:{'cd' * 32}"
FIELD: Final = lineage_field(OWNER)
BINDING: Final = ClusterRoleBinding(
    "kubeadm:x",
    "uid-1",
    "7",
    "role",
    (Subject("Group", "rbac.authorization.k8s.io", "a", ""), Subject("ServiceAccount", "", "b", "c")),
    {"team": "d"},
    {"note": "e"},
)
LINEAGE: Final = Lineage((OWNER.uid,), (OWNER.ca_cert_hash,), {BINDING.name: BINDING})
LINEAGES: Final = {FIELD: LINEAGE}


def config_map(**data: str) -> dict[str, Any]:
    written = saved_data(CLUSTER, LINEAGES) | data
    return {"metadata": {"name": saved_name(CLUSTER), "uid": "u", "resourceVersion": "3"}, "data": written}


def test_it_reads_back_as_it_was_written() -> None:
    assert parse_saved(config_map()) == SavedBindings(CLUSTER, LINEAGES, "u", "3")
    assert parse_owner(config_map()) == CLUSTER


# Lineages


def test_another_cluster_of_the_name_has_its_own_lineage() -> None:
    another = replace(OWNER, uid="c-2", ca_cert_hash=OTHER_CA)
    kept = parse_saved(config_map())
    assert kept.of(OWNER) == LINEAGE
    assert kept.of(another) == Lineage()
    both = kept.with_bindings(another, {BINDING.name: replace(BINDING, uid="uid-2")})
    read = parse_saved({**config_map(), "data": saved_data(CLUSTER, both)})
    assert read.of(OWNER) == kept.of(OWNER)
    assert read.of(another) == Lineage(("c-2",), (OTHER_CA,), {BINDING.name: replace(BINDING, uid="uid-2")})
    assert FIELD not in saved_data(CLUSTER, kept.with_bindings(OWNER, {}))


def continued(lineages: Mapping[str, Lineage], owner: ClusterIdentity) -> Mapping[str, Lineage]:
    saved = SavedBindings(CLUSTER, lineages, "u", "3")
    return saved.with_bindings(owner, saved.of(owner).bindings)


def test_a_lineage_goes_on_as_long_as_one_mark_stays() -> None:
    """The CA is rotated, the Cluster is moved, the CA is rotated again; nothing of the first is left then."""
    rotated = replace(OWNER, ca_cert_hash=OTHER_CA)
    moved = replace(rotated, uid="c-2")
    again = replace(moved, ca_cert_hash="sha256:" + "ef" * 32)
    lineages: Mapping[str, Lineage] = LINEAGES
    for owner in (rotated, moved, again):
        assert SavedBindings(CLUSTER, lineages, "u", "3").of(owner).bindings == LINEAGE.bindings
        lineages = continued(lineages, owner)
    assert list(lineages) == [FIELD], "it keeps its field"
    (lineage,) = lineages.values()
    assert lineage.uids == (OWNER.uid, "c-2")
    assert lineage.ca_cert_hashes == (OWNER.ca_cert_hash, OTHER_CA, again.ca_cert_hash)
    assert not SavedBindings(CLUSTER, LINEAGES, "u", "3").of(again).bindings, "without what it learnt on the way"


def test_what_knows_both_marks() -> None:
    rotated = replace(OWNER, ca_cert_hash=OTHER_CA)
    moved = replace(OWNER, uid="c-2")
    assert LINEAGE.knows(OWNER)
    for other in (rotated, moved):
        assert LINEAGE.is_of(other)
        assert not LINEAGE.knows(other)
        assert LINEAGE.continued(other, {}).knows(other)


def test_two_lineages_that_turn_out_to_be_one() -> None:
    """The Cluster was made anew with another CA, and then the first CA was put back."""
    anew = replace(OWNER, uid="c-2", ca_cert_hash=OTHER_CA)
    later = replace(BINDING, uid="uid-2")
    both = SavedBindings(CLUSTER, LINEAGES, "u", "3").with_bindings(
        anew, {BINDING.name: later, "other": replace(BINDING, name="other")}
    )
    put_back = replace(anew, ca_cert_hash=OWNER.ca_cert_hash)
    found = SavedBindings(CLUSTER, both, "u", "3").of(put_back)
    assert found.bindings == {BINDING.name: later, "other": replace(BINDING, name="other")}, "of the Cluster's own UID"
    (one,) = continued(both, put_back).values()
    assert (set(one.uids), set(one.ca_cert_hashes)) == ({"c-1", "c-2"}, {OWNER.ca_cert_hash, OTHER_CA})
    assert one.bindings == found.bindings


def test_marks_are_bounded_and_the_first_stays() -> None:
    """Whoever writes the Secret of the CA may change it every minute."""
    lineages: Mapping[str, Lineage] = LINEAGES
    for number in range(3 * MAXIMUM_MARKS):
        lineages = continued(lineages, replace(OWNER, ca_cert_hash=f"sha256:{number}"))
        parse_saved({**config_map(), "data": saved_data(CLUSTER, lineages)})
    (lineage,) = lineages.values()
    assert lineage.ca_cert_hashes == (
        OWNER.ca_cert_hash,
        *(f"sha256:{number}" for number in range(2 * MAXIMUM_MARKS + 1, 3 * MAXIMUM_MARKS)),
    )
    assert continued(lineages, OWNER) == lineages


def test_marks_of_lineages_that_turn_out_to_be_one_are_bounded() -> None:
    many = tuple(f"sha256:{number}" for number in range(MAXIMUM_MARKS))
    lineages = {"a": Lineage(("c-1",), many, {}), "b": Lineage(("c-2",), (*many[1:], OTHER_CA), {})}
    found = SavedBindings(CLUSTER, lineages, "u", "3").of(ClusterIdentity(CLUSTER, "c-2", many[0]))
    assert (found.ca_cert_hashes[0], found.ca_cert_hashes[-1], len(found.ca_cert_hashes)) == (
        many[0],
        OTHER_CA,
        MAXIMUM_MARKS,
    )


@pytest.mark.parametrize("key", ["clusterUIDs", "caCertHashes"])
@pytest.mark.parametrize("marks", [None, [], "c-1", [""], [5], ["x"] * (MAXIMUM_MARKS + 1)], ids=repr)
def test_bindings_that_do_not_say_whose_they_were(key: str, marks: Any) -> None:
    content = json.loads(config_map()["data"][FIELD])
    content["lineage"][key] = marks
    with pytest.raises(ValueError, match=key):
        parse_saved(config_map(**{FIELD: json.dumps(content)}))


def test_what_was_saved_by_the_hash_of_a_ca_is_not_read() -> None:
    """Builds before the first release did so. Nothing is converted: a person restores it, or deletes the ConfigMap."""
    content = json.loads(config_map()["data"][FIELD])
    del content["lineage"]
    manifest = config_map()
    manifest["data"] = {**saved_data(CLUSTER, {}), f"sha256-{'ab' * 32}": json.dumps(content)}
    with pytest.raises(ValueError, match="does not identify the cluster"):
        parse_saved(manifest)


def test_a_lineage_is_a_list_that_kubectl_creates() -> None:
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
    with pytest.raises(ValueError, match="name its cluster"):
        parse_owner(manifest)


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
def test_without_a_version_nothing_could_be_changed_safely(missing: str) -> None:
    manifest = config_map()
    del manifest["metadata"][missing]
    with pytest.raises(ValueError, match="UID or resourceVersion"):
        parse_saved(manifest)


def test_more_lineages_than_are_written_are_not_read() -> None:
    text = config_map()["data"][FIELD]
    with pytest.raises(ValueError, match="larger"):
        parse_saved(config_map(**{f"g{number}": text for number in range(MAXIMUM_LINEAGES)}))


def test_bounds() -> None:
    bindings = {f"b{number}": BINDING for number in range(MAXIMUM_SAVED_BINDINGS)}
    saved_data(CLUSTER, {FIELD: replace(LINEAGE, bindings=bindings)})
    with pytest.raises(BindingsNotSaved, match="more than 64"):
        saved_data(CLUSTER, {FIELD: replace(LINEAGE, bindings=bindings), "another": LINEAGE})
    lineages = {f"g{number}": LINEAGE for number in range(MAXIMUM_LINEAGES)}
    saved_data(CLUSTER, {**lineages, "empty": Lineage()})
    with pytest.raises(BindingsNotSaved, match=f"4 clusters of one name.*{saved_name(CLUSTER)}"):
        saved_data(CLUSTER, {**lineages, "one more": LINEAGE})
    plugin = replace(LINEAGE, bindings={BINDING.name: replace(BINDING, annotations={"note": "x" * 33_000})})
    saved_data(CLUSTER, {FIELD: plugin})
    with pytest.raises(BindingsNotSaved, match="64 KiB"):
        saved_data(CLUSTER, {FIELD: plugin, "another": plugin})


def test_a_field_name_is_such_as_config_maps_allow() -> None:
    assert re.fullmatch(r"lineage-[0-9a-f]{40}", FIELD)
    others = {lineage_field(replace(OWNER, uid="c-2")), lineage_field(replace(OWNER, ca_cert_hash=OTHER_CA))}
    assert len({FIELD, *others}) == 3


def test_a_person_is_told_what_to_do_with_the_other_lineages() -> None:
    one = OtherLineages("own", saved_name(CLUSTER), (FIELD,))
    assert f"kubectl get configmap {saved_name(CLUSTER)} --namespace own" in str(one)
    four = str(OtherLineages("own", saved_name(CLUSTER), (FIELD, *(f"{FIELD[:-1]}{n}" for n in "xyz"))))
    assert f"the same for {FIELD[:-1]}x and " in four
    assert four.endswith("delete the ConfigMap")
    assert len(four) < 900
