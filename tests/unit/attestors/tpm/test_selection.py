from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.reader import MalformedStructure, Reader
from attestors.tpm.selection import PCR, InvalidPCRSelection, PCRBankSelection, PCRSelection, read_selection
from tests.unit.attestors.support import PATIENT

ONE = bytes.fromhex("00000001 000b 03 830000")

selections = st.builds(
    lambda banks, indices: PCRSelection(
        tuple(PCRBankSelection(bank, tuple(sorted(index))) for bank, index in zip(banks, indices, strict=False))
    ),
    st.permutations(list(HashAlgorithm)),
    st.lists(st.sets(st.integers(0, 23), min_size=1), min_size=1, max_size=3),
)


def read(data: bytes) -> PCRSelection:
    reader = Reader(data, "TPMS_ATTEST", maximum_bytes=1024)
    selection = read_selection(reader)
    reader.finish()
    return selection


class TestText:
    @pytest.mark.parametrize(
        "text", ["sha256:0,1,7", "sha384:23", "sha512:0+sha256:10,11", "sha256:0+sha384:0+sha512:0"]
    )
    def test_is_read_and_written(self, text: str) -> None:
        assert str(PCRSelection.parse(text)) == text

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="nothing"),
            pytest.param("sha256", id="no-registers"),
            pytest.param("sha256:", id="empty-bank"),
            pytest.param("sha1:0", id="sha1"),
            pytest.param("SHA256:0", id="capitals"),
            pytest.param("sha256:0,", id="comma-at-the-end"),
            pytest.param("sha256:00", id="leading-zero"),
            pytest.param("sha256:24", id="out-of-range"),
            pytest.param("sha256:99", id="far-out-of-range"),
            pytest.param("sha256:100", id="three-digits"),
            pytest.param("sha256:-1", id="negative"),
            pytest.param("sha256:1,0", id="descending"),
            pytest.param("sha256:1,1", id="repeated"),
            pytest.param("sha256:0+sha256:1", id="bank-twice"),
            pytest.param("sha256:0+", id="plus-at-the-end"),
            pytest.param("sha256:0 ", id="space"),
            pytest.param("sha256:0\n", id="newline"),
            pytest.param("sha256:\u0660", id="other-digits"),
            pytest.param("sha256:all", id="all"),
        ],
    )
    def test_refuses_every_other_form(self, text: str) -> None:
        with pytest.raises(InvalidPCRSelection):
            PCRSelection.parse(text)

    @pytest.mark.parametrize("indices", [(-1,), (-1, 5), (24,), (5, 24)])
    def test_an_index_out_of_range_is_refused(self, indices: tuple[int, ...]) -> None:
        with pytest.raises(InvalidPCRSelection, match="0 to 23"):
            PCRBankSelection(HashAlgorithm.SHA256, indices)


class TestStructure:
    def test_is_what_the_specification_says(self) -> None:
        """Written out by hand: bit n of octet m is register 8 m + n."""
        assert read(ONE) == PCRSelection.parse("sha256:0,1,7")
        assert PCRSelection.parse("sha256:0,1,7").encode() == ONE
        two = bytes.fromhex("00000002 000c 03 000100 000b 03 000080")
        assert read(two) == PCRSelection.parse("sha384:8+sha256:23")

    @settings(PATIENT, max_examples=30)
    @given(selections)
    def test_round_trip(self, selection: PCRSelection) -> None:
        assert read(selection.encode()) == selection
        assert PCRSelection.parse(str(selection)) == selection

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            pytest.param("00000000", "no PCR is selected", id="no-bank"),
            pytest.param("00000001 000b 03 000000", "without any PCR", id="empty-bank"),
            pytest.param("00000002 000b 03 010000 000c 03 000000", "without any PCR", id="one-of-two-empty"),
            pytest.param("00000002 000b 03 010000 000b 03 020000", "twice", id="bank-twice"),
            pytest.param("00000002 000b 03 010000 000b 03 010000", "twice", id="bank-twice-the-same"),
            pytest.param("00000001 000b 02 0100", "sizeofSelect", id="two-octets"),
            pytest.param("00000001 000b 04 01000000", "sizeofSelect", id="four-octets"),
            pytest.param("00000001 000b 00", "sizeofSelect", id="no-octets"),
            pytest.param("00000001 0004 03 010000", "SHA-1", id="sha1"),
            pytest.param("00000001 0012 03 010000", "unknown hash algorithm 0x0012", id="sm3"),
            pytest.param(
                "00000004 000b 03 010000 000c 03 010000 000d 03 010000 000b 03 010000", "more than 3", id="four"
            ),
            pytest.param("ffffffff 000b 03 010000", "more than 3", id="count"),
            pytest.param("00000002 000b 03 010000", "ends inside", id="one-missing"),
            pytest.param("00000001 000b 03 0100", "ends inside", id="cut"),
        ],
    )
    def test_refuses_every_other_form(self, data: str, fault: str) -> None:
        with pytest.raises(MalformedStructure, match=fault):
            read(bytes.fromhex(data))

    def test_three_banks_are_read(self) -> None:
        assert len(read(PCRSelection.parse("sha256:0+sha384:0+sha512:0").encode()).banks) == 3


def test_registers_come_in_the_order_of_the_selection() -> None:
    assert [str(pcr) for pcr in PCRSelection.parse("sha384:2,9+sha256:0").registers()] == [
        "sha384:2",
        "sha384:9",
        "sha256:0",
    ]


def test_registers_of_two_banks_differ() -> None:
    assert PCR(HashAlgorithm.SHA256, 1) != PCR(HashAlgorithm.SHA384, 1)
