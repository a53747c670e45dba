"""The person who made an object. The model parses the claim; admission proves it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from signer.model.access.reader import Reader

MAXIMUM_USERNAME: Final = 512
MAXIMUM_GROUPS: Final = 64
MAXIMUM_GROUP: Final = 256
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_USER_UID: Final = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True)
class Creator:
    """User information as the API server had it in the request (``authentication.k8s.io`` UserInfo)."""

    username: str
    uid: str
    """Empty where the authenticator gives none."""
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class CreatorNotStated:
    """The object names no creator, so it counts for nothing."""


StatedCreator: TypeAlias = Creator | CreatorNotStated


def read_creator(spec: Reader) -> StatedCreator:
    """``spec.createdBy``."""
    if not spec.has("createdBy"):
        return CreatorNotStated()
    stated = spec.object("createdBy").knows("username", "uid", "groups")
    return Creator(
        stated.text(
            "username", MAXIMUM_USERNAME, _NAME, f"the user's name: at most {MAXIMUM_USERNAME} printable characters"
        ),
        stated.optional_text("uid", 256, _USER_UID, "the user's UID: at most 256 printable ASCII characters"),
        frozenset(stated.each("groups", 0, MAXIMUM_GROUPS, _group)),
    )


def _group(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAXIMUM_GROUP or _NAME.fullmatch(value) is None:
        raise ValueError(f"must be a group's name: at most {MAXIMUM_GROUP} printable characters")
    return value
