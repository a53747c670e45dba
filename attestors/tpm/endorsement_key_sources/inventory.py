"""Source ``Inventory``: a ConfigMap or Secret in the Cluster's namespace that lists machines and their TPMs."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from attestors.contract import (
    AttestationRequest,
    ClaimedMachine,
    DocumentKind,
    MachineMatch,
    NotThere,
)
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint
from attestors.tpm.endorsement_key_sources.host import is_on_host
from attestors.tpm.endorsement_key_sources.listing import (
    Contradiction,
    InvalidListing,
    Listing,
    ListingLine,
    NoLine,
    parse_listing,
)

INVENTORY_KEY: Final = "endorsement-keys"
"""The key in the document's data."""

_KEPT_BYTES: Final = 48 * 1024 * 1024
"""Limit for all cached listings, with their texts."""
_SHOWN_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Inventory:
    """Reads one document of the management cluster. Messages contain nothing of its content."""

    kind: DocumentKind
    document: str

    name = SourceName.INVENTORY

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Compare with the line of the claimed provider ID, or of its host. It needs no Machine: a pool's instances can
        be listed.
        """
        unnamed = await self._unnamed_host(request)
        if isinstance(unnamed, Unclear):
            return unnamed
        document = await request.management.document(self.kind, self.document)
        if isinstance(document, NotThere):
            return Unclear(document.cause)
        text = document.texts.get(INVENTORY_KEY)
        if text is None:
            return Unclear(f"{self} has no text under {INVENTORY_KEY}")
        try:
            listing = _LISTINGS.listing(text)
        except InvalidListing as error:
            return Unclear(f"{self}: {error}")
        return self._compare(listing, request, fingerprint(endorsement_key))

    async def _unnamed_host(self, request: AttestationRequest) -> Unclear | None:
        """A Machine that shows no provider ID is found by its host, which only the infrastructure provider's objects
        say. A line for the claimed provider ID alone would be one for any host of the inventory.
        """
        machine = request.machine
        if not isinstance(machine, ClaimedMachine) or machine.match is MachineMatch.PROVIDER_ID:
            return None
        host = await request.management.host()
        if isinstance(host, NotThere):
            return Unclear(f"{self} counts by host for a Machine without provider ID: {host.cause}")
        if not is_on_host(request.provider_id, host):
            return Unclear(f"Machine {machine.name} is on host {host.reference}, and the request claims another one")
        return None

    def _compare(self, listing: Listing, request: AttestationRequest, shown: str) -> KeySourceAnswer:
        match listing.line_of(request.provider_id):
            case Contradiction(lines):
                return self._unclear("this provider ID", lines)
            case ListingLine(key):
                if key == shown:
                    return KeyConfirmed(self.name)
                return KeyContradicted(f"{self} says that {_machine(request)} has another TPM")
            case NoLine():
                if listing.lists(shown):
                    return KeyContradicted(
                        f"{self} has it under another provider ID: {_machine(request)} has another TPM"
                    )
                in_faulty_lines = listing.line_of(shown)
                if isinstance(in_faulty_lines, Contradiction):
                    return self._unclear("the presented key", in_faulty_lines.lines)
                return NoInformation(f"{self} has no line for this provider ID")

    def _unclear(self, about: str, lines: tuple[int, ...]) -> Unclear:
        numbers = ", ".join(map(str, lines[:_SHOWN_LINES])) + (", ..." if len(lines) > _SHOWN_LINES else "")
        return Unclear(f"{self} is unreadable or contradicts itself about {about}: see line {numbers}")

    def __str__(self) -> str:
        return f"{self.kind.value} {self.document}"


def _machine(request: AttestationRequest) -> str:
    machine = request.machine
    return f"Machine {machine.name}" if isinstance(machine, ClaimedMachine) else "the claimed machine"


@dataclass(frozen=True, slots=True)
class _Invalid:
    """A text that cannot be parsed, with the cause. Cached, since a failed parse takes as long as a successful one."""

    why: str
    weight = 0


class _ListingCache:
    """Parsed listings; evicts the least recently used.

    The key is the text and not the resource version, which can recur with other content after the API server's data was
    restored.
    """

    def __init__(self, maximum_bytes: int = _KEPT_BYTES) -> None:
        self._maximum = maximum_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Listing | _Invalid] = OrderedDict()
        self._lock = threading.Lock()

    def listing(self, text: str) -> Listing:
        """The parsed listing.

        Raises:
            InvalidListing: the text cannot be parsed.
        """
        with self._lock:
            listing = self._kept.get(text) or self._parse(text)
            if text in self._kept:
                self._kept.move_to_end(text)
        if isinstance(listing, _Invalid):
            raise InvalidListing(listing.why)
        return listing

    def _parse(self, text: str) -> Listing | _Invalid:
        listing: Listing | _Invalid
        try:
            listing = parse_listing(text)
        except InvalidListing as error:
            listing = _Invalid(str(error))
        self._kept[text] = listing
        self._bytes += _weight(text, listing)
        while self._bytes > self._maximum:
            self._bytes -= _weight(*self._kept.popitem(last=False))
        return listing


def _weight(text: str, listing: Listing | _Invalid) -> int:
    """In bytes. The text alone is no measure: parsed short lines take many times as much."""
    return 2 * sys.getsizeof(text) + listing.weight


_LISTINGS: Final = _ListingCache()
