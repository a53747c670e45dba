"""The caller, as AWS names a role session: ``arn:<partition>:sts::<account>:assumed-role/<role>/<session>``.

EC2 names the session of an instance's own role after the instance. The name proves nothing if another principal may
assume the role: the caller of AssumeRole chooses the session name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from attestors.aws.partitions import UnknownRegion, partition_named

_NAME: Final = r"[A-Za-z0-9_+=,.@-]"
_ARN: Final = re.compile(
    rf"arn:(?P<partition>[a-z-]{{1,16}}):sts::(?P<account>[0-9]{{12}}):"
    rf"assumed-role/(?P<role>{_NAME}{{1,64}})/(?P<session>{_NAME}{{2,64}})"
)
_USER_ID: Final = re.compile(rf"(?P<role_id>AROA[A-Z0-9]{{12,124}}):(?P<session>{_NAME}{{2,64}})")


class NotARoleSession(ValueError):
    """The caller is a user, an account, a federated user, or has no valid AWS name."""


class ContradictoryAnswer(ValueError):
    """The answer of AWS about a role session contradicts itself, which is not the node's fault."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A role session, according to STS."""

    partition: str
    account: str
    role_name: str
    """Without its path, which STS omits; role names are unique in an account regardless of their paths."""
    role_id: str
    """``AROA…``: a role that is recreated under the same name gets another ID."""
    session_name: str

    @classmethod
    def parse(cls, *, account: str, arn: str, user_id: str) -> CallerIdentity:
        """Parse the answer of GetCallerIdentity.

        Raises:
            NotARoleSession: it does not name a role session.
            ContradictoryAnswer: its parts contradict each other.
        """
        names, user = _ARN.fullmatch(arn), _USER_ID.fullmatch(user_id)
        if names is None or user is None:
            raise NotARoleSession("the caller is not a role session")
        if names["account"] != account or names["session"] != user["session"]:
            raise ContradictoryAnswer("a caller whose account, ARN and user ID contradict each other")
        try:
            partition_named(names["partition"])
        except UnknownRegion as error:
            raise NotARoleSession("the caller is in an unknown partition") from error
        return cls(names["partition"], account, names["role"], user["role_id"], names["session"])
