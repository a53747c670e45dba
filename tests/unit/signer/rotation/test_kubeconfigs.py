"""Kubeconfigs: everything but the CAs and the client certificate stays as it is."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from signer.rotation.authorities import Role
from signer.rotation.bundles import digest_of
from signer.rotation.facts import (
    KubeconfigClient,
    KubeconfigFacts,
    NoClientCertificate,
    NotObserved,
    SignedByKnown,
    SignedByUnknown,
    Unusable,
)
from signer.rotation.kubeconfigs import (
    Issuers,
    KubeconfigNotChanged,
    cluster_info_authorities,
    cluster_info_with,
    read_facts,
    rewritten,
)
from tests.support.yaml_documents import safe_load
from tests.unit.signer.authority.chains import SERVER, Authority
from tests.unit.signer.authority.support import NOW, Made
from tests.unit.signer.rotation.certificates import (
    administrator,
    as_yaml,
    authority,
    encoded,
    kubeconfig_document,
    third,
)

OLD, NEW = authority(Role.OLD), authority(Role.NEW)
BOTH = (OLD.loaded, NEW.loaded)
CERTIFICATES = (OLD.certificate, NEW.certificate)
OLD_DIGEST, NEW_DIGEST, THIRD_DIGEST = (digest_of(one.certificate.der) for one in (OLD, NEW, third()))
BY_OLD = administrator(OLD)


def rewrite(document: Any, signer: Authority = NEW, trusted: bytes = NEW.pem + OLD.pem) -> Any:
    value = document if isinstance(document, bytes) else as_yaml(document)
    return safe_load(rewritten(value, trusted, Issuers(BOTH, signer.loaded), NOW))


def user_of(document: Any) -> dict[str, Any]:
    user: dict[str, Any] = document["users"][0]["user"]
    return user


def client_of(document: Any) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(user_of(document)["client-certificate-data"]))


def without_changes(document: Any) -> Any:
    """What must stay."""
    copied = copy.deepcopy(document)
    for one in copied["clusters"]:
        if one["name"] == "blue":
            del one["cluster"]["certificate-authority-data"]
    user_of(copied).pop("client-certificate-data", None)
    return copied


# Facts


@pytest.mark.parametrize(
    ("issuer", "client"),
    [(OLD, SignedByKnown(OLD_DIGEST)), (NEW, SignedByKnown(NEW_DIGEST)), (third(), SignedByUnknown())],
)
def test_facts(issuer: Authority, client: KubeconfigClient) -> None:
    document = as_yaml(kubeconfig_document(NEW.pem + OLD.pem, administrator(issuer)))
    assert read_facts(document, *CERTIFICATES) == KubeconfigFacts((NEW_DIGEST, OLD_DIGEST), client)


def test_facts_with_a_token() -> None:
    assert read_facts(as_yaml(kubeconfig_document(third().pem)), *CERTIFICATES) == KubeconfigFacts(
        (THIRD_DIGEST,), NoClientCertificate()
    )


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "/bin/sh", "apiVersion": "client.authentication.k8s.io/v1"}},
        {"auth-provider": {"name": "gcp"}},
        {"client-certificate": "/etc/kubernetes/admin.crt"},
        {"tokenFile": "/var/run/secrets/token"},
        {"as": "system:admin"},
    ],
)
def test_a_kubeconfig_that_runs_or_reads_something_is_unusable(user: dict[str, Any]) -> None:
    document = as_yaml(kubeconfig_document(OLD.pem, BY_OLD, **user))
    found = read_facts(document, *CERTIFICATES)
    assert isinstance(found, Unusable)
    assert next(iter(user)) in found.message


@pytest.mark.parametrize("text", [b"", b"x", b"[]", b"a: &a [*a]", b"\xff", b"x: 1\nx: 2"])
def test_what_is_no_kubeconfig(text: bytes) -> None:
    assert isinstance(read_facts(text, *CERTIFICATES), Unusable)
    with pytest.raises(KubeconfigNotChanged):
        rewrite(text)


# Rewriting


def test_the_client_certificate_is_by_the_other_ca() -> None:
    before = kubeconfig_document(OLD.pem, BY_OLD)
    after = rewrite(before)
    assert without_changes(after) == without_changes(before)
    assert base64.b64decode(after["clusters"][0]["cluster"]["certificate-authority-data"]) == NEW.pem + OLD.pem
    client_of(after).verify_directly_issued_by(x509.load_der_x509_certificate(NEW.certificate.der))
    assert client_of(after).public_key() == BY_OLD.certificate.public_key()
    assert client_of(after).subject == BY_OLD.certificate.subject
    assert read_facts(as_yaml(after), *CERTIFICATES) == KubeconfigFacts(
        (NEW_DIGEST, OLD_DIGEST), SignedByKnown(NEW_DIGEST)
    )


def test_and_back_again() -> None:
    after = rewrite(rewrite(kubeconfig_document(OLD.pem, BY_OLD)), OLD, OLD.pem)
    assert read_facts(as_yaml(after), *CERTIFICATES) == KubeconfigFacts((OLD_DIGEST,), SignedByKnown(OLD_DIGEST))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.text(st.characters(codec="ascii", categories=["L", "N"])),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(st.characters(codec="ascii", categories=["L"])), of),
    max_leaves=6,
)
"""Without numbers: strict YAML reads them as texts, and a kubeconfig has them only in extensions of other programs."""


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A kubeconfig with other entries, and with extensions at every depth."""
    document = kubeconfig_document(draw(st.sampled_from([OLD.pem, NEW.pem, third().pem])), draw(st.sampled_from(
        [None, BY_OLD, administrator(NEW), administrator(third())]
    )))  # fmt: skip
    for one in (document, document["clusters"][0]["cluster"], document["contexts"][0]["context"], user_of(document)):
        one["extensions"] = [{"name": "x", "extension": draw(_VALUES)}]
    document["clusters"].append(
        {"name": "other", "cluster": {"server": "https://x", "certificate-authority-data": "x"}}
    )
    document["users"].append({"name": "other", "user": {"token": "other"}})
    document["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "other"}})
    return document


@given(documents(), st.sampled_from([OLD, NEW]))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_all_else_stays_and_twice_is_once(document: dict[str, Any], signer: Authority) -> None:
    after = rewrite(document, signer)
    assert without_changes(after) == without_changes(document)
    assert list(after) == sorted(document), "the order of the keys, which the test's own YAML sorts"
    again = rewrite(after, signer)
    assert again == after


@pytest.mark.parametrize("client", [administrator(third()), administrator(NEW), None])
def test_a_credential_that_is_not_of_the_other_ca_stays(client: Made | None) -> None:
    before = kubeconfig_document(OLD.pem, client)
    assert user_of(rewrite(before)) == user_of(before)


@pytest.mark.parametrize(
    "client",
    [
        administrator(OLD, purpose=SERVER),
        administrator(OLD, ca=True),
        administrator(OLD, not_after=NOW),
        administrator(OLD, purpose=x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])),
    ],
    ids=["server", "ca", "expired", "any"],
)
def test_what_is_no_client_certificate_is_not_issued_again(client: Made) -> None:
    with pytest.raises(KubeconfigNotChanged, match="its client certificate: "):
        rewrite(kubeconfig_document(OLD.pem, client))


def damaged(change: str) -> Any:
    document = kubeconfig_document(OLD.pem, BY_OLD)
    match change:
        case "two of the name":
            document["users"] *= 2
        case "no such context":
            document["current-context"] = "x"
        case "no such cluster":
            document["contexts"][0]["context"]["cluster"] = "x"
        case "no such user":
            document["contexts"][0]["context"]["user"] = "x"
        case "no list":
            document["users"] = {}
        case "no mapping in an entry":
            document["users"][0]["user"] = []
        case "no mapping as an entry":
            document["users"] = ["x"]
        case "not base64":
            user_of(document)["client-certificate-data"] = "ä"
        case "too large":
            document["preferences"] = {"x": "x" * 256 * 1024}
    return document


@pytest.mark.parametrize(
    "change",
    [
        "two of the name",
        "no such context",
        "no such cluster",
        "no such user",
        "no list",
        "no mapping in an entry",
        "no mapping as an entry",
        "not base64",
        "too large",
    ],
)
def test_another_form_is_not_changed(change: str) -> None:
    with pytest.raises(KubeconfigNotChanged) as raised:
        rewrite(damaged(change))
    assert "PRIVATE" not in str(raised.value)


@given(st.binary(max_size=100) | _VALUES.map(as_yaml))
def test_whatever_the_text_is_it_is_changed_or_refused(text: bytes) -> None:
    with pytest.raises(KubeconfigNotChanged):
        rewrite(text)


# cluster-info


def cluster_info(*trusted: bytes, name: str = "") -> dict[str, Any]:
    clusters = [
        {"name": name, "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded(one)}}
        for one in trusted
    ]
    document = {"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": None, "users": None}
    return {"data": {"kubeconfig": as_yaml(document).decode(), "jws-kubeconfig-abcdef": "x"}}


def test_the_cas_of_cluster_info() -> None:
    assert cluster_info_authorities(cluster_info(NEW.pem + OLD.pem)) == (NEW_DIGEST, OLD_DIGEST)
    before = cluster_info(OLD.pem)
    after = cluster_info_with(before, NEW.pem + OLD.pem)
    assert cluster_info_authorities({"data": {"kubeconfig": after}}) == (NEW_DIGEST, OLD_DIGEST)
    expected = safe_load(before["data"]["kubeconfig"])
    expected["clusters"][0]["cluster"]["certificate-authority-data"] = encoded(NEW.pem + OLD.pem)
    assert safe_load(after) == expected
    assert cluster_info_with({"data": {"kubeconfig": after}}, NEW.pem + OLD.pem) == after


@pytest.mark.parametrize(
    "config_map",
    [
        cluster_info(OLD.pem, NEW.pem),
        cluster_info(),
        {"data": {"kubeconfig": "clusters: {}"}},
        {"data": {"kubeconfig": "["}},
        {"data": {}},
        {"data": []},
        {},
    ],
    ids=["two clusters", "no cluster", "no list", "no YAML", "empty", "no mapping", "nothing"],
)
def test_cluster_info_of_another_form(config_map: dict[str, Any]) -> None:
    """The workload cluster may say anything: it only holds the rotation."""
    found = cluster_info_authorities(config_map)
    assert isinstance(found, NotObserved)
    with pytest.raises(KubeconfigNotChanged):
        cluster_info_with(config_map, NEW.pem)


def test_a_bundle_in_cluster_info_that_cannot_be_read() -> None:
    assert isinstance(cluster_info_authorities(cluster_info(b"garbage")), NotObserved)
    document = safe_load(cluster_info(OLD.pem)["data"]["kubeconfig"])
    document["clusters"][0]["cluster"]["certificate-authority-data"] = "!"
    assert isinstance(cluster_info_authorities({"data": {"kubeconfig": yaml.safe_dump(document)}}), NotObserved)
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    assert cluster_info_authorities({"data": {"kubeconfig": yaml.safe_dump(document)}}) == ()
