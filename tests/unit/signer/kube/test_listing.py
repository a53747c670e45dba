"""The call after a page of a list, and malformed pages."""

from __future__ import annotations

from typing import Any

import pytest

from signer.kube.errors import UnexpectedAnswer
from signer.kube.listing import EMPTY_PAGES, LIST_SECONDS, Listing


def page(*items: Any, token: Any = "") -> dict[str, Any]:
    return {"metadata": {"continue": token}, "items": list(items)}


def begun(limit: int = 500) -> Listing:
    return Listing({"fieldSelector": "a=b"}, limit, maximum_bytes=100, now=0.0)


def test_each_page_is_requested_with_the_token_of_the_one_before() -> None:
    listing = begun()
    assert listing.query == {"fieldSelector": "a=b", "limit": 500}
    assert listing.read(page("a", "b", token="next"), 10) == 2
    assert listing.has_next(1.0)
    assert listing.query == {"fieldSelector": "a=b", "limit": 500, "continue": "next"}
    assert listing.read(page(), 10) == 0
    assert not listing.has_next(2.0)


def test_smaller_pages_down_to_one_object() -> None:
    listing = begun()
    asked = [500]
    while listing.reduce_page():
        asked.append(int(listing.query["limit"]))
    assert asked == [500, 62, 7, 1]


@pytest.mark.parametrize(
    ("read", "size"),
    [
        (page("a"), 101),
        (page("a", "b", "c"), 10),
        (page("a", token="same"), 10),
        ({"items": []}, 10),
        ({"metadata": {}}, 10),
        (page(token=5), 10),
        (page(token="line\nfeed"), 10),
        (page(token="x" * 8193), 10),
    ],
    ids=["bytes", "items", "same page", "no metadata", "no items", "a number", "characters", "too long"],
)
def test_malformed_pages(read: dict[str, Any], size: int) -> None:
    listing = begun(limit=2)
    listing.query["continue"] = "same"
    with pytest.raises(UnexpectedAnswer):
        listing.read(read, size)


def test_bytes_of_all_pages_count_together() -> None:
    listing = begun()
    listing.read(page("a", token="next"), 100)
    with pytest.raises(UnexpectedAnswer, match="together are too large"):
        listing.read(page("b"), 1)


def test_a_list_without_end() -> None:
    listing = begun()
    for number in range(EMPTY_PAGES):
        listing.read(page(token=str(number)), 1)
        assert listing.has_next(LIST_SECONDS)
    listing.read(page("a", token="some"), 1)
    assert listing.has_next(LIST_SECONDS), "pages with something on them in between"
    with pytest.raises(UnexpectedAnswer, match="has no end"):
        listing.has_next(LIST_SECONDS + 1)
    for number in range(EMPTY_PAGES + 1):
        listing.read(page(token=str(number)), 1)
    with pytest.raises(UnexpectedAnswer, match="has no end"):
        listing.has_next(0.0)
