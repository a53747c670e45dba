"""Which version of the trust in SSH authorities the request of a client certificate reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from authenticator.model.pair import Pair
from authenticator.model.trust_state import pair_digest


@dataclass(frozen=True, slots=True)
class ReportedTrust:
    """It is kept for one certificate, since a crash may leave another one in place."""

    certificate: str = ""
    """Digest of the pair; empty if nothing is known."""
    version: int = 0
    """:attr:`authenticator.model.attempt.PendingRequest.trust_version` of its request."""

    @classmethod
    def of(cls, pair: Pair, version: int) -> ReportedTrust:
        """What the request of that pair reported."""
        return cls(pair_digest(pair), version) if version else cls()

    def version_of(self, pair: Pair) -> int:
        """What the request of that pair reported; 0 if it is not known."""
        return self.version if pair_digest(pair) == self.certificate else 0

    def document(self) -> dict[str, Any]:
        """Its JSON form."""
        return {"certificate": self.certificate, "version": self.version}

    @classmethod
    def parse(cls, document: object) -> ReportedTrust:
        """Parse it. Other content counts as nothing known: the worst that follows is one renewal before its time."""
        match document:
            case {"certificate": str(certificate), "version": int(version)} if version >= 0:
                return cls(certificate, int(version))
            case _:
                return cls()
