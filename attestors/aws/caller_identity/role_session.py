"""Who called, as AWS names a session of a role: ``arn:<partition>:sts::<account>:assumed-role/<role>/<session>``.

EC2 names the session of an instance's own role after the instance. That says nothing where anybody else may assume
the role: whoever calls AssumeRole chooses the name.
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
    """The caller is a user, an account, a federated user, or nobody that AWS would name so."""


class ContradictoryAnswer(ValueError):
    """What AWS says of a session of a role does not agree with itself: that is no fault of the node's."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A session of a role, as STS says."""

    partition: str
    account: str
    role_name: str
    """Without its path, which STS leaves out; an account has no two roles whose names differ in their paths alone."""
    role_id: str
    """``AROA…``: of another role when one is made anew under the same name."""
    session_name: str

    @classmethod
    def parse(cls, *, account: str, arn: str, user_id: str) -> CallerIdentity:
        """What GetCallerIdentity answers.

        Raises:
            NotARoleSession: it names no session of a role.
            ContradictoryAnswer: its parts contradict each other.
        """
        names, user = _ARN.fullmatch(arn), _USER_ID.fullmatch(user_id)
        if names is None or user is None:
            raise NotARoleSession("the caller is no session of a role")
        if names["account"] != account or names["session"] != user["session"]:
            raise ContradictoryAnswer("a caller whose account, ARN and user ID contradict each other")
        try:
            partition_named(names["partition"])
        except UnknownRegion as error:
            raise NotARoleSession("the caller is of an unknown partition") from error
        return cls(names["partition"], account, names["role"], user["role_id"], names["session"])
