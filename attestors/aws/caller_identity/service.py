"""Asks STS who signed a presigned request."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.aws import wire
from attestors.aws.caller_identity.answer import MAXIMUM_ANSWER_BYTES, SERVICE, read_answer
from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.clouds.https import HTTPS
from attestors.wire.binding import ProvenBinding


@dataclass(frozen=True, slots=True)
class SecurityTokenService:
    """STS, as far as a caller is to be identified."""

    https: HTTPS

    async def caller_of(self, request: PresignedRequest, binding: ProvenBinding) -> CallerIdentity:
        """Send the request that the parts make, with the header for this binding.

        STS verifies the signature over that header: an answer means that the instance's credentials signed for this
        binding and no other.

        Raises:
            Ended: denied, for STS refuses the request or the caller is no instance.
            CloudUnavailable: there is no answer to be had now.
        """
        headers = {"Accept": "application/json", wire.BINDING_HEADER: wire.binding_text(binding.value)}
        answer = await self.https.get(
            SERVICE,
            "GetCallerIdentity",
            request.host,
            request.target,
            headers=headers,
            maximum_bytes=MAXIMUM_ANSWER_BYTES,
        )
        return read_answer(answer.status, answer.content_type, answer.body)
