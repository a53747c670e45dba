"""Which of two kubeconfig Secrets the controller uses, and what is said about it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from signer.controller.cluster.kubeconfig_change import KubeconfigChange
from signer.controller.workload_access import (
    KUBECONFIG_WARNING,
    Administrators,
    KubeconfigInUse,
    KubeconfigUnknown,
    Restricted,
    SomebodysOwn,
    WorkloadAccessRefused,
    WorkloadConnector,
    kubeconfig_in_use,
    kubeconfig_needs,
    kubeconfig_notes,
    workload_connection,
)
from signer.kube.client import JsonObject
from signer.kube.connection import ClusterConnection, token_digest
from signer.kube.errors import Forbidden, NotFound, ServerError
from signer.kube.resource_limits import ResourceLimits
from signer.kube.scheduling import TimedSemaphore
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.support.certificates import CertificateAuthority

KEY = ClusterKey("team-a", "one")
OLD, NEW = CertificateAuthority.like_cluster_api(), CertificateAuthority.like_cluster_api()
TOKEN = "a"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def secret(connection: ClusterConnection, **data: bytes) -> JsonObject:
    values = {"value": kubeconfig_of(connection, "one").encode(), **data}
    return {"data": {name: base64.b64encode(value).decode() for name, value in values.items()}}


def administrators(ca: CertificateAuthority = NEW, *groups: str) -> ClusterConnection:
    certificate, key = ca.issue_client("admin", groups or ("system:masters",))
    return ClusterConnection(
        "https://new.example:6443", ca.certificate_pem, client_certificate=certificate, client_key=key
    )


def restricted(token: str = TOKEN) -> ClusterConnection:
    return ClusterConnection("https://old.example:6443", OLD.certificate_pem, bearer_token=token)


@dataclass
class Management:
    """The Secrets of one namespace, by the end of their names."""

    secrets: dict[str, JsonObject | Exception] = field(default_factory=dict)

    async def get(self, path: str) -> JsonObject:
        found = self.secrets.get(path.rpartition("/one-")[2], NotFound("no", status=404))
        if isinstance(found, Exception):
            raise found
        return found


async def test_without_a_restricted_one() -> None:
    found = await workload_connection(Management({"kubeconfig": secret(administrators())}), KEY)
    assert found.client_certificate is not None
    with pytest.raises(WorkloadAccessRefused, match="Secret team-a/one-kubeconfig does not exist"):
        await workload_connection(Management(), KEY)


async def test_the_restricted_one_gives_the_credential_and_the_other_the_address() -> None:
    """A rotation of the CAs changes Cluster API's Secret only."""
    secrets = {"kubeconfig": secret(administrators()), "kubeconfig-restricted": secret(restricted())}
    found = await workload_connection(Management(dict(secrets)), KEY)
    assert (found.bearer_token, found.client_certificate, found.client_key) == ("a", None, None)
    assert (found.server, found.tls) == ("https://new.example:6443", None)
    assert found.certificate_authority == NEW.certificate_pem


@pytest.mark.parametrize("other", [NotFound("no", status=404), {"data": {"value": "AAAA"}}], ids=["none", "unreadable"])
async def test_the_restricted_one_is_enough(other: JsonObject | Exception) -> None:
    found = await workload_connection(
        Management({"kubeconfig": other, "kubeconfig-restricted": secret(restricted())}), KEY
    )
    assert (found.server, found.bearer_token) == ("https://old.example:6443", "a")


async def test_an_address_that_cannot_be_read_is_not_replaced_by_an_older_one() -> None:
    """Its CAs may have been rotated out because their key leaked."""
    management = Management(
        {"kubeconfig": ServerError("no", status=500), "kubeconfig-restricted": secret(restricted())}
    )
    with pytest.raises(WorkloadAccessRefused, match="cannot be read in the management cluster"):
        await workload_connection(management, KEY)


@pytest.mark.parametrize("fault", [Forbidden("no", status=403), ServerError("no", status=500), {"data": {}}])
async def test_an_administrators_is_no_way_around_a_restricted_one_that_cannot_be_read(
    fault: JsonObject | Exception,
) -> None:
    management = Management({"kubeconfig": secret(administrators()), "kubeconfig-restricted": fault})
    with pytest.raises(WorkloadAccessRefused, match="one-kubeconfig-restricted"):
        await workload_connection(management, KEY)
    assert await kubeconfig_in_use(management, KEY) == KubeconfigUnknown()


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (administrators(NEW, "system:masters"), Administrators()),
        (administrators(NEW, "others", "kubeadm:cluster-admins"), Administrators()),
        (administrators(NEW, "others"), SomebodysOwn()),
        (restricted(), SomebodysOwn()),
    ],
)
async def test_whose_it_is(connection: ClusterConnection, expected: KubeconfigInUse) -> None:
    management = Management({"kubeconfig": secret(connection)})
    assert await kubeconfig_in_use(management, KEY) == expected
    expires = format_time(NOW).encode()
    management.secrets["kubeconfig-restricted"] = secret(restricted(), expires=expires)
    assert await kubeconfig_in_use(management, KEY) == Restricted(NOW)
    management.secrets["kubeconfig-restricted"] = secret(restricted(), expires=b"\xff")
    assert await kubeconfig_in_use(management, KEY) == Restricted(None)


def test_what_is_said_of_it() -> None:
    command = "node-attestation-controller workload-kubeconfig team-a/one"
    (note,) = kubeconfig_notes(KEY, Administrators())
    assert command in note
    others: tuple[KubeconfigInUse, ...] = (Restricted(NOW), SomebodysOwn(), KubeconfigUnknown())
    assert [kubeconfig_notes(KEY, other) for other in others] == [()] * 3
    for expires, word in ((NOW, "ended"), (NOW + KUBECONFIG_WARNING - timedelta(seconds=1), "ends")):
        (need,) = kubeconfig_needs(KEY, Restricted(expires), NOW)
        assert (f"kubeconfig {word} at" in need, command in need) == (True, True)
    others = (Restricted(NOW + KUBECONFIG_WARNING), Restricted(None), Administrators())
    assert [kubeconfig_needs(KEY, other, NOW) for other in others] == [()] * 3


async def test_another_token_causes_a_connection() -> None:
    management, reconnections = Management({"kubeconfig": secret(administrators())}), list[str]()
    change = KubeconfigChange(KEY, management, reconnect=lambda: reconnections.append("now"), random=Random(0))
    await change.look(token_digest(None))
    assert reconnections == [], "there is none"
    management.secrets["kubeconfig-restricted"] = secret(restricted("first"))
    await change.look(token_digest("first"))
    assert reconnections == [], "it is in use"
    await change.look(token_digest(None))
    await change.look(token_digest("former"))
    assert reconnections == ["now", "now"]
    management.secrets["kubeconfig-restricted"] = ServerError("no", status=500)
    await change.look(token_digest("former"))
    assert len(reconnections) == 2


class NotingLimits(ResourceLimits):
    """Notes for which namespaces limits were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def of_namespace(self, namespace: str) -> ResourceLimits:
        self.asked.append(namespace)
        return super().of_namespace(namespace)


async def test_the_clusters_of_a_namespace_share_their_limits() -> None:
    limits = NotingLimits()
    management = Management({"kubeconfig": secret(administrators())})
    connector = WorkloadConnector(management, 1, limits, TimedSemaphore(1, 1.0))
    await connector.client(KEY, lambda transport: None)
    assert limits.asked == [KEY.namespace]
