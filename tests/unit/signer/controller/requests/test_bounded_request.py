"""What is kept of one CSR, and its measured size."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.controller.requests import bounded_request
from signer.controller.requests.bounded_request import UnusableRequest, bounded
from signer.kube.answers import MAXIMUM_DEPTH
from signer.model.signing_request import MAXIMUM_REQUEST_TEXT
from tests.unit.signer.requests import APPROVED, csr


@pytest.mark.parametrize("described", ["annotations", "labels"])
def test_large_annotations_are_not_kept(described: str) -> None:
    kept, size = bounded(
        csr(
            **{described: {"a": "x" * bounded_request.MAXIMUM_ANNOTATION_BYTES}},
            status={"conditions": [APPROVED], "more": 1},
        )
    )
    assert kept == {**csr(), "status": {"conditions": [APPROVED]}}
    assert size < 4096


def test_a_large_object_is_cut_to_the_needed_fields() -> None:
    stranger = csr(finalizers=["x" * bounded_request.MAXIMUM_OBJECT_BYTES])
    stranger["more"] = [{}] * 100_000
    assert bounded(stranger)[0] == csr()


def test_largest_request_fits_and_a_larger_one_is_cut() -> None:
    assert (
        bounded(csr(spec={"request": "A" * MAXIMUM_REQUEST_TEXT}))[0]["spec"]["request"] == "A" * MAXIMUM_REQUEST_TEXT
    )
    kept, size = bounded(csr(spec={"request": "A" * 4_000_000}))
    assert len(kept["spec"]["request"]) == MAXIMUM_REQUEST_TEXT + 4
    assert size < bounded_request.MAXIMUM_OBJECT_BYTES


@pytest.mark.parametrize(
    "stranger",
    [csr(annotations=["a"]), csr(annotations="a"), csr(status={"conditions": 1}), csr(status={"conditions": {"a": 1}})],
)
def test_a_request_that_cannot_be_answered_is_not_kept(stranger: dict[str, Any]) -> None:
    """Each attempt to answer it would be an internal error, which raises an alert."""
    with pytest.raises(UnusableRequest, match="no answer can be added"):
        bounded(stranger)


def test_small_values_count() -> None:
    with pytest.raises(UnusableRequest, match="more than"):
        bounded(csr(spec={"extra": [{} for _ in range(5000)]}))


def test_measuring_stops_beyond_the_limit() -> None:
    """A list of a million items is not visited, nor is endless nesting."""
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    for stranger in ([None] * 1_000_000, nested):
        with pytest.raises(UnusableRequest, match="more than"):
            bounded(csr(spec={"extra": stranger}))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(_JSON)
def test_size_is_the_memory_of_all_values(value: Any) -> None:
    def measured(item: Any) -> int:
        inner = [*item, *item.values()] if isinstance(item, dict) else item if isinstance(item, list) else []
        return sys.getsizeof(item) + sum(map(measured, inner))

    content = msgspec.json.decode(msgspec.json.encode({"value": value}))
    assert bounded_request._size(content, 1 << 40) == measured(content)


def nested(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


@pytest.mark.parametrize("where", ["spec", "status"])
def test_deeply_nested_requests_are_not_kept(where: str) -> None:
    """Python decodes a thousand levels, which it may not be able to encode again from deep in the call stack."""

    def with_levels(depth: int) -> dict[str, Any]:
        request: dict[str, Any] = csr()
        request.setdefault(where, {})["conditions" if where == "status" else "extra"] = [nested(depth)]
        return request

    kept, _ = bounded(with_levels(MAXIMUM_DEPTH - 5))
    assert kept[where] == with_levels(MAXIMUM_DEPTH - 5)[where]
    with pytest.raises(UnusableRequest):
        bounded(with_levels(MAXIMUM_DEPTH))


def test_deeply_nested_fields_besides_spec_and_conditions_are_dropped() -> None:
    request = csr()
    request["metadata"]["annotations"] = {"a": nested(MAXIMUM_DEPTH)}
    kept, _ = bounded(request)
    assert "annotations" not in kept["metadata"]
    assert kept["spec"] == request["spec"]
