"""An address that cannot be read still belongs to its Machine, by every reading that it may have."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.addresses import UnreadableAddress, canonical, read_address
from signer.model.possible_addresses import MAXIMUM_READINGS, possible_readings

fast = settings(max_examples=300, deadline=None)


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("10.0.0.010", {"10.0.0.10", "10.0.0.8"}),
        ("10.0.0.08", {"10.0.0.8"}),
        ("010.0.0.010/24", {"10.0.0.10", "10.0.0.8", "8.0.0.10", "8.0.0.8"}),
        ("10.1", {"10.0.0.1"}),
        ("10.0.258", {"10.0.1.2"}),
        ("0x7f.1", {"127.0.0.1"}),
        ("0x", {"0.0.0.0", "0x"}),  # noqa: S104 - a reading, not a socket's
        ("167772161", {"10.0.0.1", "167772161"}),
        ("10.0.0.256", set()),
        ("1.2.3.4.5", set()),
        ("1.2.3.4.0", set()),
        ("01." * 80 + "1", set()),
        ("10.0.0.1-2001:db8::1", {"10.0.0.1", "2001:db8::1"}),
        ("", set()),
        (
            "node_1",
            {
                "node",
            },
        ),
        ("node-1 (old)", {"node-1", "old"}),
        ("10.0.0.1\n", {"10.0.0.1"}),
        ("10.0.0.1;10.0.0.2", {"10.0.0.1", "10.0.0.2"}),
        ("10.0.0.1:99999", {"10.0.0.1"}),
        ("https://10.0.0.1:6443/", {"https", "10.0.0.1"}),
        ("2001:0db8:00000::1", {"2001:db8::1"}),
        ("::ffff:010.0.0.1", {"10.0.0.1", "8.0.0.1"}),
        ("10.0.0.0/24", {"10.0.0.0/24", "10.0.0.0"}),
        ("[2001:db8:1::]/64", {"2001:db8:1::/64", "2001:db8:1::"}),
        ("0.0.0.0/0", {"0.0.0.0"}),  # noqa: S104
        ("10.0.0.0/15", {"10.0.0.0"}),
        ("10.0.0.0/16", {"10.0.0.0/16", "10.0.0.0"}),
        ("2001:db8::/47", {"2001:db8::"}),
        ("10.0.0.1-10.0.0.4", {"10.0.0.1", "10.0.0.2/31", "10.0.0.4"}),
        ("10.0.0.1-4", {"10.0.0.1", "10.0.0.2/31", "10.0.0.4"}),
        ("10.0.0.4-10.0.0.1", {"10.0.0.4", "10.0.0.1"}),
        ("10.0.0.1-10.0.200.254", {"10.0.0.0/16"}),
        ("10.0.0.1-10.200.0.9", {"10.0.0.1", "10.200.0.9"}),
        ("2001:db8::1-2001:db8::2", {"2001:db8::1", "2001:db8::2"}),
    ],
)
def test_readings(text: str, readings: set[str]) -> None:
    assert set(possible_readings(text, "InternalIP")) == readings


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1/24", "node-1", "[2001:db8::1]:22"])
def test_what_has_a_reading_has_no_others(text: str) -> None:
    assert possible_readings(text, "InternalIP") == ()


def test_so_many_and_no_more() -> None:
    text = " ".join(f"{number}.010.010.010" for number in range(10, 40))
    assert len(possible_readings(text, "InternalIP")) == MAXIMUM_READINGS


def test_no_more_steps_than_that() -> None:
    """Addresses in many spellings are few readings, and much work."""
    text = " ".join(f"{'0' * number}1::5" for number in range(500)) + " 192.0.2.1"
    assert "192.0.2.1" not in possible_readings(text, "InternalIP")


@pytest.mark.parametrize("part", ["a", ":", "1.", "a%", "0:", "-", "1-", " ", "/", "%", "0", "a]"])
def test_a_long_text_takes_time_that_grows_with_its_length(part: str) -> None:
    """With the square of it, this test takes hours: a tenant may write hundreds of long texts into one Machine."""
    possible_readings(part * 300_000 + "!", "InternalIP")


@pytest.mark.parametrize("zone", ["", "%eth0", "%"])
def test_a_network_with_a_zone(zone: str) -> None:
    assert "2001:db8:1::/64" in possible_readings(f"net 2001:db8:1::{zone}/64", "InternalIP")


OCTETS = st.tuples(*[st.tuples(st.integers(0, 255), st.sampled_from(["{}", "0{}", "00{}", "0{:o}", "0x{:x}"]))] * 4)


@fast
@given(OCTETS, st.sampled_from(["{}", "{}/24", "{}:22", " {}", "[{}]", "{}\n", "x {}", "http://{}/"]))
def test_a_writers_address_is_among_the_readings(octets: tuple[tuple[int, str], ...], around: str) -> None:
    """Whether the writer meant octal, decimal or hexadecimal numbers."""
    meant = str(IPv4Address(bytes(value for value, _ in octets)))
    text = around.format(".".join(form.format(value) for value, form in octets))
    read = read_address(text, "InternalIP")
    if not isinstance(read, UnreadableAddress):
        assert read.text == meant
        return
    readings = possible_readings(text, "InternalIP")
    assert any(_is_in(meant, reading) for reading in readings)


@fast
@given(st.text(max_size=60) | st.from_regex(r"[0-9a-fx.:/\[\]% -]{0,60}", fullmatch=True))
def test_any_text(text: str) -> None:
    readings = possible_readings(text, "InternalIP")
    assert len(readings) <= MAXIMUM_READINGS
    for reading in readings:
        assert str(ip_network(reading)) if "/" in reading else canonical(reading) == reading


def _is_in(address: str, reading: str) -> bool:
    try:
        network = ip_network(reading)
    except ValueError:
        return False
    found: IPv4Address | IPv6Address = ip_address(address)
    return found in network
