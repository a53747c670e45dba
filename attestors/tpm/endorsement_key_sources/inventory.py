"""Source ``Inventory``: a ConfigMap or Secret in the Cluster's namespace, which lists machines and their TPMs."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from attestors.contract import AttestationRequest, ClaimedMachine, DocumentKind, NotThere
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    CertificateState,
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint
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
"""Of all listings that are kept parsed, with their texts."""
_SHOWN_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Inventory:
    """Asks the management cluster for one document. Nothing of its content goes into messages."""

    kind: DocumentKind
    document: str

    name = SourceName.INVENTORY

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """What the line of the claimed provider ID says. It needs no Machine: an instance of a pool can be listed."""
        document = await request.management.document(self.kind, self.document)
        if isinstance(document, NotThere):
            return Unclear(document.cause)
        text = document.texts.get(INVENTORY_KEY)
        if text is None:
            return Unclear(f"{self} has no text under {INVENTORY_KEY}")
        try:
            listing = _PARSED.listing(text)
        except InvalidListing as error:
            return Unclear(f"{self}: {error}")
        return self._judge(listing, request, fingerprint(endorsement_key))

    def _judge(self, listing: Listing, request: AttestationRequest, shown: str) -> KeySourceAnswer:
        match listing.line_of(request.provider_id):
            case Contradiction(lines):
                return self._unclear("this provider ID", lines)
            case ListingLine(key):
                if key == shown:
                    return Owned(self.name)
                return OwnedByOthers(f"{self} says that {_whom(request)} has another TPM")
            case NoLine():
                if listing.lists(shown):
                    return OwnedByOthers(f"{self} has it under another provider ID: {_whom(request)} has another TPM")
                in_faulty_lines = listing.line_of(shown)
                if isinstance(in_faulty_lines, Contradiction):
                    return self._unclear("the key that is shown", in_faulty_lines.lines)
                return NotSaid(f"{self} has no line for this provider ID")

    def _unclear(self, about: str, lines: tuple[int, ...]) -> Unclear:
        numbers = ", ".join(map(str, lines[:_SHOWN_LINES])) + (", ..." if len(lines) > _SHOWN_LINES else "")
        return Unclear(f"{self} is unreadable or contradicts itself about {about}: see line {numbers}")

    def __str__(self) -> str:
        return f"{self.kind.value} {self.document}"


def _whom(request: AttestationRequest) -> str:
    machine = request.machine
    return f"Machine {machine.name}" if isinstance(machine, ClaimedMachine) else "the claimed machine"


@dataclass(frozen=True, slots=True)
class _Unread:
    """What is not read at all, and why: to find it out again for each request would take as long as to read it."""

    why: str
    weight = 0


class _Parsed:
    """Listings that were parsed already, the least used thrown away first.

    By their text: a resource version can come back with another content after the API server's data was restored.
    """

    def __init__(self, maximum_bytes: int = _KEPT_BYTES) -> None:
        self._maximum = maximum_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, Listing | _Unread] = OrderedDict()
        self._lock = threading.Lock()

    def listing(self, text: str) -> Listing:
        """Raises:
        InvalidListing: it cannot be read.
        """
        with self._lock:
            listing = self._kept.get(text) or self._parse(text)
            if text in self._kept:
                self._kept.move_to_end(text)
        if isinstance(listing, _Unread):
            raise InvalidListing(listing.why)
        return listing

    def _parse(self, text: str) -> Listing | _Unread:
        listing: Listing | _Unread
        try:
            listing = parse_listing(text)
        except InvalidListing as error:
            listing = _Unread(str(error))
        self._kept[text] = listing
        self._bytes += _weight(text, listing)
        while self._bytes > self._maximum:
            self._bytes -= _weight(*self._kept.popitem(last=False))
        return listing


def _weight(text: str, listing: Listing | _Unread) -> int:
    """In bytes. The text alone says little: short lines take many times as much."""
    return 2 * sys.getsizeof(text) + listing.weight


_PARSED: Final = _Parsed()
