"""Pins the controller's keys, which come with each client certificate."""

from __future__ import annotations

from collections.abc import Callable

from attestors.net.kubeconfig import certificates_in
from attestors.wire import statement
from attestors.wire.statement import (
    ControllerPublicKeys,
    MalformedStatement,
    PinnedController,
    StatementRefused,
    UnsupportedStatement,
    accept_controller_keys,
    authorities_in,
)
from attestors.wire.statement.authorities import Authority
from authenticator.model.cluster import Cluster
from authenticator.store.store import Damaged, Store


def pin_controller(
    store: Store, texts: tuple[bytes, ...], cluster: Cluster, *, now: int, report: Callable[[str], None]
) -> None:
    """Store the controller's keys, if one of the statements hands out keys that count.

    Whatever is wrong with a statement is reported, and the pin stays: the certificate beside it is as good. An older
    controller hands out none. The caller holds the bootstrap lock.

    Raises:
        StoreUnusable: the pin cannot be read or written.
    """
    for text in texts:
        try:
            signed = statement.decode(text)
            if not isinstance(signed.statement.payload, ControllerPublicKeys):
                continue
            pin = store.pin()
            accepted: PinnedController = accept_controller_keys(
                signed, trusted=authorities_of(cluster), pin=pin, now=now
            )
        except UnsupportedStatement:
            continue
        except (MalformedStatement, StatementRefused, Damaged) as error:
            report(f"the controller's keys are not pinned: {error}")
            continue
        if accepted != pin:
            store.save_pin(accepted)


def authorities_of(cluster: Cluster) -> tuple[Authority, ...]:
    """The CAs of a kubeconfig's cluster that may sign statements."""
    return authorities_in(certificates_in(cluster.certificate_authority.encode("ascii")))
