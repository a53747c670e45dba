"""Whatever is refused is said in one sentence with its own exit code, and is not asked for again at once."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from keyed_mac.node import KeyedMACAgentPlugin

from attestors.contract import EvidenceUnavailable
from attestors.wire.names import Purpose
from authenticator.flow.clock import Clock
from authenticator.flow.pauses import end_pauses
from authenticator.flow.waiting import Gone
from authenticator.model.attempt import LONGEST_PAUSE_SECONDS, Attempt, decode_attempt, encode_attempt
from authenticator.model.certificate import load_key, new_key
from authenticator.model.failures import (
    ApiUnavailable,
    CredentialRefused,
    Denied,
    ExitCode,
    Failure,
    NoCredential,
    NoEvidence,
    StillPending,
    StoreUnusable,
    UntrustedServer,
)
from signer.testing.api import EmbeddedAPI
from signer.testing.api.authorities import Issuer
from signer.testing.api.identity import User
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.authenticator.fixtures import (
    DAY,
    ClusterAdmin,
    Manifest,
    Node,
    Timepiece,
    asked,
    asking,
    certificate_request,
    created,
    key_of,
)
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.node_program import NodeProgram, Ran
from tests.unit.authenticator.api.servers import closed_port

pytestmark = pytest.mark.slow
"""All together take many seconds, each a fraction of one."""

DUE: Final[dict[str, Any]] = {"age": 8000, "left": 2000}
_IN_2051: Final = 2556144000


def refused(node: Node, admin: ClusterAdmin, decide: Callable[[Manifest], object]) -> tuple[Failure, Manifest]:
    """How a join ends on which somebody decides so, and the request."""
    with asking(node.certificates().client) as answer:
        found = admin.next()
        decide(found)
        failure = answer.exception()
    assert isinstance(failure, Failure)
    return failure, found


def assert_one_sentence(ran: Ran) -> None:
    """Nothing is printed for client-go, and people get words, no traceback."""
    assert ran.output == ""
    assert "Traceback" not in ran.log
    assert ran.log.splitlines()[-1].startswith("kubelet-authenticator: ")


# Denied and failed.


@pytest.mark.parametrize(
    ("kind", "reason"), [("Denied", "NodeNameMismatch"), ("Denied", "SomebodySaidNo"), ("Failed", "ApprovedByOthers")]
)
def test_a_refusal_is_reported_with_its_reason(admin: ClusterAdmin, node: Node, kind: str, reason: str) -> None:
    node.supply_bootstrap()
    failure, found = refused(node, admin, lambda found: admin.decide(found, kind, reason, "this is why"))
    assert isinstance(failure, Denied)
    assert str(failure) == f"{found['metadata']['name']} was {kind} with reason {reason}: this is why"


def test_what_is_denied_behind_an_approval_is_denied(admin: ClusterAdmin, node: Node) -> None:
    """Failed beside Approved: the controller's word on what somebody else approved."""
    node.supply_bootstrap()

    def decide(found: Manifest) -> None:
        admin.approve(found)
        admin.decide(found, "Failed", "ApprovedByOthers")

    failure, _ = refused(node, admin, decide)
    assert "ApprovedByOthers" in str(failure)


def test_text_from_an_api_server_is_printable_and_bounded(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    message = "\x1b[2J\n" + "x" * 10_000
    failure, _ = refused(node, admin, lambda found: admin.decide(found, "Denied", "Why", message))
    assert str(failure).isprintable()
    assert len(str(failure)) < 1000


def test_no_request_during_the_pause_and_a_new_key_after_it(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    _, first = refused(node, admin, lambda found: admin.decide(found, "Denied", "NodeNameMismatch"))
    api.requests.clear()
    node.time.pass_by(59)
    with pytest.raises(Denied, match=r"NodeNameMismatch.*\(failed once; no retry before 20"):
        node.certificates().client()
    assert len(asked(api)) == 0
    node.time.pass_by(1)
    with asking(node.certificates().client) as answer:
        second = admin.next()
        admin.grant(second)
        answer.result()
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert key_of(first) != key_of(second)
    assert node.store.attempt(Purpose.CLIENT) == Attempt()


@pytest.mark.slow
def test_pauses_grow_up_to_an_hour(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    pauses = []
    with admin.deciding(lambda found: admin.decide(found, "Denied", "NodeNameMismatch")):
        for _ in range(9):
            with pytest.raises(Denied):
                node.certificates().client()
            pause = node.store.attempt(Purpose.CLIENT).pause
            assert pause is not None
            pauses.append(pause.until - node.time.now)
            node.time.pass_by(pauses[-1])
    assert pauses == [60, 120, 240, 480, 960, 1920, *[LONGEST_PAUSE_SECONDS] * 3]


def test_request_now_ends_the_pause(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    first = refused(node, admin, lambda found: admin.decide(found, "Denied", "EndorsementKeyMismatch"))[1]
    end_pauses(node.store, timeout=1)
    with asking(node.certificates().client) as answer:
        second = admin.next()
        admin.grant(second)
        answer.result()
    assert key_of(first) != key_of(second)


def test_ending_a_pause_gives_up_no_request_that_is_under_way(node: Node, nobody_decides: Timepiece) -> None:
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    pending = node.store.attempt(Purpose.CLIENT).pending
    assert pending is not None
    end_pauses(node.store, timeout=1)
    assert node.store.attempt(Purpose.CLIENT).pending == pending


def test_a_new_bootstrap_credential_ends_the_pause(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    refused(node, admin, lambda found: admin.decide(found, "Denied", "BootstrapTokenMismatch"))
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        admin.grant(admin.next())
        assert answer.result().pair.key


def test_the_same_bootstrap_credential_again_does_not(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    token = node.supply_bootstrap()
    refused(node, admin, lambda found: admin.decide(found, "Denied", "NodeNameMismatch"))
    node.supply_bootstrap(token)
    with pytest.raises(Denied):
        node.certificates().client()
    assert len(created(api)) == 1


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    cluster = harness.cluster()
    for name in ("one", "two"):
        cluster.add_machine(name, provider_id=provider_id(name))
    harness.run()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"nodeName": "two"}, {}, "NodeNameMismatch"),
        ({}, {"machine-key": base64.b64encode(bytes(32)).decode()}, "BindingMismatch"),
        ({"provider": "insecure"}, None, "AttestorNotAuthorized"),
    ],
)
def test_the_controllers_no_is_exit_code_7_and_is_not_asked_for_twice(
    cluster: WorldCluster,
    tmp_path: Any,
    changes: dict[str, str],
    settings: dict[str, str] | None,
    reason: str,
) -> None:
    program = NodeProgram(tmp_path / "node", node_of(cluster, "one"))
    program.configure(settings={} if settings is None else {**program.node.settings, **settings}, **changes)
    program.supply_bootstrap(cluster)
    first = program.credential()
    assert first.exit_code == ExitCode.DENIED
    assert f"was Denied with reason {reason}: " in first.log
    assert_one_sentence(first)
    api = embedded_api(cluster)
    before = len(created(api))
    second = program.credential()
    assert second.exit_code == ExitCode.DENIED
    assert f"{reason}" in second.log
    assert "no retry before" in second.log
    assert len(created(api)) == before == 1
    third = program.run("request", "--now")
    assert third.exit_code == ExitCode.DENIED
    assert "no retry before" not in third.log
    assert len(created(api)) == 2


# Undecided.


def test_what_is_pending_at_the_deadline_is_waited_for_by_the_next_run(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    node.supply_bootstrap()
    for _ in range(3):
        with pytest.raises(StillPending, match=f"is still undecided.*{provider_id(node.name)}"):
            node.certificates().client()
    found = admin.next()
    admin.grant(found)
    assert node.certificates().client().pair.key
    assert len(created(api)) == 1


def test_what_waits_with_other_settings_is_not_waited_for(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    """Its evidence may be why it waits: whoever mends the attestor's settings need not wait until it is deleted."""
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    first = admin.next()
    settings = {**node.configuration.settings, "machine-key": base64.b64encode(bytes([1] * 32)).decode("ascii")}
    node.changes["settings"] = settings
    with pytest.raises(StillPending):
        node.certificates().client()
    second = admin.next()
    assert key_of(first) != key_of(second)
    assert any("was made with other settings" in text for text in node.reports)
    admin.grant(first)  # nobody has a use for it any more
    with pytest.raises(StillPending):
        node.certificates().client()
    admin.grant(second)
    assert node.certificates().client().pair.key
    assert len(created(api)) == 2


def test_what_an_older_version_has_sent_is_waited_for(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    """It did not write with which settings."""
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    attempt = node.store.attempt(Purpose.CLIENT)
    assert attempt.pending is not None
    document = json.loads(encode_attempt(attempt))
    del document["pending"]["asker"]
    node.store.save_attempt(Purpose.CLIENT, decode_attempt(json.dumps(document)))
    admin.grant(admin.next())
    assert node.certificates().client().pair.key
    assert len(created(api)) == 1


def test_an_approved_but_unsigned_request_has_its_own_message(
    admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    admin.approve(admin.next())
    with pytest.raises(StillPending, match="is approved but still not signed"):
        node.certificates().client()


@pytest.mark.slow
def test_pending_at_the_deadline_is_exit_code_3(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    node.timeout = 1.0
    program = node.program()
    ran = program.credential()
    assert ran.exit_code == ExitCode.PENDING
    assert_one_sentence(ran)
    assert "NodeAttestationPolicy" in ran.log
    admin.grant(admin.next())
    program.credential().certificate()
    assert len(created(api)) == 1


def test_a_watch_that_ends_early_is_taken_up_again(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    with asking(node.certificates(clock=Clock()).client) as answer:
        found = admin.next()
        for disturb in (api.close_watches, api.compact, api.restart):
            disturb()
        admin.grant(found)
        assert answer.result().pair.key
    assert len(created(api)) == 1


# Gone, or replaced.


def test_a_request_that_is_deleted_is_followed_by_a_new_key_behind_a_pause(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.supply_bootstrap()
    failure, first = refused(node, admin, admin.delete)
    assert isinstance(failure, Gone)
    assert failure.exit_code == ExitCode.DENIED
    with pytest.raises(Denied, match="was deleted"):
        node.certificates().client()
    assert len(created(api)) == 1
    node.time.pass_by(60)
    with asking(node.certificates().client) as answer:
        second = admin.next()
        admin.grant(second)
        answer.result()
    assert key_of(first) != key_of(second)


def test_a_request_that_was_deleted_between_two_runs_is_not_sent_again(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    admin.delete(admin.next())
    with pytest.raises(Gone, match="was deleted"):
        node.certificates().client()
    assert len(created(api)) == 1


@pytest.mark.parametrize("change", ["content", "uid"])
def test_another_object_in_its_place_is_not_believed(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece, change: str
) -> None:
    """Even with a certificate for the node's own key in it."""
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    found = admin.next()
    admin.grant(found)
    issued = api.get("certificatesigningrequests", found["metadata"]["name"])
    if change == "content":
        issued["spec"]["request"] = base64.b64encode(b"something else").decode()
    else:
        issued["metadata"]["uid"] = "another"
    admin.plant(issued)
    with pytest.raises(Gone):
        node.certificates().client()
    assert node.store.pair(Purpose.CLIENT) is None


def test_another_object_in_its_place_while_it_is_watched_is_not_believed(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.supply_bootstrap()

    def replace(found: Manifest) -> None:
        issued = api.get("certificatesigningrequests", found["metadata"]["name"])
        issued["spec"]["request"] = base64.b64encode(b"something else").decode()
        admin.plant(issued)

    failure, _ = refused(node, admin, replace)
    assert isinstance(failure, Gone)


def test_an_object_of_its_name_that_was_there_before_is_passed_by(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """Nobody can guess the name; should somebody know it all the same, the node takes another key and goes on."""
    node.supply_bootstrap()

    def takes_the_name(method: str, path: str, user: User) -> None:
        if method == "POST" and user.name.startswith("system:bootstrap:"):
            api.on_request(None)
            api.faults.inject("POST */certificatesigningrequests", status=409)

    api.on_request(takes_the_name)
    with asking(node.certificates().client) as answer, admin.granting() as granted:
        answer.result()
    assert len(granted) == 1
    assert [entry.status for entry in created(api)] == [409, 201]


# What was issued is not what was asked for.


def another_key(admin: ClusterAdmin, found: Manifest) -> bytes:
    return admin.sign(found, public_key=load_key(new_key()).public_key())


def another_name(admin: ClusterAdmin, found: Manifest) -> bytes:
    return admin.sign(found, node_name="somebody-else")


def another_use(admin: ClusterAdmin, found: Manifest) -> bytes:
    return admin.sign(found, usages=(Purpose.SERVING,))


def run_out(admin: ClusterAdmin, found: Manifest) -> bytes:
    """By the node's clock, too, which stands still since the test began."""
    return admin.sign(found, not_after=int(time.time()) - 600)


def not_valid_yet(admin: ClusterAdmin, found: Manifest) -> bytes:
    return admin.sign(found, not_before=int(time.time()) + 3600)


def of_year_0(admin: ClusterAdmin, found: Manifest) -> bytes:
    """The library takes it, and stumbles when it is asked for the time."""
    der = ssl.PEM_cert_to_DER_cert(admin.sign(found, not_after=_IN_2051).decode("ascii"))
    assert der.count(b"\x18\x0f2051") == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(b"\x18\x0f2051", b"\x18\x0f0000")).encode("ascii")


def of_the_authority(admin: ClusterAdmin, found: Manifest) -> bytes:
    return admin.api.ca_certificate_pem


@pytest.mark.parametrize(
    "make",
    [another_key, another_name, another_use, run_out, not_valid_yet, of_year_0, of_the_authority],
    ids=lambda one: one.__name__,
)
def test_a_certificate_that_was_not_asked_for_is_refused(
    admin: ClusterAdmin, node: Node, make: Callable[[ClusterAdmin, Manifest], bytes]
) -> None:
    node.supply_bootstrap()
    failure, _ = refused(node, admin, lambda found: admin.issue(found, make(admin, found)))
    assert isinstance(failure, Denied)
    assert " is unusable: " in str(failure)
    assert node.store.pair(Purpose.CLIENT) is None
    # The credential is still there for the next try, which has a new key and comes behind a pause.
    assert node.store.bootstrap() is not None
    attempt = node.store.attempt(Purpose.CLIENT)
    assert attempt.pending is None
    assert attempt.pause is not None


@pytest.mark.parametrize("make", [another_key, another_name, another_use, run_out], ids=lambda one: one.__name__)
def test_such_a_certificate_does_not_touch_the_former_pair(
    admin: ClusterAdmin, node: Node, make: Callable[[ClusterAdmin, Manifest], bytes]
) -> None:
    former = node.put_pair(**DUE)
    with asking(node.certificates().client) as answer:
        found = admin.next()
        admin.issue(found, make(admin, found))
        assert answer.result().pair.encode() == former.encode()
    stored = node.store.pair(Purpose.CLIENT)
    assert stored is not None
    assert stored.encode() == former.encode()
    assert "is unusable:" in node.reports[-1]


@pytest.mark.parametrize("certificate", [b"garbage", b"\xff" * 100, b"-----BEGIN CERTIFICATE-----\n", b"x" * 100_000])
def test_garbage_instead_of_a_certificate_is_refused(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, certificate: bytes
) -> None:
    node.supply_bootstrap()

    def decide(found: Manifest) -> None:
        admin.approve(found)
        current = api.get("certificatesigningrequests", found["metadata"]["name"])
        current["status"]["certificate"] = base64.b64encode(certificate).decode()
        admin.plant(current)

    failure, _ = refused(node, admin, decide)
    assert isinstance(failure, Denied)
    assert node.store.pair(Purpose.CLIENT) is None


def test_what_stands_beside_a_good_certificate_is_not_stored(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        found = admin.next()
        good = admin.sign(found)
        assert certificate_request(found).is_signature_valid
        admin.issue(found, b"# whoever reads this\n" + good)
        assert answer.result().pair.certificate == good.decode()


# Who cannot be asked, or does not answer as asked.


def in_program(node: Node, **changes: Any) -> Ran:
    """Run the plugin in a process, for at most a second of waiting."""
    node.timeout = 1.0
    return node.program(**changes).credential()


@pytest.mark.slow
def test_an_api_server_that_is_not_there_is_exit_code_4(node: Node) -> None:
    path = node.configuration.bootstrap_kubeconfig
    node.supply_bootstrap()
    path.write_text(path.read_text().replace(node.api.server, f"https://127.0.0.1:{closed_port()}"))
    ran = in_program(node)
    assert ran.exit_code == ExitCode.UNAVAILABLE
    assert_one_sentence(ran)
    assert "Connection refused" in ran.log


@pytest.mark.slow
def test_an_api_server_of_another_authority_is_exit_code_5_and_sees_no_token(api: EmbeddedAPI, node: Node) -> None:
    token = node.supply_bootstrap()
    connection = api.token_connection(token)
    foreign = type(connection)(connection.server, Issuer.new().certificate_pem, bearer_token=token)
    node.configuration.bootstrap_kubeconfig.write_text(kubeconfig_of(foreign, "workload"))
    ran = in_program(node)
    assert ran.exit_code == ExitCode.UNTRUSTED
    assert_one_sentence(ran)
    assert "is there a machine in the middle?" in ran.log
    assert len(api.requests) == 0


@pytest.mark.slow
@pytest.mark.parametrize("token", ["unknown", "run out"])
def test_a_token_that_is_not_accepted_is_exit_code_6(api: EmbeddedAPI, node: Node, token: str) -> None:
    node.supply_bootstrap("abcdef.0123456789abcdef" if token == "unknown" else api.bootstrap_token(-timedelta(hours=1)))
    ran = in_program(node)
    assert ran.exit_code == ExitCode.REFUSED
    assert_one_sentence(ran)
    assert "The bootstrap token has expired or was removed" in ran.log


@pytest.mark.slow
def test_a_token_that_may_not_ask_is_exit_code_6(api: EmbeddedAPI, node: Node) -> None:
    api.add_token("of-somebody", User("somebody", ("system:authenticated",)))
    node.supply_bootstrap("of-somebody")
    ran = in_program(node)
    assert ran.exit_code == ExitCode.REFUSED
    assert_one_sentence(ran)
    assert "do kubeadm's grants for it exist?" in ran.log


def test_a_refused_credential_is_not_tried_again_at_once_but_another_is(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.supply_bootstrap("abcdef.0123456789abcdef")
    with pytest.raises(CredentialRefused):
        node.certificates().client()
    api.requests.clear()
    with pytest.raises(CredentialRefused, match="no retry before"):
        node.certificates().client()
    assert len(api.requests) == 0
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer, admin.granting():
        answer.result()


def test_a_token_that_runs_out_while_its_request_waits_leaves_the_request_to_the_next(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    token = node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    api.delete("secrets", f"bootstrap-token-{token.partition('.')[0]}", "kube-system")
    with pytest.raises(CredentialRefused):
        node.certificates().client()
    node.supply_bootstrap()
    admin.grant(admin.next())
    node.certificates().client()
    assert len(created(api)) == 1


@pytest.fixture
def unknown(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The node does not know its provider ID, and whom it asks does not answer; how often it asked."""
    tries: list[str] = []

    def provider_id(self: KeyedMACAgentPlugin) -> str:
        tries.append(self.configured_provider_id)
        raise EvidenceUnavailable("the metadata service does not answer")

    monkeypatch.setattr(KeyedMACAgentPlugin, "provider_id", provider_id)
    node.changes["provider_id"] = ""
    return tries


def test_a_provider_id_that_is_not_found_out_is_not_asked_for_without_end(
    api: EmbeddedAPI, node: Node, unknown: list[str]
) -> None:
    """client-go runs the plugin for every request of the kubelet."""
    node.supply_bootstrap()
    with pytest.raises(NoEvidence, match="the metadata service does not answer"):
        node.certificates().client()
    with pytest.raises(NoEvidence, match=r"metadata service does not answer .*\(failed once; no retry before 20"):
        node.certificates().client()
    assert len(unknown) == 1
    node.time.pass_by(10)
    with pytest.raises(NoEvidence):
        node.certificates().client()
    assert len(unknown) == 2
    assert asked(api) == []


def test_neither_is_it_for_a_serving_certificate(node: Node, unknown: list[str]) -> None:
    node.put_pair(age=100, left=DAY)
    node.serve()
    for _ in range(2):
        with pytest.raises(NoEvidence, match="the metadata service does not answer"):
            node.certificates().serving()
    assert len(unknown) == 1


def test_a_provider_id_that_is_not_found_out_does_not_give_up_what_is_under_way(
    api: EmbeddedAPI,
    admin: ClusterAdmin,
    node: Node,
    nobody_decides: Timepiece,
    unknown: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node.supply_bootstrap()
    with monkeypatch.context() as known:
        known.setattr(KeyedMACAgentPlugin, "provider_id", lambda self: self.configured_provider_id)
        with pytest.raises(StillPending):
            node.certificates().client()
    with pytest.raises(NoEvidence):
        node.certificates().client()
    admin.grant(admin.next())
    node.time.pass_by(10)
    monkeypatch.setattr(KeyedMACAgentPlugin, "provider_id", lambda self: self.configured_provider_id)
    assert node.certificates().client().pair.key
    assert len(created(api)) == 1


@pytest.mark.slow
def test_an_attestor_without_evidence_is_exit_code_9_and_asks_nothing(api: EmbeddedAPI, node: Node) -> None:
    node.supply_bootstrap()
    ran = in_program(node, provider="insecure", providerID="", settings={})
    assert ran.exit_code == ExitCode.NO_EVIDENCE
    assert_one_sentence(ran)
    assert "--provider-id" in ran.log
    assert len(created(api)) == 0


@pytest.mark.slow
def test_a_store_locked_by_another_process_is_exit_code_10(api: EmbeddedAPI, node: Node) -> None:
    node.supply_bootstrap()
    node.store.open()
    with node.store.lock(Purpose.CLIENT, timeout=0):
        ran = in_program(node)
    assert ran.exit_code == ExitCode.STORE
    assert_one_sentence(ran)
    assert "held" in ran.log
    assert len(asked(api)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", ["not installed", "settings", "bootstrap kubeconfig"])
def test_what_is_configured_wrongly_is_exit_code_2(api: EmbeddedAPI, node: Node, what: str) -> None:
    node.supply_bootstrap()
    if what == "bootstrap kubeconfig":
        node.configuration.bootstrap_kubeconfig.write_text("token: abcdef.0123456789abcdef")
    changes: dict[str, dict[str, Any]] = {"not installed": {"provider": "tpm-2"}, "settings": {"settings": {}}}
    ran = in_program(node, **changes.get(what, {}))
    assert ran.exit_code == ExitCode.CONFIGURATION
    assert_one_sentence(ran)
    assert "0123456789abcdef" not in ran.log
    assert len(created(api)) == 0


def test_each_failure_has_an_exit_code_of_its_own() -> None:
    kinds = (ApiUnavailable, UntrustedServer, CredentialRefused, Denied, NoCredential, StillPending, StoreUnusable)
    assert len({kind.exit_code for kind in kinds}) == len(kinds)


def test_a_server_that_is_busy_to_the_end_is_unavailable(api: EmbeddedAPI, node: Node) -> None:
    node.supply_bootstrap()
    api.faults.inject("POST */certificatesigningrequests", status=429, retry_after_seconds=1, times=None)
    with pytest.raises(ApiUnavailable, match="answered 429"):
        node.certificates().client()
    assert node.time.elapsed <= node.timeout
    api.faults.clear()
    pending = node.store.attempt(Purpose.CLIENT).pending
    assert pending is not None
    assert {entry.status for entry in created(api)} == {429}


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_request_that_the_server_rejects_is_denied(api: EmbeddedAPI, node: Node, status: int) -> None:
    node.supply_bootstrap()
    api.faults.inject("POST */certificatesigningrequests", status=status)
    with pytest.raises(Denied, match=f"answered {status}"):
        node.certificates().client()
    pause = node.store.attempt(Purpose.CLIENT).pause
    assert pause is not None
    assert pause.until == node.time.now + 60


def test_a_stored_key_that_cannot_be_read_is_given_up(
    admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    """Whatever happened to the file: nobody has a certificate for it."""
    node.supply_bootstrap()
    with pytest.raises(StillPending):
        node.certificates().client()
    attempt = node.store.attempt(Purpose.CLIENT)
    assert attempt.pending is not None
    node.store.save_attempt(Purpose.CLIENT, replace(attempt, pending=replace(attempt.pending, key="no key")))
    with pytest.raises(StillPending):
        node.certificates().client()
    fresh = node.store.attempt(Purpose.CLIENT).pending
    assert fresh is not None
    assert fresh.name != attempt.pending.name
