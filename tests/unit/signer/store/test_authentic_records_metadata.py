"""The metadata that other clients set on an object, without the fields that the API server sets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from signer.store.authentic_records import MAXIMUM_BYTES, NotKept, PreservedMetadata, preserved_metadata

SERVERS = {
    "name": "n",
    "namespace": "team-a",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [{"manager": "somebody"}],
    "selfLink": "/x",
}


def kept(metadata: dict[str, Any]) -> PreservedMetadata:
    found = preserved_metadata(metadata)
    assert isinstance(found, PreservedMetadata)
    return found


@given(st.dictionaries(st.sampled_from(["labels", "annotations", "finalizers", "new"]), st.text(max_size=40)))
def test_all_but_the_servers_fields_are_kept(foreign: dict[str, str]) -> None:
    assert kept({**SERVERS, **foreign}).fields() == foreign


def test_records_of_one_cluster_share_it() -> None:
    labels = {"cluster.x-k8s.io/cluster-name": "production"}
    assert kept({**SERVERS, "labels": labels}) is kept({**SERVERS, "name": "other", "labels": dict(labels)})


def test_large_metadata_is_not_kept() -> None:
    fits = "x" * (MAXIMUM_BYTES - len('{"annotations":""}'))
    assert isinstance(preserved_metadata({"annotations": fits}), PreservedMetadata)
    assert isinstance(preserved_metadata({"annotations": fits + "x"}), NotKept)
