"""The presigned GetCallerIdentity request: parsed, bound to the request, sent to STS, and its answer parsed.

Order: :class:`PresignedRequest` from the URL; the binding that it was signed for; its age; then STS.
"""

from __future__ import annotations

from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.aws.caller_identity.service import SecurityTokenService

__all__ = ["CallerIdentity", "PresignedRequest", "SecurityTokenService"]
