"""Certificates that are planned and not signed: nothing that explains has a use for one."""

from __future__ import annotations

from typing import Final

from signer.authority import IssuanceRefused, IssuanceRequest, IssuingSet, require_issuable
from signer.decision.certificates import Certificate, NotRepeatable, bad_certificate

_NO_DIGEST: Final = "0" * 64


class Unsigned:
    """Implements :class:`~signer.decision.certificates.Signing` without a key."""

    async def sign(self, issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
        """What the CA must not sign is told all the same.

        Raises:
            Deferred: the certificate would be a bad one.
        """
        try:
            require_issuable(authority, issuance)
        except IssuanceRefused as error:
            raise bad_certificate(error) from error
        return Certificate(b"", _NO_DIGEST)

    async def sign_again(
        self, issuance: IssuanceRequest, digest: str, authority: IssuingSet
    ) -> Certificate | NotRepeatable:
        """The journal says which CA made it, and that was compared: the same key would make the same again."""
        await self.sign(issuance, authority)
        return Certificate(b"", digest)
