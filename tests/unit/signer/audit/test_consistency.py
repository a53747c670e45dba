"""A forged line whose parts do not belong together, with a chain made anew: no check of its facts would see it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attestors.aws import AWSAttestor
from attestors.registry import Registry
from attestors.wire import request as request_format
from attestors.wire.names import PROVIDER_ID_OID, Purpose, SignerName
from attestors.wire.request import RequestBlocks
from signer.audit.chain import DECISION
from signer.audit.comparison import Comparison, Differs, Reproduced, compare
from signer.audit.consistency import require_about, require_same_request
from signer.audit.decision_inputs import DecisionInputs
from signer.audit.decision_line import WHOLE_REQUEST, logged_request, read_decision_line
from signer.audit.errors import Inconsistent, NotRedacted
from signer.audit.replay_attestors import ReplayAttestors
from signer.configuration import operator_settings, read_attestors
from signer.model.signing_request import (
    Malformed,
    MalformedBuiltinServingRequest,
    NotOurs,
    Parsed,
    Settled,
    SigningRequest,
    parse_signing_request,
    spec_digest,
)
from tests.unit.signer.builders import (
    PROVIDERS,
    builtin_serving_manifest,
    builtin_serving_request,
    manifest,
    signing_request,
)

_FOLDER = Path(__file__).parents[4] / "fixtures" / "audit" / "v1"
_HEADER = ("version", "kind", "chain", "sequence", "previous")

Content = dict[str, Any]


def logged(kind: str) -> Content:
    """The fixture's line with that decision, without its place in the chain."""
    lines = [json.loads(line) for line in (_FOLDER / "audit.log").read_text().splitlines()]
    (found,) = (line for line in lines if line["kind"] == DECISION and line["decision"]["kind"] == kind)
    return {name: value for name, value in found.items() if name not in _HEADER}


def judged(content: Content) -> Comparison:
    settings_of = partial(operator_settings, read_attestors(_FOLDER / "config.yaml"))
    return asyncio.run(compare(read_decision_line(content), ReplayAttestors(Registry(), settings_of)))


@pytest.mark.parametrize("kind", ["Approve", "Deny", "Defer"])
def test_as_it_was_written(kind: str) -> None:
    assert judged(logged(kind)) == Reproduced()


def without_certificate(content: Content) -> None:
    content["decision"].update(entry={}, certificate="")


def with_another_certificate_and_no_entry(content: Content) -> None:
    content["decision"].update(entry={}, certificate="-----BEGIN CERTIFICATE-----")


def about_another_cluster(content: Content) -> None:
    content["cluster"] = "team-b/production"


def with_a_policy_of_another_cluster(content: Content) -> None:
    content["decision_inputs"]["snapshot"]["policy"]["cluster"]["namespace"] = "team-b"


def at_another_time(content: Content) -> None:
    content["time"] = "2026-01-01T00:00:00Z"


def of_no_kind(content: Content) -> None:
    inputs = content["decision_inputs"]
    content["decision_inputs"] = {name: value if isinstance(value, bool) else {} for name, value in inputs.items()}
    content["decision"].update(kind="", reason="", entry={}, certificate="", node_name="")


def instead_of_something(content: Content) -> None:
    content["decision"]["instead_of"] = "Deny"


def with_another_request_that_is_said_to_be_redacted(content: Content) -> None:
    content["request"]["redacted"] = ["mac"]
    content["request"]["spec"]["extra"] = {"added": ["later"]}


def with_a_redacted_field_that_is_none(content: Content) -> None:
    content["request"]["redacted"] = ["other"]


@pytest.mark.parametrize(
    "forge",
    [
        without_certificate,
        with_another_certificate_and_no_entry,
        about_another_cluster,
        with_a_policy_of_another_cluster,
        at_another_time,
        of_no_kind,
        instead_of_something,
        with_another_request_that_is_said_to_be_redacted,
        with_a_redacted_field_that_is_none,
    ],
)
def test_a_forged_approval(forge: Callable[[Content], None]) -> None:
    content = logged("Approve")
    forge(content)
    assert isinstance(judged(content), Differs)


@pytest.mark.parametrize("kind", ["Approve", "ApproveOnly", "Challenge", "Defer", "Deny", "Fail", "LeftAlone", "Other"])
def test_the_kinds_of_decisions(kind: str) -> None:
    content = logged("Deny")
    content["decision"]["kind"] = kind
    found = judged(content)
    assert (found == Differs("the decision is of an unknown kind")) is (kind == "Other")


def test_an_approval_of_another_signers_request_names_its_node() -> None:
    content = logged("Deny")
    content["decision"]["kind"] = "ApproveOnly"
    assert judged(content) == Differs("an approval names a node, and no other decision does")


def test_a_decision_names_no_other_node() -> None:
    require_about(read_decision_line(logged("Approve")), "worker-1")
    require_about(read_decision_line(logged("Deny")), "worker-1")
    with pytest.raises(Inconsistent, match="the decision is about node worker-1, the request about worker-2"):
        require_about(read_decision_line(logged("Approve")), "worker-2")


@pytest.mark.parametrize("time", ["2026-11-26T18:52:55.240675Z", "2026-11-26T20:52:55.240675Z"])
def test_a_line_is_written_within_an_hour(time: str) -> None:
    content = logged("Approve")
    assert content["decision_inputs"]["snapshot"]["now"] == "2026-11-26T19:52:55.240675Z"
    content["time"] = time
    assert judged(content) == Reproduced()
    content["time"] = time.replace("675Z", "674Z" if "T18" in time else "676Z")
    assert judged(content) == Differs("the line's time is not that of the decision")


@pytest.mark.parametrize("part", ["entry", "certificate", "node_name"])
def test_a_refusal_with_a_part_of_an_approval(part: str) -> None:
    content = logged("Deny")
    content["decision"][part] = logged("Approve")["decision"][part]
    assert isinstance(judged(content), Differs)


def test_a_request_of_which_nothing_is_replaced_is_logged_as_it_was_posted() -> None:
    """Written anew it would have another digest: a node could make an honest log look forged."""
    content = logged("Approve")
    blocks = request_format.decode(base64.b64decode(content["request"]["spec"]["request"]))
    evidence = json.loads(blocks.evidence)
    spaced = json.dumps({"version": "v1", "caCertHash": evidence["caCertHash"], "identityDocument": "x"}, indent=1)
    posted = request_format.encode(RequestBlocks(blocks.certificate_request, "aws", spaced.encode()))
    spec = {
        **content["request"]["spec"],
        "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws",
        "request": base64.b64encode(posted).decode(),
    }
    manifest = {"metadata": {"name": "csr", "uid": "u"}, "spec": spec}
    registry = Registry()
    parsed = parse_signing_request(manifest, registry.providers)
    assert isinstance(parsed, SigningRequest)
    logged_now = logged_request(manifest, parsed, registry, (PROVIDER_ID_OID,))
    assert (logged_now.redacted, spec_digest(logged_now.spec)) == ((), logged_now.spec_digest)


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ({"name": b"bytes"}, "redacted_fields() of attestor aws returned values that are not strings"),
        (None, "redacted_fields() of attestor aws failed with TypeError"),
        (KeyError("a credential"), "redacted_fields() of attestor aws failed with KeyError"),
        (SystemExit(0), "redacted_fields() of attestor aws failed with SystemExit"),
    ],
)
def test_an_attestor_that_does_not_say_what_to_leave_out_is_named(
    gives: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request is approved by no controller that has an audit log, and the log's disk is not to blame."""

    def redacted_fields(self: object, evidence: object) -> Any:
        if isinstance(gives, BaseException):
            raise gives
        return gives

    monkeypatch.setattr(AWSAttestor, "redacted_fields", redacted_fields)
    request = signing_request()
    header = replace(request.header, signer=SignerName(Purpose.CLIENT, "aws"))
    with pytest.raises(NotRedacted, match=f"^{re.escape(says)}$"):
        logged_request({"spec": {}}, replace(request, header=header), Registry(), (PROVIDER_ID_OID,))


class TestReplaced:
    """A request of which parts are replaced has another digest than the line: only what is never logged whole is so."""

    def judge(self, parsed: Parsed, *redacted: str, provider: str = "") -> None:
        assert not isinstance(parsed, NotOurs | Settled)
        if isinstance(parsed, SigningRequest) and provider:
            signer = SignerName(Purpose.CLIENT, provider)
            parsed = replace(parsed, header=replace(parsed.header, signer=signer))
        line = read_decision_line(logged("Approve"))
        line = replace(line, request=replace(line.request, redacted=redacted))
        require_same_request(line, parsed, ReplayAttestors(Registry(), partial(operator_settings, {})))

    def request(self, *fields: str) -> SigningRequest:
        request = signing_request()
        return replace(request, evidence=replace(request.evidence, fields=dict.fromkeys(fields, "value")))

    @pytest.mark.parametrize("provider", ["aws", "missing"], ids=["which-replaces", "not-installed"])
    def test_of_such_an_attestors_evidence_are_some_fields_or_all(self, provider: str) -> None:
        request = self.request("one", "two")
        self.judge(request, "one", provider=provider)
        self.judge(request, "one", "two", provider=provider)
        with pytest.raises(Inconsistent, match="such evidence is never redacted"):
            self.judge(request, "one", "three", provider=provider)

    def test_of_an_attestors_that_replaces_nothing_is_none(self) -> None:
        with pytest.raises(Inconsistent, match="such evidence is never redacted"):
            self.judge(self.request("one"), "one", provider="tpm")

    def test_of_one_that_nobody_asked_are_all(self) -> None:
        """The policy does not name it, say: then it was not even loaded."""
        line = read_decision_line(logged("Approve"))
        asked = DecisionInputs(snapshot=line.decision_inputs.snapshot, request=line.decision_inputs.request)
        before = DecisionInputs(snapshot=line.decision_inputs.snapshot)
        redacted = replace(line, request=replace(line.request, redacted=("one",)))
        request = self.request("one")
        header = replace(request.header, signer=SignerName(Purpose.CLIENT, "tpm"))
        request = replace(request, header=header)
        require_same_request(
            replace(redacted, decision_inputs=before),
            request,
            ReplayAttestors(Registry(), partial(operator_settings, {})),
        )
        with pytest.raises(Inconsistent, match="such evidence is never redacted"):
            require_same_request(
                replace(redacted, decision_inputs=asked),
                request,
                ReplayAttestors(Registry(), partial(operator_settings, {})),
            )

    def test_of_one_that_says_nothing_are_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Registry, "load", lambda _, provider: object())
        self.judge(self.request("one"), "one", provider="silent")

    def test_what_cannot_be_read_is_replaced_as_a_whole(self) -> None:
        malformed = parse_signing_request(manifest(b"garbage"), PROVIDERS)
        assert isinstance(malformed, Malformed)
        malformed_builtin = parse_signing_request(builtin_serving_manifest(b"garbage"), PROVIDERS)
        assert isinstance(malformed_builtin, MalformedBuiltinServingRequest)
        for parsed in (malformed, malformed_builtin):
            self.judge(parsed, WHOLE_REQUEST)
            for redacted in (("mac",), (WHOLE_REQUEST, "mac")):
                with pytest.raises(Inconsistent, match="redacted as a whole, or not at all"):
                    self.judge(parsed, *redacted)

    def test_a_kubelets_own_is_logged_as_it_was_posted(self) -> None:
        for redacted in ("mac", WHOLE_REQUEST):
            with pytest.raises(Inconsistent, match="redacted as a whole, or not at all"):
                self.judge(builtin_serving_request(), redacted)
