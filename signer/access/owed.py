"""Which AccessGrants the controller keeps in a namespace over its limit: those whose access it must still end.

A grant that was believed has a record under the controller's seal, which nobody else can make. In a namespace over its
limit nothing is believed, because a grant without a record is not kept; so the believed ones are never more than the
limit was. They are looked at as before, and end when they must. Of the grants whose record somebody broke, and of those
that are deleted and wait for the controller's finalizer, as many as the limit are kept at a time: each is gone, or has
ended under a seal, after a few looks.
"""

from __future__ import annotations

from collections.abc import Callable

from signer.access.record import Closing, GrantRecord, GrantSeals, Stage
from signer.access.store import StoredGrant
from signer.model.access.grant import FINALIZER
from signer.model.decision import Deferred
from signer.model.seal import ControllerKeys
from signer.store.retention import Owed


class GrantsOwed:
    """Implements :class:`signer.store.retention.Owes`."""

    def __init__(self, keys: Callable[[], ControllerKeys], is_known: Callable[[str], bool]) -> None:
        """``keys`` raises Deferred while there are none. ``is_known`` tells whether this process has seen an authentic
        record of the grant with that UID.
        """
        self._keys = keys
        self._is_known = is_known
        self._without_keys = False

    def owed(self, value: StoredGrant) -> Owed:
        """See Owes. A record that was taken away, or is broken, is to be ended if this process knows that there was an
        authentic one.
        """
        if not value.has_record:
            return Owed.PROVEN if self._is_known(value.metadata.uid) else _of_its_deletion(value)
        try:
            keys = self._keys()
        except Deferred:
            self._without_keys = True
            return Owed.CLAIMED
        record = value.unsealed(GrantSeals(keys))
        if not isinstance(record, GrantRecord):
            return Owed.PROVEN if self._is_known(value.metadata.uid) else Owed.CLAIMED
        is_over = isinstance(record.state, Closing) and record.state.stage is Stage.TERMINATED
        return _of_its_deletion(value) if is_over else Owed.PROVEN

    def list_begins(self) -> None:
        """See Owes."""
        self._without_keys = False

    def wants_list(self) -> bool:
        """See Owes. Records could not be verified before there was a key."""
        if not self._without_keys:
            return False
        try:
            self._keys()
        except Deferred:
            return False
        return True


def _of_its_deletion(value: StoredGrant) -> Owed:
    is_waiting = value.metadata.is_deleted and FINALIZER in value.metadata.finalizers
    return Owed.CLAIMED if is_waiting else Owed.NOTHING


__all__ = ["GrantsOwed"]
