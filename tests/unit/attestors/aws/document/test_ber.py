"""The reader of tag, length and value, alone."""

from __future__ import annotations

import pytest

from attestors.aws.document import IdentityDocumentMalformed, ber
from attestors.aws.document.ber import Reader
from tests.support.aws_documents import indefinite, tlv

_STRING = tlv(0x04, b"abc")


def refused(reader: Reader, tag: int, match: str) -> None:
    with pytest.raises(IdentityDocumentMalformed, match=f"^it {match}$"):
        reader.element(tag, "a value")


def test_elements_one_after_the_other() -> None:
    reader = Reader(_STRING + tlv(0x02, b"\x01"), "it")
    assert reader.at(0x04)
    assert not reader.at(0x02)
    assert reader.element(0x04, "a value") == ber.Element(b"abc", _STRING)
    assert not reader.at_end()
    assert reader.element(0x02, "a value").content == b"\x01"
    assert reader.at_end()
    assert not reader.at(0x02)
    reader.finish()


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 255, 256, 257, 0x1FFF])
def test_every_length(length: int) -> None:
    data = tlv(0x04, bytes(length))
    assert ber.only(data, 0x04, "it").content == bytes(length)
    # One octet less than it says, also where nothing of the content is there.
    for end in {len(data) - 1, len(data) - length}:
        if end < len(data):
            refused(Reader(data[:end], "it"), 0x04, "(ends inside a value|ends where a value is expected)")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ("", "ends where a value is expected"),
        ("04", "ends where a value is expected"),
        ("0480616200", "has an indefinite length for a value"),
        ("0481", "has an excessive length for a value"),
        ("0482ff", "has an excessive length for a value"),
        ("048300ffff", "has an excessive length for a value"),
        ("0484", "has an excessive length for a value"),
        ("04ff", "has an excessive length for a value"),
        ("048100", "has a length for a value that is not the shortest"),
        ("04817f" + "00" * 127, "has a length for a value that is not the shortest"),
        ("04820080" + "00" * 128, "has a length for a value that is not the shortest"),
        ("048200ff" + "00" * 255, "has a length for a value that is not the shortest"),
        ("0402ff", "ends inside a value"),
        ("3000", "has a value of type 0x30 where a value is expected"),
    ],
)
def test_what_is_no_element(data: str, match: str) -> None:
    refused(Reader(bytes.fromhex(data), "it"), 0x04, match)


@pytest.mark.parametrize("wrap", [tlv, indefinite])
class TestLayer:
    def test_is_left_at_its_end(self, wrap: object) -> None:
        assert callable(wrap)
        reader = Reader(wrap(0x30, _STRING) + _STRING, "it")
        layer = reader.enter(0x30, "a layer")
        assert layer.indefinite == (wrap is indefinite)
        reader.element(0x04, "a value")
        reader.leave(layer, "a layer")
        reader.element(0x04, "a value")
        reader.finish()

    @pytest.mark.parametrize("read", [0, 1])
    def test_is_not_left_early(self, wrap: object, read: int) -> None:
        assert callable(wrap)
        reader = Reader(wrap(0x30, _STRING, _STRING), "it")
        layer = reader.enter(0x30, "a layer")
        for _ in range(read):
            reader.element(0x04, "a value")
        with pytest.raises(IdentityDocumentMalformed, match=r"^it has something unexpected in a layer$"):
            reader.leave(layer, "a layer")

    def test_is_not_entered_by_another_tag(self, wrap: object) -> None:
        assert callable(wrap)
        with pytest.raises(IdentityDocumentMalformed, match=r"^it has a value of type 0x31 where a layer is expected$"):
            Reader(wrap(0x31, _STRING), "it").enter(0x30, "a layer")


def test_end_of_contents_cannot_stand_outside_of_the_layer_around() -> None:
    reader = Reader(tlv(0x30, b"\xa0\x80" + _STRING) + b"\x00\x00", "it")
    reader.enter(0x30, "the outer layer")
    inner = reader.enter(0xA0, "the inner layer")
    reader.element(0x04, "a value")
    with pytest.raises(IdentityDocumentMalformed, match=r"^it has something unexpected in the inner layer$"):
        reader.leave(inner, "the inner layer")


def test_a_truncated_end_of_contents() -> None:
    reader = Reader(b"\x30\x80\x00", "it")
    layer = reader.enter(0x30, "a layer")
    with pytest.raises(IdentityDocumentMalformed, match="has something unexpected in a layer"):
        reader.leave(layer, "a layer")


@pytest.mark.parametrize("inner", ["04", "0405", "048180", "048200", "04820101"])
def test_nothing_is_read_from_outside_of_a_layer(inner: str) -> None:
    reader = Reader(tlv(0x30, bytes.fromhex(inner)) + bytes(600), "it")
    reader.enter(0x30, "a layer")
    with pytest.raises(IdentityDocumentMalformed):
        reader.element(0x04, "a value")


def test_layer_inside_of_a_layer_that_is_shorter() -> None:
    reader = Reader(tlv(0x30, b"\xa0\x10") + bytes(16), "it")
    reader.enter(0x30, "the outer layer")
    with pytest.raises(IdentityDocumentMalformed, match=r"^it ends inside the inner layer$"):
        reader.enter(0xA0, "the inner layer")


def test_only_and_all() -> None:
    assert [element.content for element in ber.read_all(_STRING + _STRING, 0x04, "it")] == [b"abc", b"abc"]
    assert ber.read_all(b"", 0x04, "it") == ()
    with pytest.raises(IdentityDocumentMalformed, match=r"^it has bytes after its end$"):
        ber.only(_STRING + b"\x00", 0x04, "it")
    with pytest.raises(IdentityDocumentMalformed, match=r"^it has a value of type 0x02 where one of its values is exp"):
        ber.read_all(_STRING + tlv(0x02, b"\x01"), 0x04, "it")
