from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube import resources
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, CLUSTERS_V1BETA2, SECRETS, Resource, segment


def test_paths() -> None:
    assert CERTIFICATE_SIGNING_REQUESTS.collection() == "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    assert (
        CERTIFICATE_SIGNING_REQUESTS.object("csr-1", subresource="approval")
        == "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1/approval"
    )
    assert SECRETS.object("c1-ca", "tenant") == "/api/v1/namespaces/tenant/secrets/c1-ca"
    assert SECRETS.collection() == "/api/v1/secrets"
    assert CLUSTERS_V1BETA2.collection("tenant") == "/apis/cluster.x-k8s.io/v1beta2/namespaces/tenant/clusters"


def test_api_versions() -> None:
    assert SECRETS.api_version == "v1"
    assert CLUSTERS_V1BETA2.api_version == "cluster.x-k8s.io/v1beta2"


def test_scope_is_checked() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        CERTIFICATE_SIGNING_REQUESTS.object("csr-1", "tenant")
    with pytest.raises(ValueError, match="namespaced"):
        SECRETS.object("c1-ca")


def test_an_empty_namespace_is_not_all_namespaces() -> None:
    with pytest.raises(ValueError, match="empty"):
        SECRETS.collection("")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets", "a%2fb", "a\\b", "a\nb", "a\x00", "x" * 254])
def test_names_that_would_move_the_call_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        segment(name)


def test_names_of_role_bindings_keep_their_colons() -> None:
    assert segment("kubeadm:node-autoapprove-bootstrap") == "kubeadm:node-autoapprove-bootstrap"


@given(st.text(max_size=300))
def test_a_segment_is_one_segment_and_decodes_to_the_name(name: str) -> None:
    try:
        encoded = segment(name)
    except ValueError:
        return
    assert not set("/?#\\ ") & set(encoded)
    assert encoded not in {"", ".", ".."}
    assert unquote(encoded) == name


def test_every_constant_is_complete() -> None:
    found = [value for value in vars(resources).values() if isinstance(value, Resource)]
    assert len({(r.group, r.version, r.plural) for r in found}) == len(found) == 41
    assert {r.plural for r in found if r.group == "attestation.cluster.x-k8s.io" and r.namespaced} == {
        "nodeattestationpolicies",
        "attestednodes",
        "identityreservations",
        "certificateauthorityrotations",
    }
