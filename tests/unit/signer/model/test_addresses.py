"""The forms in which infrastructure providers write a Machine's addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.addresses import (
    BRACKETS,
    CHARACTERS,
    EMPTY,
    LEADING_ZEROS,
    NEITHER,
    NETWORK,
    NUMBERS,
    PORT,
    PREFIX,
    RANGE,
    TOO_LONG,
    Address,
    HostName,
    UnreadableAddress,
    canonical,
    read_address,
    split_addresses,
)

fast = settings(max_examples=300, deadline=None)
LONG_NAME = ".".join(["a" * 63] * 4)[:253]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("198.51.100.20", "198.51.100.20"),
        ("198.51.100.20/26", "198.51.100.20"),
        ("198.51.100.20/32", "198.51.100.20"),
        ("10.0.0.0/32", "10.0.0.0"),
        ("10.0.0.0/31", "10.0.0.0"),
        ("10.0.0.5/255.255.255.0", "10.0.0.5"),
        ("2001:db8:1::2/64", "2001:db8:1::2"),
        ("2001:db8::/127", "2001:db8::"),
        (" 198.51.100.20", "198.51.100.20"),
        ("198.51.100.20  ", "198.51.100.20"),
        ("[2001:db8::25]", "2001:db8::25"),
        ("[2001:db8::25]:22", "2001:db8::25"),
        ("[2001:db8::25]/64", "2001:db8::25"),
        ("[10.0.0.1]", "10.0.0.1"),
        ("10.0.0.1:22", "10.0.0.1"),
        ("10.0.0.1:65535", "10.0.0.1"),
        ("10.0.0.1.", "10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("fe80::1%eth0/64", "fe80::1"),
        ("[fe80::1%eth0]:22", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::FFFF:10.0.0.1]", "10.0.0.1"),
    ],
)
def test_ip_addresses(text: str, address: str) -> None:
    for address_type in ("InternalIP", "Hostname"):
        assert read_address(text, address_type) == Address(address)
    assert canonical(text) == address


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("node-1", "node-1"),
        ("Node-1.Corp.Example.", "node-1.corp.example"),
        (" node-1", "node-1"),
        ("node-1:22", "node-1"),
        ("dead.beef", "dead.beef"),
        ("face", "face"),
        ("10-0-0-1", "10-0-0-1"),
        ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.ec2.internal"),
        ("node.1", "node.1"),
        (LONG_NAME, LONG_NAME),
    ],
)
def test_host_names(text: str, name: str) -> None:
    for address_type in ("InternalIP", "Hostname"):
        assert read_address(text, address_type) == HostName(name)
    assert canonical(text) == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", EMPTY),
        ("   ", EMPTY),
        ("10.0.0.010", LEADING_ZEROS),
        ("010.0.0.1", LEADING_ZEROS),
        ("10.0.0.08", LEADING_ZEROS),
        ("010.0.0.1/24", LEADING_ZEROS),
        ("010.0.0.1:22", LEADING_ZEROS),
        ("10.0.0.256", NUMBERS),
        ("10.1", NUMBERS),
        ("1.2.3.4.5", NUMBERS),
        ("0x7f.1", NUMBERS),
        ("10.0.0.1-10.0.0.9", RANGE),
        ("10.0.0.1-9", RANGE),
        ("10.0.0.0/24", NETWORK),
        ("2001:db8:1::/64", NETWORK),
        ("0.0.0.0/0", NETWORK),
        ("10.0.0.1/33", PREFIX),
        ("10.0.0.1/", PREFIX),
        ("10.0.0.1/eth0", PREFIX),
        ("node-1/24", NEITHER),
        ("10.0.0.1:65536", PORT),
        ("10.0.0.1:ssh", PORT),
        ("10.0.0.1:", NEITHER),
        ("[2001:db8::1]:", PORT),
        ("[2001:db8::1]x", PORT),
        ("[2001:db8::1", BRACKETS),
        ("2001:db8::1]", BRACKETS),
        ("[node-1]", BRACKETS),
        ("10.0.0.1\n", CHARACTERS),
        ("10.0.0.1 10.0.0.2", CHARACTERS),
        ("10.0.0.1\x00", CHARACTERS),
        ("node-\u212a", CHARACTERS),
        ("\u0661\u0660.0.0.1", CHARACTERS),
        ("node_1", NEITHER),
        ("*.example", NEITHER),
        ("-node", NEITHER),
        ("a..b", NEITHER),
        ("https://10.0.0.1:6443", NEITHER),
        ("aa:bb:cc:dd:ee:ff", NEITHER),
        ("2001:db8::00001", NEITHER),
        ("10.0.0.1," + "a" * 600, TOO_LONG),
        ("a" * 254, NEITHER),
    ],
)
def test_without_one_reading(text: str, why: str) -> None:
    for address_type in ("InternalIP", "Hostname"):
        assert read_address(text, address_type) == UnreadableAddress(why)


def test_a_number_is_the_name_of_a_host_but_no_ip_address() -> None:
    assert read_address("1001", "Hostname") == HostName("1001")
    for address_type in ("InternalIP", "ExternalIP"):
        assert read_address("1001", address_type) == UnreadableAddress(NUMBERS)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("10.0.0.1", ("10.0.0.1",)),
        ("10.0.0.1,10.0.0.2", ("10.0.0.1", "10.0.0.2")),
        ("10.0.0.1, fd00::1 ,", ("10.0.0.1", "fd00::1")),
        (",", ("",)),
        ("", ("",)),
        ("a" * 600, ("a" * 513,)),
        (f"10.0.0.1,{'a' * 600}", (f"10.0.0.1,{'a' * 504}",)),
    ],
)
def test_lists(text: str, items: tuple[str, ...]) -> None:
    assert split_addresses(text) == items


def test_a_canonical_text_takes_no_memory_twice() -> None:
    for text in ("192.0.2.1", "2001:db8::1", "node-1.corp.example"):
        read = read_address(text, "InternalIP")
        assert not isinstance(read, UnreadableAddress)
        assert read.text is text


ADDRESSES = st.ip_addresses()


@fast
@given(ADDRESSES, st.integers(1, 128), st.integers(0, 65535), st.sampled_from(["", " ", "  "]))
def test_every_form_of_an_address_reads_as_it(
    address: IPv4Address | IPv6Address, bits: int, port: int, spaces: str
) -> None:
    one = canonical(str(address))
    texts = [str(address), str(address).upper(), f"[{address}]", f"[{address}]:{port}", f"{address}%eth0"]
    if isinstance(address, IPv4Address):
        texts += [f"{address}:{port}", f"{address}/32"]
    else:
        texts += [address.exploded, f"{address}/128"]
    for text in texts:
        assert read_address(f"{spaces}{text}{spaces}", "InternalIP") == Address(one), text
    prefixed = read_address(f"{address}/{min(bits, address.max_prefixlen)}", "InternalIP")
    assert prefixed in (Address(one), UnreadableAddress(NETWORK))


@fast
@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fx.:/\[\]%, -]{0,30}", fullmatch=True))
def test_any_text_is_closed_and_canonical(text: str) -> None:
    """Whatever reads has a canonical text that reads as itself."""
    for item in split_addresses(text):
        for address_type in ("InternalIP", "Hostname", "other"):
            read = read_address(item, address_type)
            if isinstance(read, UnreadableAddress):
                assert read.why
            else:
                assert read_address(read.text, address_type) == read
                assert canonical(read.text) == read.text
