"""The text of an inventory."""

from __future__ import annotations

import contextlib
import string
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.tpm.endorsement_key_sources.listing import (
    MAXIMUM_CHARACTERS,
    MAXIMUM_LINES,
    MAXIMUM_UNREADABLE_LINES,
    Contradiction,
    InvalidListing,
    ListingLine,
    NoLine,
    parse_listing,
)
from tests.support.cpu_time import within_cpu_seconds
from tests.unit.attestors.support import PATIENT

ONE: Final = "sha256:" + "1a" * 32
TWO: Final = "sha256:" + "2b" * 32
THREE: Final = "sha256:" + "3c" * 32


@pytest.mark.parametrize(
    "line",
    ["p {}", "p {}\n", "\n\n  p\t{} \t\r\n", "# p {}\n #q\np {}", "q\np {}", "p {0}\np  {0}", "\ufeffp {}"],
    ids=["bare", "ended", "spaced", "commented", "beside-a-malformed-one", "repeated", "byte-order-mark"],
)
def test_a_line_gives_a_provider_id_its_key(line: str) -> None:
    listing = parse_listing(line.replace("{0}", ONE).replace("{}", ONE))
    assert listing.line_of("p") == ListingLine(ONE)
    assert listing.lists(ONE)
    assert not listing.lists(TWO)


@pytest.mark.parametrize("text", ["", "\n", f"# p {ONE}", f"  #p {ONE}", f"P {ONE}", f"pp {ONE}", "# p", "q a b c p"])
def test_nothing_is_said(text: str) -> None:
    assert parse_listing(text).line_of("p") == NoLine()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"p {ONE}\n\np {TWO}", (1, 3)),
        (f"p {ONE}\nq {ONE}", (1, 2)),
        (f"q {ONE}\np {ONE}\np {TWO}", (1, 2, 3)),
        (f"#\nq {ONE}\nr {ONE}\np {ONE}", (2, 4)),
        (f"p {ONE}\nq {ONE}\nr {ONE}", (1, 2, 3)),
        (f"p {ONE}\np", (2,)),
        ("q a b p c", (1,)),
        ("p", (1,)),
        (f"p {ONE} # stolen", (1,)),
        (f"p {ONE.upper()}", (1,)),
        (f"p {ONE[:-1]}", (1,)),
        (f"p {ONE}0", (1,)),
        (f"p {ONE} {TWO}", (1,)),
        (f"p {ONE.removeprefix('sha256:')}", (1,)),
        (f"p\x0b{ONE}", (1,)),
        (f"p\u00a0{ONE}", (1,)),
        (f"{ONE} p", (1,)),
        (f"q {ONE}\rp {TWO}", (1,)),
        (f"q\u2028p {ONE}", (1,)),
        (f"p,{ONE}", (1,)),
        (f"q a,b;p;{ONE}", (1,)),
        (f"p, {ONE}", (1,)),
        (f"p: {ONE}", (1,)),
        (f"p:{ONE}", (1,)),
        (f"p={ONE}", (1,)),
        (f"p{ONE}", (1,)),
        (f'"p" {ONE}', (1,)),
        (f"- p: '{ONE}'", (1,)),
        (f'{{\n  "p": "{ONE}",\n}}', (2,)),
        (f"|p|{ONE}|", (1,)),
    ],
    ids=range(30),
)
def test_contradictory_or_unreadable_lines_assign_no_key(text: str, lines: tuple[int, ...]) -> None:
    assert parse_listing(text).line_of("p") == Contradiction(lines)


def test_a_provider_id_may_hold_punctuation() -> None:
    """As those of Azure, in the name of a resource group."""
    listing = parse_listing(f"azure:///rg(1)/vm,2 {ONE}\nrack://[1] {TWO}")
    assert listing.line_of("azure:///rg(1)/vm,2") == ListingLine(ONE)
    assert listing.line_of("rack://[1]") == ListingLine(TWO)


@pytest.mark.parametrize("provider_id", ["maas:///Rack 1/abc123", "maas:///a  b c/d", "p://x (old) y"])
def test_a_provider_id_may_hold_spaces(provider_id: str) -> None:
    """As those of MAAS, in the name of a zone. The words may also be meant otherwise, and stay at fault."""
    listing = parse_listing(f"\t{provider_id} \t{ONE}\nq {TWO}")
    assert listing.line_of(provider_id) == ListingLine(ONE)
    assert listing.line_of("q") == ListingLine(TWO)
    assert listing.lists(ONE)
    for word in provider_id.split():
        assert listing.line_of(word) == Contradiction((1,))
    assert parse_listing(f"{provider_id} {ONE}\n{provider_id} {TWO}").line_of(provider_id) == Contradiction((1, 2))
    assert parse_listing(f"{provider_id} {ONE}\nq {ONE}").line_of("q") == Contradiction((1, 2))


@pytest.mark.parametrize(
    "line", ["- p://x {}", "p {0} # {0}", "p://x #{0} {0}", "p://x {0} {0}", "x p://x {}", "#p://x y {}"]
)
def test_other_lines_of_several_words_list_no_key(line: str) -> None:
    assert not parse_listing(line.replace("{0}", ONE).replace("{}", ONE)).lists(ONE)


def test_many_provider_ids_with_spaces_are_no_broken_inventory() -> None:
    lines = [f"maas:///Rack 1/m{number} sha256:{number:064x}" for number in range(MAXIMUM_UNREADABLE_LINES + 1)]
    assert parse_listing("\n".join(lines)).line_of("maas:///Rack 1/m7") == ListingLine(f"sha256:{7:064x}")


def test_one_that_holds_punctuation_is_at_fault_as_a_whole() -> None:
    """Without its line, what an operator wrote about it would say nothing, and a source behind would be asked."""
    for provider_id in ("azure:///rg(1)/vm,2", "rack://[1]", '"rack://1'):
        for said in (f"{ONE} # stolen", "", "sha256:", f"-> {ONE}"):
            assert parse_listing(f"{provider_id} {said}").line_of(provider_id) == Contradiction((1,))


@pytest.mark.parametrize("end", string.ascii_letters + string.digits + "-._~/")
def test_only_a_colon_at_its_end_is_punctuation(end: str) -> None:
    provider_id = f"rack://1{end}"
    for line in (f"{provider_id}: {ONE}", f"{provider_id}:: {ONE}", f'"{provider_id}": "{ONE}"'):
        assert parse_listing(line).line_of(provider_id) == Contradiction((1,))
    two = parse_listing(f"{provider_id} {ONE} other://2{end} {TWO}")
    assert two.line_of(provider_id) == two.line_of(f"other://2{end}") == Contradiction((1,))


@pytest.mark.parametrize("between", [",", "|", "="])
def test_the_first_eight_pieces_of_a_line_are_at_fault(between: str) -> None:
    listing = parse_listing(between.join("abcdefghij"))
    assert all(listing.line_of(piece) == Contradiction((1,)) for piece in "abcdefgh")
    assert listing.line_of("i") == listing.line_of("j") == NoLine()


def test_the_others_are_not_concerned() -> None:
    text = f"p {ONE}\np {TWO}\nbroken\nhonest sha256:{'0' * 64}"
    assert parse_listing(text).line_of("honest") == ListingLine("sha256:" + "0" * 64)


@pytest.mark.parametrize("text", ["\n" * 20_001, "x" * (1024 * 1024 + 1)], ids=["lines", "size"])
def test_one_that_is_too_large_is_not_read(text: str) -> None:
    with pytest.raises(InvalidListing, match="more than"):
        parse_listing(text)
    parse_listing(text[:-1])


def test_its_content_is_not_shown() -> None:
    for text in (f"machine-1 {ONE}", "machine-1"):
        assert repr(parse_listing(text)) == "Listing()"


def test_one_that_can_hardly_be_read_is_not_read() -> None:
    lines = [f"m{number} a b c d" for number in range(MAXIMUM_UNREADABLE_LINES)]
    assert isinstance(parse_listing("\n".join([*lines, "", "# m", f"p {ONE}"])).line_of("m999"), Contradiction)
    with pytest.raises(InvalidListing, match="more than 1000 lines cannot be read"):
        parse_listing("\n".join([*lines, "one-more"]))


@pytest.mark.parametrize("between", [" ", "\r", "\u2028", "\x85"], ids=["folded", "carriage", "separator", "next-line"])
@pytest.mark.parametrize("beginning", ["", "# Rack 7, delivered in March."], ids=["entries", "comment"])
def test_line_ends_that_are_lost_are_the_whole_inventorys_fault(beginning: str, between: str) -> None:
    """``endorsement-keys: >`` in YAML: the third machine's line would be said not to be there."""
    entries = [beginning] * bool(beginning) + [f"rack://{number} sha256:{number:064x}" for number in range(3)]
    with pytest.raises(InvalidListing, match="line 2 has 3 machines: are its line ends lost"):
        parse_listing(f"p {ONE}\n{between.join(entries)}\n")


@pytest.mark.parametrize("between", [",", '": "', "=", ": "], ids=["table", "json", "assignments", "yaml"])
def test_line_ends_of_other_forms_may_be_lost_too(between: str) -> None:
    entries = '", "'.join(f"rack://{number}{between}sha256:{number:064x}" for number in range(5))
    with pytest.raises(InvalidListing, match="line 1 has 5 machines: are its line ends lost"):
        parse_listing(f'{{"{entries}"}}')


@pytest.mark.parametrize(
    "line",
    [
        f"rack://1 {ONE} was returned, and in its place stands rack://2 {TWO}",
        f"# rack://1 {ONE} rack://2 {TWO}",
        f"# Delivered in March. rack://1 {ONE} # was elsewhere rack://2 {TWO} until May",
        f"rack://1 {ONE} was {ONE}, and of the next: rack://2: {TWO}",
    ],
)
def test_two_machines_in_a_line_are_enough(line: str) -> None:
    """The second one's line would be said not to be there."""
    with pytest.raises(InvalidListing, match="line 2 has 2 machines: are its line ends lost"):
        parse_listing(f"p {THREE}\n{line}")


def test_comments_and_faulty_lines_may_speak_of_machines() -> None:
    for line in (
        f"# rack://1 {TWO}",
        f"# was {ONE} until March, then {TWO}, of rack://1",
        f"rack://1 {ONE} rack://2 {TWO}",
        f"rack://1 broken rack://2 and rack://3 {TWO}",
        f"rack://1 {ONE} {TWO} was replaced",
    ):
        assert parse_listing(f"p {ONE}\n{line}").line_of("p") == ListingLine(ONE)
    assert isinstance(parse_listing(f"rack://1 {ONE} rack://2 {TWO}").line_of("rack://2"), Contradiction)


@pytest.mark.parametrize("comment", ["# Rack 7, delivered in March.", "#7", "  ## of June:", "#\tRack"])
def test_a_comment_that_swallowed_an_entry(comment: str) -> None:
    """``endorsement-keys: >`` in YAML, of a list with a comment before each machine and a blank line behind it."""
    listing = parse_listing(f"{comment} rack://1/a b {ONE}\n{comment} metal3://metal3/node-0/x {TWO} \r\n")
    assert listing.line_of("rack://1/a b") == Contradiction((1,))
    assert listing.line_of("metal3://metal3/node-0/another") == Contradiction((2,))
    assert [listing.line_of(key) for key in (ONE, TWO, THREE)] == [Contradiction((1,)), Contradiction((2,)), NoLine()]


def test_a_comment_about_a_machine_that_is_listed() -> None:
    listing = parse_listing(f"# Replaced in May: rack://1 {ONE}\nrack://1 {TWO}\n# rack://2 {THREE}\n# of rack://3")
    assert listing.line_of("rack://1") == ListingLine(TWO)
    assert listing.line_of(ONE) == Contradiction((1,))
    assert [listing.line_of(one) for one in ("rack://2", "rack://3", THREE)] == [NoLine()] * 3


@pytest.mark.parametrize(
    "pattern",
    ["machine-{0} sha256:{0:064x}", "machine-{0} {1}", "# {0}" + " " * 40 + "x", "machine-{0}: sha256:{0:064x}"],
)
def test_a_large_one_is_read_fast(pattern: str) -> None:
    """On the event loop; the goal is 50 ms on an idle machine, and a quadratic one would take minutes."""
    text = "\n".join(pattern.format(number, ONE) for number in range(MAXIMUM_LINES))[:MAXIMUM_CHARACTERS]
    within_cpu_seconds(0.5, lambda: parse_listing(text))


@pytest.mark.parametrize("part", ["x,", ",", ":", "sha256:", "sha256", f"p://x,{ONE}", f"p {ONE} ", '"', "://"])
def test_one_line_as_large_as_all_is_read_fast(part: str) -> None:
    """As above."""
    text = part * (MAXIMUM_CHARACTERS // len(part))

    def read() -> None:
        with contextlib.suppress(InvalidListing):
            parse_listing(text)

    within_cpu_seconds(0.5, read)


words = st.sampled_from(["p", "q", ONE, TWO, "#", " ", "\t", "\n", "\r", "\x0b", "x", ",", ":", '"'])


@settings(PATIENT)
@given(st.text(max_size=200) | st.lists(words, max_size=40).map("".join))
def test_any_text_is_read(text: str) -> None:
    """And what is said of p is said in a line of its own, once."""
    listing = parse_listing(text)
    entry = listing.line_of("p")
    lines = [line.split() for line in text.removeprefix("\ufeff").split("\n")]
    own = [words for words in lines if "p" in words[:4] and not words[0].startswith("#")]
    if isinstance(entry, ListingLine):
        assert own
        assert all(words == ["p", entry.key] for words in own)
    if own:
        assert entry != NoLine()
    if "p" not in text:
        assert entry == NoLine()
