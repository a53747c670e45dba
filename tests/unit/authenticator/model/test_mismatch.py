from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from attestors.wire.certificate_request import node_subject
from authenticator.model.mismatch import Issued, Property, Wanted, mismatches
from tests.unit.authenticator.builders import NODE, PROVIDER_ID, authority, cluster, pair

BOOTSTRAP: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
ISSUED: Final = Issued(cluster(), "keyed-mac", PROVIDER_ID)
WANTED: Final = Wanted(NODE, "keyed-mac", PROVIDER_ID, cluster(), BOOTSTRAP)
OTHER: Final = cluster(3, server="https://other.example:6443")


def test_nothing_differs() -> None:
    assert mismatches(pair(), ISSUED, WANTED) == ()


@pytest.mark.parametrize(
    ("changes", "property_", "stored", "configured"),
    [
        ({"node_name": "worker-1.example"}, Property.NODE_NAME, NODE, "worker-1.example"),
        ({"provider_id": "test:///other"}, Property.PROVIDER_ID, PROVIDER_ID, "test:///other"),
        (
            {"provider": "tpm"},
            Property.SIGNER,
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        ),
        ({"cluster": OTHER}, Property.CLUSTER, cluster().server, OTHER.server),
    ],
    ids=lambda value: value.name if isinstance(value, Property) else "",
)
def test_one_differs(changes: dict[str, Any], property_: Property, stored: str, configured: str) -> None:
    (found,) = mismatches(pair(), ISSUED, replace(WANTED, **changes))
    assert (found.property, found.stored, found.configured) == (property_, stored, configured)
    assert str(found).startswith(f"the stored certificate is of {property_.value} {stored}, not {configured}: ")
    assert "renew" in found.advice


def test_all_differ() -> None:
    wanted = Wanted("other", "tpm", "test:///other", OTHER, BOOTSTRAP)
    assert [one.property for one in mismatches(pair(), ISSUED, wanted)] == [*Property]
    assert [one.property for one in mismatches(pair(), None, wanted)] == [Property.NODE_NAME]


@pytest.mark.parametrize("changes", [{"provider": ""}, {"provider_id": ""}, {"cluster": None}])
def test_what_is_not_configured_is_not_compared(changes: dict[str, Any]) -> None:
    assert (
        mismatches(
            pair(), replace(ISSUED, cluster=OTHER) if "cluster" in changes else ISSUED, replace(WANTED, **changes)
        )
        == ()
    )


@pytest.mark.parametrize("changes", [{"provider": ""}, {"provider_id": ""}])
def test_what_an_earlier_version_did_not_store_is_not_compared(changes: dict[str, Any]) -> None:
    wanted = replace(WANTED, provider="tpm" if "provider" in changes else "keyed-mac")
    wanted = replace(wanted, provider_id="test:///other" if "provider_id" in changes else PROVIDER_ID)
    assert mismatches(pair(), replace(ISSUED, **changes), wanted) == ()


def test_a_cluster_with_a_ca_in_common_is_the_same() -> None:
    """During a rotation; under whatever address."""
    both = replace(cluster(), server="https://new.example", certificate_authority=authority(3) + authority())
    assert mismatches(pair(), ISSUED, replace(WANTED, cluster=both)) == ()


def test_a_certificate_that_is_no_nodes_is_shown_safely() -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a\x1b[2Jb")])
    (found,) = mismatches(pair(subject=subject), ISSUED, WANTED)
    assert found.property is Property.NODE_NAME
    assert found.stored.isprintable()


def test_the_organization_counts_too() -> None:
    subject = x509.Name([*node_subject(NODE).rdns[1]])
    assert [one.property for one in mismatches(pair(subject=subject), ISSUED, WANTED)] == [Property.NODE_NAME]
