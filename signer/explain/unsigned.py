"""Plans certificates without signing them, for explanations."""

from __future__ import annotations

from typing import Final

from signer.authority import IssuanceRefused, IssuanceRequest, IssuingSet, require_issuable
from signer.decision.certificates import Certificate, NotRepeatable, bad_certificate

_NO_DIGEST: Final = "0" * 64


class Unsigned:
    """Implements :class:`~signer.decision.certificates.Signing` without a key."""

    async def sign(self, issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
        """Check that the CA may sign the certificate, as the controller does.

        Raises:
            Deferred: the CA must not sign it.
        """
        try:
            require_issuable(authority, issuance)
        except IssuanceRefused as error:
            raise bad_certificate(error) from error
        return Certificate(b"", _NO_DIGEST)

    async def sign_again(
        self, issuance: IssuanceRequest, digest: str, authority: IssuingSet
    ) -> Certificate | NotRepeatable:
        """Assume the same certificate: the caller has compared the CA in the journal, and its key signs repeatably."""
        await self.sign(issuance, authority)
        return Certificate(b"", digest)
