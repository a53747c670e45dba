"""The temporary credentials of the instance's role, from the metadata service."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.aws.node.instance_metadata import ROLE_CREDENTIALS, InstanceMetadata, MetadataMissing
from attestors.aws.wire import SESSION_TOKEN
from attestors.contract import EvidenceUnavailable

_ROLE: Final = re.compile(r"[A-Za-z0-9_+=,.@-]{1,64}")
"""IAM, "Names and paths": the name becomes part of the requested path."""
_ACCESS_KEY_ID: Final = re.compile(r"[A-Z0-9]{16,128}")
_SECRET: Final = re.compile(r"[\x21-\x7e]{1,128}")
_SUCCESS: Final = "Success"

_NO_PROFILE: Final = (
    "this instance has no role: give it an instance profile; the role needs no permissions for node attestation"
)


@dataclass(frozen=True, slots=True)
class RoleCredentials:
    """Credentials of the instance's role; EC2 names their session after the instance."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)


def role_credentials(metadata: InstanceMetadata) -> RoleCredentials:
    """The credentials of this instance's role.

    Raises:
        EvidenceUnavailable: the instance has no role, or the metadata service has no credentials for it.
    """
    try:
        roles = metadata.get(ROLE_CREDENTIALS).decode("latin-1").split()
    except MetadataMissing as error:
        raise EvidenceUnavailable(_NO_PROFILE) from error
    if not roles:
        raise EvidenceUnavailable(_NO_PROFILE)
    if not _ROLE.fullmatch(roles[0]):
        raise EvidenceUnavailable("the instance metadata service names a role that cannot be one")
    return _parse(metadata.get(ROLE_CREDENTIALS + roles[0]), roles[0])


def _parse(answer: bytes, role: str) -> RoleCredentials:
    unusable = EvidenceUnavailable(f"the instance metadata service gives no usable credentials for role {role}")
    try:
        members: Any = json.loads(answer)
    except (ValueError, RecursionError):
        # Not chained: the cause would quote the answer, which may hold part of a secret.
        raise unusable from None
    if not isinstance(members, dict):
        raise unusable
    code = members.get("Code")
    if code != _SUCCESS:
        raise EvidenceUnavailable(
            f"the instance metadata service has no credentials for role {role} "
            f"({code if isinstance(code, str) and _ROLE.fullmatch(code) else 'it does not say why'}): "
            "EC2 must be allowed to assume the role (its trust policy)"
        )
    texts = []
    for name, form in (("AccessKeyId", _ACCESS_KEY_ID), ("SecretAccessKey", _SECRET), ("Token", SESSION_TOKEN)):
        value = members.get(name)
        if not isinstance(value, str) or not form.fullmatch(value):
            raise unusable
        texts.append(value)
    return RoleCredentials(*texts)
