from __future__ import annotations

import gc
import tracemalloc
from typing import Any, Final

import pytest

from attestors.contract import Document, DocumentKind, NoClaimedMachine
from attestors.tpm.endorsement_key_sources import (
    INVENTORY_KEY,
    Inventory,
    KeyConfirmed,
    KeyContradicted,
    NoInformation,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources import inventory as inventory_module
from attestors.tpm.endorsement_key_sources import listing as listing_module
from attestors.tpm.endorsement_key_sources.listing import Listing, parse_listing
from tests.unit.attestors.support import PROVIDER_ID
from tests.unit.attestors.tpm.endorsement_key_sources.support import (
    CHIP,
    NOT_VERIFIED,
    OTHER,
    Cluster,
    at_once,
    listed,
    request,
)

INVENTORY: Final = Inventory(DocumentKind.CONFIG_MAP, "inventory")
MINE: Final = f"{PROVIDER_ID} {CHIP.fingerprint}\n"
THEIRS: Final = f"other://machine {OTHER.fingerprint}\n"


def ask(cluster: Cluster, inventory: Inventory = INVENTORY, **changes: Any) -> Any:
    return at_once(inventory.ask(request(cluster=cluster, **changes), CHIP.key, NOT_VERIFIED))


@pytest.mark.parametrize("kind", list(DocumentKind), ids=lambda kind: kind.value)
def test_the_machines_own(kind: DocumentKind) -> None:
    cluster = Cluster(documents={(kind, "chips"): Document({INVENTORY_KEY: THEIRS + MINE}, "1")})
    assert ask(cluster, Inventory(kind, "chips")) == KeyConfirmed(SourceName.INVENTORY)
    assert cluster.asked == [f"{kind.value} chips"]


def test_an_instance_of_a_pool_needs_no_machine() -> None:
    found = at_once(INVENTORY.ask(request(NoClaimedMachine(), listed(MINE)), CHIP.key, NOT_VERIFIED))
    assert found == KeyConfirmed(SourceName.INVENTORY)
    found = at_once(INVENTORY.ask(request(NoClaimedMachine(), listed(MINE)), OTHER.key, NOT_VERIFIED))
    assert found == KeyContradicted("ConfigMap inventory says that the claimed machine has another TPM")


def test_another_machines() -> None:
    assert ask(listed(f"{PROVIDER_ID} {OTHER.fingerprint}")) == KeyContradicted(
        "ConfigMap inventory says that Machine worker-1 has another TPM"
    )


def test_a_chip_that_is_listed_for_another_machine() -> None:
    """Whatever the next source would say."""
    found = ask(listed(f"other://machine {CHIP.fingerprint}"))
    assert isinstance(found, KeyContradicted)
    assert found.message.endswith("under another provider ID: Machine worker-1 has another TPM")


def test_nothing_is_said() -> None:
    found = ask(listed(THEIRS))
    assert found == NoInformation("ConfigMap inventory has no line for this provider ID")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (MINE + f"{PROVIDER_ID} {OTHER.fingerprint}", "see line 1, 2"),
        (MINE + f"other://machine {CHIP.fingerprint}", "see line 1, 2"),
        (f"#\n{PROVIDER_ID}", "see line 2"),
        (f"{PROVIDER_ID}\n" * 5, "see line 1, 2, 3, 4, 5"),
        (f"{PROVIDER_ID}\n" * 6, "see line 1, 2, 3, 4, 5, ..."),
    ],
    ids=["two-keys", "two-machines", "no-key", "some", "many"],
)
def test_what_contradicts_itself_is_unclear(text: str, where: str) -> None:
    """Nothing of its content is shown."""
    assert ask(listed(text)) == Unclear(
        f"ConfigMap inventory is unreadable or contradicts itself about this provider ID: {where}"
    )


@pytest.mark.parametrize("line", ["other://machine {} stolen", "other://machine  #{0} {0}", "{} other://machine"])
def test_a_chip_in_a_line_that_cannot_be_read_is_unclear(line: str) -> None:
    """It may be another machine's: a slip must not open the door that is behind the inventory."""
    found = ask(listed("\n" + line.replace("{0}", "{}").replace("{}", CHIP.fingerprint)))
    assert found == Unclear(
        "ConfigMap inventory is unreadable or contradicts itself about the presented key: see line 2"
    )


def test_a_malformed_line_does_not_stop_the_others() -> None:
    assert ask(listed(f"this is no line\n{MINE}")) == KeyConfirmed(SourceName.INVENTORY)


@pytest.mark.parametrize(
    ("cluster", "part"),
    [
        (Cluster(), "ConfigMap inventory is not there"),
        (listed(MINE, key="endorsement_keys"), "has no text under endorsement-keys"),
        (listed("\n" * 20_001), "has more than 20000 lines"),
    ],
    ids=["no-document", "no-key", "too-large"],
)
def test_a_document_that_cannot_be_used_is_unclear(cluster: Cluster, part: str) -> None:
    """Deleting the inventory must not open the door that is behind it."""
    found = ask(cluster)
    assert isinstance(found, Unclear)
    assert part in found.message


def test_an_outage_is_no_answer() -> None:
    cluster = Cluster(documents={(DocumentKind.CONFIG_MAP, "inventory"): ConnectionError()})
    with pytest.raises(ConnectionError):
        ask(cluster)


def test_the_claim_is_compared_as_a_whole() -> None:
    for claimed in (PROVIDER_ID[:-1], PROVIDER_ID + "0", PROVIDER_ID.upper(), f"{PROVIDER_ID} ", ""):
        assert not isinstance(ask(listed(MINE), provider_id=claimed), KeyConfirmed)


_OF_LISTINGS = [
    tracemalloc.Filter(True, pattern)
    for pattern in (inventory_module.__file__, listing_module.__file__, __file__, "<string>")
]
"""What is made there, and by dataclasses, which have no file: threads of former tests allocate, too."""


@pytest.mark.parametrize(
    "line",
    ["{0:x}", "{0:x} a b", "{0} sha256:{0:064x}", "{0} sha256:" + "5" * 64, "a sha256:{0:064x}", "a", "\U0001f600{0}"],
    ids=["unreadable", "words", "readable", "one-key", "one-machine", "one-word", "wide"],
)
def test_a_listing_weighs_at_least_what_it_takes(line: str) -> None:
    """Whatever a tenant writes."""
    numbers = [line.format(number) for number in range(900)]
    inventory_module._ListingCache().listing("\n".join(numbers))  # what the interpreter keeps for reuse is no listing's
    tracemalloc.start()
    try:
        parsed = inventory_module._ListingCache()
        text = "\n".join(numbers)
        parsed.listing(text)
        gc.collect()  # nobody keeps it
        traces = tracemalloc.take_snapshot().filter_traces(_OF_LISTINGS)
    finally:
        tracemalloc.stop()
    taken = sum(one.size for one in traces.statistics("filename"))
    assert taken > 10_000
    assert taken <= parsed._bytes


class TestParsed:
    @pytest.fixture(autouse=True)
    def parsed(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The texts that were parsed."""
        texts: list[str] = []

        def parse(text: str) -> Listing:
            texts.append(text)
            return parse_listing(text)

        monkeypatch.setattr(inventory_module, "parse_listing", parse)
        monkeypatch.setattr(inventory_module, "_LISTINGS", inventory_module._ListingCache(1000))
        return texts

    def test_once_for_each_content(self, parsed: list[str]) -> None:
        for _ in range(3):
            ask(listed(MINE))
        assert parsed == [MINE]

    def test_once_also_what_cannot_be_read(self, parsed: list[str]) -> None:
        """A thousand requests may wait for the same one, and each is judged every few seconds."""
        lost = " ".join(f"rack://{number} sha256:{number:064x}" for number in range(3))
        for _ in range(3):
            said = ask(listed(lost))
            assert isinstance(said, Unclear)
            assert "are its line ends lost" in said.message
        assert parsed == [lost]

    def test_a_resource_version_that_comes_back_with_another_content(self) -> None:
        """After the API server's data was restored."""
        assert ask(listed(MINE, "7")) == KeyConfirmed(SourceName.INVENTORY)
        assert isinstance(ask(listed(THEIRS, "7")), NoInformation)

    def test_is_bounded(self, parsed: list[str]) -> None:
        large, too_large = "#" * 400, "#" * 500
        for text in (MINE, large, MINE, large, too_large, too_large):
            ask(listed(text))
        assert parsed == [MINE, large, MINE, large, too_large, too_large]

    @pytest.mark.parametrize(("spare", "kept"), [(0, True), (-1, False)])
    def test_is_bounded_to_the_byte(self, parsed: list[str], spare: int, kept: bool) -> None:
        weight = sum(inventory_module._weight(text, parse_listing(text)) for text in (MINE, THEIRS))
        listings = inventory_module._ListingCache(weight + spare)
        for text in (MINE, THEIRS, MINE):
            listings.listing(text)
        assert parsed == ([MINE, THEIRS] if kept else [MINE, THEIRS, MINE])

    def test_what_takes_more_than_its_text_counts_as_more(self, parsed: list[str]) -> None:
        """One Secret of short lines, changed again and again, must not fill the controller's memory."""
        first, second = "a\nb", "c\nd"
        for text in (first, second, first):
            ask(listed(text))
        assert parsed == [first, second, first]

    def test_the_least_used_goes_first(self, parsed: list[str]) -> None:
        first, second, third = ("#" + character * 160 for character in "123")
        for text in (first, second, first, third, first, second):
            ask(listed(text))
        assert parsed == [first, second, third, second]
