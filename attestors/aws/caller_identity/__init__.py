"""The presigned GetCallerIdentity request: read, bound to this request, sent to STS, and the answer believed.

Order: :class:`PresignedRequest` from the URL; the binding it was signed for; its age; then STS.
"""

from __future__ import annotations

from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.aws.caller_identity.service import SecurityTokenService

__all__ = ["CallerIdentity", "PresignedRequest", "SecurityTokenService"]
