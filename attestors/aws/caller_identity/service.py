"""Asks STS which identity signed a presigned request."""

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
    """The part of STS that identifies callers."""

    https: HTTPS

    async def caller_of(self, request: PresignedRequest, binding: ProvenBinding) -> CallerIdentity:
        """Send the request built from the parts, with the header for this binding.

        STS verifies the signature over that header. An answer therefore means that the instance's credentials signed
        for this binding and no other.

        Raises:
            Ended: denied, because STS refuses the request or the caller is not an instance.
            CloudUnavailable: no answer is available now.
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
