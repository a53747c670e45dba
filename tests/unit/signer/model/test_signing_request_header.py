"""What is read of a CSR before its content."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from attestors.wire.names import Purpose, SignerName
from signer.model.signing_request import Condition, NotOurs, SigningRequest, parse_signing_request, spec_digest
from tests.unit.signer.builders import BOOTSTRAP, CLIENT_USAGES, PROVIDERS, manifest


def parse(csr: dict[str, Any]) -> Any:
    return parse_signing_request(csr, PROVIDERS)


class TestCsrHeader:
    def test_everything(self) -> None:
        csr = manifest(conditions=[{"type": "Approved", "status": "True"}, {"type": "Other"}])
        csr["spec"]["expirationSeconds"] = 3600
        parsed = parse(csr)
        assert isinstance(parsed, SigningRequest)
        assert (parsed.provider, parsed.evidence.version, dict(parsed.evidence.fields)) == (
            "tpm",
            "v1",
            {"quote": "AAAA"},
        )
        header = parsed.header
        assert (header.name, header.resource_version) == ("csr-x1", "42")
        assert header.uid == "7f9c1f5e-0000-4000-8000-000000000001"
        assert header.signer == SignerName(Purpose.CLIENT, "tpm")
        assert (header.username, header.groups) == (BOOTSTRAP[0], frozenset(BOOTSTRAP[1]))
        assert header.usages == CLIENT_USAGES
        assert header.expiration_seconds == 3600
        assert header.created == "2026-03-01T11:59:59Z"
        assert header.conditions == {Condition.APPROVED}
        assert header.spec_digest == spec_digest(csr["spec"])

    def test_missing_and_ill_typed_fields(self) -> None:
        csr = manifest()
        for key in ("username", "groups", "usages", "expirationSeconds"):
            csr["spec"][key] = {"x": 1}
        csr["metadata"]["resourceVersion"] = csr["metadata"]["creationTimestamp"] = 5
        header = parse(csr).header
        assert (header.username, header.groups, header.usages) == ("", frozenset(), ())
        assert (header.expiration_seconds, header.resource_version, header.created) == (None, "", "")

    @pytest.mark.parametrize("value", [None, True, "3600", 1.5])
    def test_expiration_that_is_no_number(self, value: Any) -> None:
        csr = manifest()
        csr["spec"]["expirationSeconds"] = value
        assert parse(csr).header.expiration_seconds is None

    def test_groups_and_usages_that_are_no_text(self) -> None:
        csr = manifest(requester=("u", ["a", "b"]))
        csr["spec"]["groups"] += [5, None]
        csr["spec"]["usages"] = ["client auth", 5]
        header = parse(csr).header
        assert (header.groups, header.usages) == (frozenset({"a", "b"}), ("client auth",))

    def test_groups_are_bounded(self) -> None:
        groups = [f"g{number}" for number in range(257)]
        assert parse(manifest(requester=("u", groups))).header.groups == frozenset(groups[:256])

    def test_spec_digest(self) -> None:
        expected = hashlib.sha256(b'{"a":[1,null],"b":{"c":"\xc3\xa9","d":true}}').hexdigest()
        assert spec_digest({"b": {"d": True, "c": "\u00e9"}, "a": [1, None]}) == expected
        assert spec_digest({"a": 1}) != spec_digest({"a": 2})


class TestNotOurs:
    @pytest.mark.parametrize(
        "signer_name",
        [
            "",
            "kubernetes.io/kube-apiserver-client-kubelet",
            "kubernetes.io/kubelet-serving ",
            "kubernetes.io/kubelet-servin",
            "kubernetes.io/legacy-unknown",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-unknown",
            "cluster.x-k8s.io/kubelet-serving-aws",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-TPM",
            "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm ",
            "cluster-x-k8s-io/kube-apiserver-client-kubelet-tpm",
            "xcluster.x-k8s.io/kubelet-serving-tpm",
        ],
    )
    def test_signer(self, signer_name: str) -> None:
        assert parse(manifest(b"anything", signer_name=signer_name)) == NotOurs()

    @pytest.mark.parametrize("value", [None, 5, ["x"], {}])
    def test_signer_that_is_no_text(self, value: Any) -> None:
        csr = manifest()
        csr["spec"]["signerName"] = value
        assert parse(csr) == NotOurs()

    @pytest.mark.parametrize("part", ["metadata", "spec"])
    @pytest.mark.parametrize("value", [None, 5, "x", [], {}])
    def test_object_without_parts(self, part: str, value: Any) -> None:
        assert parse(manifest() | {part: value}) == NotOurs()
        assert parse({}) == NotOurs()

    @pytest.mark.parametrize("key", ["name", "uid"])
    @pytest.mark.parametrize("value", [None, "", 5])
    def test_object_without_name(self, key: str, value: Any) -> None:
        csr = manifest()
        csr["metadata"][key] = value
        assert parse(csr) == NotOurs()

    @pytest.mark.parametrize("value", ["\ud800", {5: 6}, object()])
    def test_what_json_cannot_hold(self, value: Any) -> None:
        csr = manifest()
        csr["spec"]["extra"] = value
        assert parse(csr) == NotOurs()

    def test_too_deep(self) -> None:
        csr = manifest()
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        csr["spec"]["extra"] = nested
        assert parse(csr) == NotOurs()
