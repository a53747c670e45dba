"""A certificate is renewed with itself while it is valid, once a fifth of its life is left, and never afterwards."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from attestors.wire.names import Purpose
from attestors.wire.statement import NotPinned, PinnedController
from authenticator.flow.bootstrap import import_bootstrap
from authenticator.model.attempt import Attempt
from authenticator.model.cluster import BearerToken, Cluster
from authenticator.model.exec_credential import encode_credential
from authenticator.model.failures import ApiUnavailable, ExitCode, NoCredential, StillPending
from authenticator.model.plan import expiration
from authenticator.model.renewal_state import RenewalState
from authenticator.model.trust_state import Change, TrustState, pair_digest
from authenticator.store.store import KnownCluster
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import BlockingClient
from signer.testing.fixtures import embedded_api
from tests.integration.authenticator.fixtures import (
    DAY,
    LONG_AGO,
    ClusterAdmin,
    Node,
    Timepiece,
    asked,
    asking,
    created,
    evidence_of,
)
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.node_program import V1, NodeProgram, exec_info
from tests.support.statements import IDENTITY, authority, bundle_of, controller
from tests.unit.authenticator.api.servers import closed_port

LIFE: Final = 10_000
DUE: Final[dict[str, Any]] = {"age": LIFE - LIFE // 5, "left": LIFE // 5}
"""A pair of which exactly a fifth is left."""
FRESH: Final[dict[str, Any]] = {"age": LIFE - LIFE // 5 - 1, "left": LIFE // 5 + 1}
"""A second before that."""


# While there is nothing to do.


@pytest.mark.slow
def test_a_valid_certificate_is_printed_at_once_without_a_call(api: EmbeddedAPI, node: Node) -> None:
    pair = node.put_pair(age=LONG_AGO, left=DAY)
    ran = node.program().credential()
    assert ran.exit_code == ExitCode.DONE
    assert ran.log == ""
    expected = encode_credential(V1, certificate=pair.certificate, key=pair.key, expiration=0)
    assert ran.output.split('"expirationTimestamp"')[0] == expected.split('"expirationTimestamp"')[0]
    assert len(api.requests) == 0


def test_a_second_before_a_fifth_is_left_no_call_is_made(api: EmbeddedAPI, node: Node) -> None:
    pair = node.put_pair(**FRESH)
    use = node.certificates().client()
    assert (use.pair.key, use.until) == (pair.key, node.time.now + 1)
    assert len(api.requests) == 0
    assert expiration(use, node.time.now) == use.until


def test_a_valid_certificate_wants_neither_attestor_nor_bootstrap_kubeconfig(api: EmbeddedAPI, node: Node) -> None:
    """A broken attestor or file must not keep a kubelet from its certificate."""
    node.put_pair(**FRESH)
    node.changes["provider"] = "not-installed"
    node.configuration.bootstrap_kubeconfig.write_text("garbage")
    assert node.certificates().client().until == node.time.now + 1
    assert len(api.requests) == 0


def test_client_go_asks_again_within_the_hour(node: Node) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    assert expiration(node.certificates().client(), node.time.now) == node.time.now + 3600


# Renewing.


def test_a_certificate_of_which_a_fifth_is_left_is_renewed_with_itself(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    former = node.put_pair(**DUE)
    with asking(node.certificates().client) as answer:
        found = admin.next()
        certificate = admin.grant(found)
        use = answer.result()
    assert found["spec"]["username"] == f"system:node:{node.name}"
    assert (use.pair.certificate, use.pair.key != former.key) == (certificate.decode(), True)
    assert {entry.user for entry in asked(api)} == {f"system:node:{node.name}"}
    stored = node.store.pair(Purpose.CLIENT)
    assert stored is not None
    assert stored.encode() == use.pair.encode()
    assert node.store.attempt(Purpose.CLIENT) == Attempt()
    assert use.until == use.pair.renewal


@pytest.mark.parametrize("purpose", Purpose)
def test_a_certificate_from_before_a_change_of_cas_is_renewed_at_once(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, purpose: Purpose
) -> None:
    """Its evidence names the CA that is first now; the controller waits for that."""
    node.serve()
    former = node.put_pair(age=LONG_AGO, left=DAY)
    names = [x509.DNSName(node.name), x509.IPAddress(ip_address("192.0.2.10"))]
    if purpose is Purpose.SERVING:
        former = node.put_pair(age=LONG_AGO, left=DAY, purpose=purpose, names=names)
    node.store.save_trust_state(TrustState(sequence=1, superseded=((purpose, pair_digest(former)),)))
    both = Cluster(node.cluster.server, bundle_of(authority("new")) + node.cluster.certificate_authority)
    node.store.save_known_cluster(KnownCluster(both, ""))
    certificates = node.certificates()
    with asking(certificates.client if purpose is Purpose.CLIENT else certificates.serving) as answer:
        found = admin.next()
        admin.grant(found)
        use = answer.result()
    assert use.pair.key != former.key
    assert json.loads(evidence_of(found))["caCertHash"] == both.ca_cert_hash.text
    count = len(asked(api))
    assert certificates.client().pair.certificate
    if purpose is Purpose.SERVING:
        assert certificates.serving().pair.key == use.pair.key
    assert len(asked(api)) == count, "once"


def test_a_certificate_that_the_controller_has_renewed_is_renewed_at_once(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """Once: another certificate is not meant, whoever signed it."""
    node.serve()
    former = node.put_pair(age=LONG_AGO, left=DAY)
    now = int(node.time.clock().now())
    node.store.save_renewal_state(RenewalState(7, pair_digest(former), now + 60))
    certificates = node.certificates()
    assert certificates.client().pair.key == former.key, "not before its time"
    assert len(asked(api)) == 0
    node.time.pass_by(60)
    with asking(certificates.client) as answer:
        admin.grant(admin.next())
        use = answer.result()
    assert use.pair.key != former.key
    count = len(asked(api))
    assert certificates.client().pair.key == use.pair.key
    assert len(asked(api)) == count


def test_no_certificate_is_renewed_while_the_cas_are_being_changed(api: EmbeddedAPI, node: Node) -> None:
    """Which CA the running kubelet has read is unknown then."""
    former = node.put_pair(age=LIFE - 100, left=100)
    node.store.save_trust_state(TrustState(change=Change("", 1, (), 60)))
    use = node.certificates().client()
    assert (use.pair.key, "being changed" in use.overdue) == (former.key, True)
    assert len(asked(api)) == 0


def test_the_former_certificate_is_used_until_the_next_is_there(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    former = node.put_pair(**DUE)
    first = node.certificates().client()
    assert (first.pair.key, first.until) == (former.key, nobody_decides.now + 15)
    second = node.certificates().client()
    assert second.pair.key == former.key
    # Both waited for one and the same request, and not for long: a kubelet stands and waits.
    assert len(created(api)) == 1
    assert nobody_decides.elapsed <= 2 * 5 + 2
    admin.grant(admin.next())
    third = node.certificates().client()
    assert third.pair.key != former.key
    assert len(created(api)) == 1


def test_the_agent_waits_longer_for_a_renewal(node: Node, nobody_decides: Timepiece) -> None:
    node.put_pair(**DUE)
    node.certificates().client(timeout=18.0)
    assert 17 <= nobody_decides.elapsed <= 20


def test_the_answer_is_good_for_a_few_seconds_while_a_renewal_is_under_way(
    node: Node, nobody_decides: Timepiece
) -> None:
    node.put_pair(**DUE)
    use = node.certificates().client()
    assert expiration(use, nobody_decides.now) == nobody_decides.now + 15


def test_no_answer_outlives_the_certificate(node: Node, nobody_decides: Timepiece) -> None:
    former = node.put_pair(age=LIFE, left=10)
    use = node.certificates().client()
    assert use.until == former.not_after
    assert expiration(use, nobody_decides.now) <= former.not_after


@pytest.mark.parametrize("kind", ["Denied", "Failed"])
def test_a_renewal_that_is_refused_leaves_the_former_certificate(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, kind: str
) -> None:
    former = node.put_pair(**DUE)
    with asking(node.certificates().client) as answer:
        admin.decide(admin.next(), kind, "MachinePaused")
        use = answer.result()
    assert use.pair.encode() == former.encode()
    assert "MachinePaused" in "".join(node.reports)
    # A pause, but not beyond a quarter of what is left.
    assert node.time.now + 60 <= use.until <= node.time.now + 75
    api.requests.clear()
    assert node.certificates().client().until == use.until
    assert len(asked(api)) == 0


@pytest.mark.slow
def test_refused_renewals_are_tried_several_times_before_the_end(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    former = node.put_pair(**DUE)
    tries = 0
    with admin.deciding(lambda found: admin.decide(found, "Denied", "NodeNameMismatch")):
        while node.time.now < former.not_after:
            use = node.certificates().client()
            assert use.pair.key == former.key
            assert node.time.now < use.until <= former.not_after
            node.time.pass_by(use.until - node.time.now)
            tries += 1
    assert 6 <= tries <= 60
    with pytest.raises(NoCredential, match="expired at"):
        node.certificates().client()


def test_an_api_server_that_is_away_leaves_the_former_certificate(node: Node) -> None:
    former = node.put_pair(**DUE)
    away = Cluster(f"https://127.0.0.1:{closed_port()}", node.cluster.certificate_authority)
    use = node.certificates(cluster=away).client()
    assert use.pair.key == former.key
    assert use.until <= node.time.now + 15
    assert "not renewed" in node.reports[-1]


@pytest.mark.parametrize("change", [{"provider": "not-installed"}, {"settings": {}}])
def test_an_attestor_that_cannot_be_loaded_is_reported_when_needed(node: Node, change: dict[str, object]) -> None:
    node.put_pair(**DUE)
    node.changes |= change
    with pytest.raises(Exception, match="attestor") as caught:
        node.certificates().client()
    assert getattr(caught.value, "exit_code", None) == ExitCode.CONFIGURATION


def test_with_a_certificate_another_renewal_is_not_waited_for(api: EmbeddedAPI, node: Node) -> None:
    former = node.put_pair(**DUE)
    with node.store.lock(Purpose.CLIENT, timeout=0):
        use = node.certificates().client()
    assert (use.pair.key, use.until) == (former.key, node.time.now + 15)
    assert len(asked(api)) == 0


def test_the_cluster_that_client_go_names_is_asked_and_then_known(admin: ClusterAdmin, node: Node) -> None:
    """The kubelet's kubeconfig is where an operator changes the address; the store follows."""
    node.put_pair(**DUE)
    gone = Cluster("https://127.0.0.1:1", node.cluster.certificate_authority)
    node.store.save_known_cluster(KnownCluster(gone, "used"))
    with asking(node.certificates(cluster=node.cluster).client) as answer, admin.granting():
        answer.result()
    known = node.store.known_cluster()
    assert known is not None
    assert (known.cluster, known.used) == (node.cluster, "used")


def test_without_client_go_the_cluster_is_the_one_that_was_known_last(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.put_pair(**DUE)
    with asking(node.certificates().client) as answer, admin.granting():
        answer.result()
    assert len(created(api)) == 1


def test_the_insecure_attestor_never_renews(api: EmbeddedAPI, node: Node) -> None:
    node.changes |= {"provider": "insecure", "settings": {}}
    former = node.put_pair(age=LIFE, left=10)
    use = node.certificates().client()
    assert (use.pair.key, use.until) == (former.key, former.not_after)
    node.time.pass_by(10)
    with pytest.raises(NoCredential, match="expired at"):
        node.certificates().client()
    assert len(asked(api)) == 0


# The controller's part.


@pytest.mark.slow
def test_the_controller_renews(harness: Harness, tmp_path: Path) -> None:
    cluster = harness.cluster()
    cluster.add_machine("worker", provider_id=provider_id("worker"))
    harness.run()
    api = embedded_api(cluster)
    node = Node(tmp_path / "node", api, "worker")
    node.changes["settings"] = node_of(cluster, "worker").settings
    node.supply_bootstrap()
    first = node.certificates().client()
    pin = node.store.pin()
    assert isinstance(pin, PinnedController)
    assert (pin.cluster.namespace, pin.cluster.name) == (cluster.key.namespace, cluster.key.name)
    assert "statement" not in first.pair.encode(), "the kubelet gets the certificate alone"
    node.time.pass_by(first.pair.renewal - node.time.now)
    second = node.certificates().client()
    assert second.pair.key != first.pair.key
    assert node.store.pin() == pin
    users = [item["spec"]["username"] for item in api.objects("certificatesigningrequests")]
    assert sorted(user.rpartition(":")[0] for user in users) == ["system:bootstrap", "system:node"]


# When it has run out.


@pytest.mark.slow
def test_an_expired_certificate_is_reported_without_a_call(api: EmbeddedAPI, node: Node) -> None:
    node.put_pair(age=LIFE, left=-1)
    ran = node.program().credential()
    assert (ran.exit_code, ran.output) == (ExitCode.NO_CREDENTIAL, "")
    assert "expired at" in ran.log
    assert "Supply a new bootstrap kubeconfig" in ran.log
    assert len(api.requests) == 0


def test_at_the_very_second_of_its_end_it_has_run_out(api: EmbeddedAPI, node: Node) -> None:
    node.put_pair(age=LIFE, left=0)
    with pytest.raises(NoCredential):
        node.certificates().client()
    assert len(asked(api)) == 0


def test_the_bootstrap_credential_that_was_used_is_no_way_back(api: EmbeddedAPI, node: Node) -> None:
    token = node.supply_bootstrap()
    node.put_pair(age=LIFE, left=-1, used=node.digest(token))
    with pytest.raises(NoCredential, match="one that was used before does not count"):
        node.certificates().client()
    assert node.store.bootstrap() is None
    assert len(asked(api)) == 0


def test_a_new_bootstrap_credential_is_a_way_back(admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(age=LIFE, left=-1, used=node.digest("abcdef.0123456789abcdef"))
    token = node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        found = admin.next()
        admin.grant(found)
        use = answer.result()
    assert found["spec"]["username"] == f"system:bootstrap:{token.partition('.')[0]}"
    assert use.pair.key != former.key
    known = node.store.known_cluster()
    assert known is not None
    assert known.used == node.digest(token)


def test_a_new_bootstrap_credential_is_left_alone_while_the_certificate_is_valid(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """A renewal proves more than a token does."""
    node.put_pair(**DUE)
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        found = admin.next()
        admin.grant(found)
        answer.result()
    assert found["spec"]["username"] == f"system:node:{node.name}"
    assert node.store.bootstrap() is None


def test_a_bootstrap_kubeconfig_of_another_cluster_sets_the_former_pair_aside(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    former = node.put_pair(**DUE)
    serving = node.put_pair(age=LONG_AGO, left=DAY, purpose=Purpose.SERVING)
    node.store.save_pin(PinnedController(IDENTITY, controller().public, 1))
    node.store.save_trust_state(TrustState(sequence=7))
    with EmbeddedAPI(seed_kubeadm=True) as other:
        node.supply_bootstrap(api=other)
        with BlockingClient(other.connection()) as client, asking(node.certificates().client) as answer:
            there = ClusterAdmin(other, client)
            found = there.next()
            there.grant(found)
            use = answer.result()
    assert found["spec"]["username"].startswith("system:bootstrap:")
    assert use.pair.key not in (former.key, serving.key)
    assert len(asked(api)) == 0
    folder = node.store.folder
    assert (folder / "kubelet-authenticator-client.former.pem").read_text() == former.encode()
    assert (folder / "kubelet-authenticator-serving.former.pem").read_text() == serving.encode()
    assert node.store.pair(Purpose.SERVING) is None
    assert node.store.pin() == NotPinned(), "the other cluster may have another controller"
    assert node.store.trust_state() == TrustState()


def test_a_certificate_of_the_former_cluster_that_comes_late_is_not_used(admin: ClusterAdmin, node: Node) -> None:
    """While one waits for the former cluster, `prepare` takes in the next one's credential."""
    node.supply_bootstrap()
    with EmbeddedAPI(seed_kubeadm=True) as other:
        with asking(node.certificates().client) as answer:
            found = admin.next()
            token = node.supply_bootstrap(api=other)
            with node.store.bootstrap_lock():
                import_bootstrap(node.configuration, node.store, now=node.time.now)
            admin.grant(found)
            failure = answer.exception()
        assert isinstance(failure, StillPending)
        assert "another cluster" in str(failure)
        assert node.store.pair(Purpose.CLIENT) is None
        copied = node.store.bootstrap()
        assert copied is not None
        assert copied.credential == BearerToken(token)
        with BlockingClient(other.connection()) as client, asking(node.certificates().client) as answer:
            there = ClusterAdmin(other, client)
            there.grant(there.next())
            answer.result()


def test_the_same_token_at_a_corrected_address_is_taken_in(admin: ClusterAdmin, node: Node) -> None:
    token = node.supply_bootstrap()
    path = node.configuration.bootstrap_kubeconfig
    right = path.read_text()
    path.write_text(right.replace("https://127.0.0.1:", "https://127.0.0.2:"))
    with pytest.raises(ApiUnavailable, match=r"127\.0\.0\.2"):
        node.certificates().client()
    path.write_text(right)
    with asking(node.certificates().client) as answer, admin.granting():
        answer.result()
    known = node.store.known_cluster()
    assert known is not None
    assert known.used == node.digest(token)


def test_a_bootstrap_kubeconfig_of_the_same_cluster_at_another_address_sets_nothing_aside(
    admin: ClusterAdmin, node: Node
) -> None:
    """A cluster is its CA, wherever its API server is."""
    node.put_pair(**DUE)
    node.supply_bootstrap()
    path = node.configuration.bootstrap_kubeconfig
    path.write_text(path.read_text().replace("https://127.0.0.1:", "https://localhost:"))
    with asking(node.certificates().client) as answer, admin.granting():
        answer.result()
    assert not (node.store.folder / "kubelet-authenticator-client.former.pem").exists()


@pytest.mark.slow
def test_a_program_that_runs_beside_it_gets_the_same_certificate(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """kubelet, kubeadm and agent ask at once: one key, one request."""
    node.supply_bootstrap()
    programs: list[NodeProgram] = [node.program() for _ in range(3)]
    with admin.granting() as granted:
        running = [program.start("credential", environment=exec_info()) for program in programs]
        outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({output.split('"expirationTimestamp"')[0] for output in outputs}) == 1
    assert len(granted) == len(created(api)) == 1
