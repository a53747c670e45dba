"""botocore's clients, with connections that try the next address of a host beside one that is silent.

This module needs botocore; import it inside what needs it.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool

from attestors.clouds.pools import dialled

_POOLS: Final = {"http": dialled(AWSHTTPConnectionPool), "https": dialled(AWSHTTPSConnectionPool)}


def dial_for(session: Any) -> None:
    """For each client that the session makes from now on, also by itself, to get credentials."""
    session.register("creating-client-class", _make_it_dial)


def _make_it_dial(base_classes: list[type], **_: object) -> None:
    base_classes.insert(0, _Dialled)


class _Dialled:
    """Mixed into a client. botocore has no setting for it: the pools' classes are an attribute of what sends.

    A botocore without that attribute tries one address after the other, and works.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        sender = getattr(getattr(self, "_endpoint", None), "http_session", None)
        pools = getattr(sender, "_pool_classes_by_scheme", None)
        if isinstance(pools, dict):
            pools.update(_POOLS)
