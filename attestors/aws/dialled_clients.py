"""botocore clients whose connections race the addresses of a host.

This module needs botocore; import it only where it is used.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.awsrequest import AWSHTTPConnectionPool, AWSHTTPSConnectionPool

from attestors.clouds.pools import dialled

_POOLS: Final = {"http": dialled(AWSHTTPConnectionPool), "https": dialled(AWSHTTPSConnectionPool)}


def dial_for(session: Any) -> None:
    """Apply to every client that the session creates from now on, including its own for credentials."""
    session.register("creating-client-class", _make_it_dial)


def _make_it_dial(base_classes: list[type], **_: object) -> None:
    base_classes.insert(0, _Dialled)


class _Dialled:
    """Mixin for a client. botocore has no setting for this: the pool classes are an attribute of the HTTP session.

    With a botocore without that attribute, clients still work and try one address after the other.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        sender = getattr(getattr(self, "_endpoint", None), "http_session", None)
        pools = getattr(sender, "_pool_classes_by_scheme", None)
        if isinstance(pools, dict):
            pools.update(_POOLS)
