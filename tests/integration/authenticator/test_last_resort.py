"""A kubelet whose plugin fails cannot talk to its API server: a valid certificate is printed whatever goes wrong."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import Final

import pytest
import yaml
from cryptography import x509

from attestors.wire.names import Purpose
from authenticator.api.server import ApiServer
from authenticator.flow.bootstrap import import_bootstrap
from authenticator.model.attempt import Attempt
from authenticator.model.cluster import BearerToken
from authenticator.model.failures import ExitCode, InvalidConfiguration, StillPending
from signer.testing.api import EmbeddedAPI
from signer.testing.api.authorities import Issuer
from tests.integration.authenticator.fixtures import DAY, LONG_AGO, ClusterAdmin, Node, asked, asking, created
from tests.support.agent_plugin import run_with, start_with
from tests.support.node_program import NodeProgram, exec_info
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load

HANGING = """
import sys, time
from authenticator.flow.evidence import Attestation
Attestation.of = classmethod(lambda *arguments: time.sleep(20))
from authenticator.cli import main
sys.exit(main(sys.argv[1:]))
"""
BROKEN = HANGING.replace("time.sleep(20)", "1 / 0")
DEFAULTS = """
import sys
from authenticator import stored_credential
stored_credential.DEFAULT_CONFIGURATION_FILE, stored_credential.DEFAULT_STORE = sys.argv[1:3]
from authenticator.cli import main
sys.exit(main(sys.argv[3:]))
"""
"""With a configuration file and a store of the test's in place of the machine's."""


def printed(
    program: NodeProgram, code: str = "from authenticator.cli import main; import sys; sys.exit(main(sys.argv[1:]))"
) -> x509.Certificate:
    """The certificate that the program prints, run as ``code``."""
    command = [sys.executable, "-c", code, "credential", "--config", str(program.configuration)]
    environment = program.environment(exec_info())
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert "the stored certificate is still valid" in done.stderr
    return certificate_in(done.stdout)


def certificate_in(output: str) -> x509.Certificate:
    """The certificate of an ExecCredential, with nothing around it."""
    return x509.load_pem_x509_certificate(json.loads(output)["status"]["clientCertificateData"].encode())


@pytest.fixture
def program(node: Node) -> NodeProgram:
    node.put_pair(age=9000, left=1000)  # a tenth of its life
    return node.program()


def stored(program: NodeProgram) -> x509.Certificate:
    return x509.load_pem_x509_certificate(program.client_pair.read_bytes())


@pytest.mark.slow
def test_an_attestor_that_is_not_installed(program: NodeProgram) -> None:
    program.configure(provider="no-such-attestor")
    assert printed(program) == stored(program)


@pytest.mark.slow
def test_a_configuration_that_is_wrong(program: NodeProgram) -> None:
    program.configure(nodeName="-")
    assert printed(program) == stored(program)


# The configuration file, which says where the store is.

BROKEN_FILES = {
    "empty": "",
    "cut short": '{"provider": "keyed-mac", "sto',
    "a comma too many": '{"provider": "keyed-mac",, "store": "ELSEWHERE"}',
    "a repeated key": '{"provider": "keyed-mac", "provider": "tpm", "store": "ELSEWHERE"}',
    "a number as store": '{"store": 7}',
    "a zero byte in the store": '{"store": "/\\u0000"}',
    "half of a character in the store": '{"store": "/\\ud800"}',
    "nested too deep": "[" * 60_000,
    "too large": '{"store": "ELSEWHERE"}' + " " * 65_536,
}


def by_default(program: NodeProgram, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin, with the test's file and store as the default ones, where ``arguments`` name no others."""
    command = [sys.executable, "-c", DEFAULTS, str(program.configuration), str(program.store), "credential", *arguments]
    environment = program.environment(exec_info())
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def assert_still_valid(done: subprocess.CompletedProcess[str], program: NodeProgram) -> None:
    """The stored certificate was printed, and what is wrong was said."""
    assert done.returncode == 0, done.stderr
    assert "the stored certificate is still valid" in done.stderr
    assert certificate_in(done.stdout) == stored(program)


@pytest.fixture
def fresh(node: Node) -> NodeProgram:
    node.put_pair(age=LONG_AGO, left=DAY)
    return node.program()


@pytest.mark.slow
@pytest.mark.parametrize("content", BROKEN_FILES.values(), ids=[*BROKEN_FILES])
def test_a_configuration_file_that_is_broken(fresh: NodeProgram, content: str) -> None:
    """Even a certificate that nothing is to be done about is in a store that only this file names."""
    fresh.configuration.write_text(content.replace("ELSEWHERE", str(fresh.folder / "elsewhere")))
    assert_still_valid(by_default(fresh), fresh)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "missing"])
def test_a_configuration_file_that_is_none(fresh: NodeProgram, kind: str) -> None:
    fresh.configuration.unlink()
    if kind == "folder":
        fresh.configuration.mkdir()
    assert_still_valid(by_default(fresh, "--config", str(fresh.configuration)), fresh)


@pytest.mark.slow
def test_a_store_that_is_named_is_the_only_one(fresh: NodeProgram) -> None:
    """Whoever says where the certificate is does not get another one."""
    elsewhere = fresh.folder / "elsewhere"
    fresh.configure(store=str(elsewhere), nodeName="-")
    assert (by_default(fresh).returncode, by_default(fresh).stdout) == (2, "")
    fresh.configuration.write_text("{")
    assert by_default(fresh, "--store", str(elsewhere)).stdout == ""
    fresh.store.rename(elsewhere)
    done = by_default(fresh, "--store", str(elsewhere))
    assert done.returncode == 0
    assert certificate_in(done.stdout).not_valid_after_utc.timestamp() > time.time()
    assert by_default(fresh).stdout == ""


@pytest.mark.slow
def test_a_default_store_is_looked_at_like_any_other(node: Node, fresh: NodeProgram) -> None:
    """Not a certificate that anybody may have put there, of another key, or that ran out."""
    fresh.configuration.write_text("{")
    fresh.store.chmod(0o777)
    assert (by_default(fresh).returncode, by_default(fresh).stdout) == (2, "")
    fresh.store.chmod(0o755)
    other = node.put_pair(age=LONG_AGO, left=DAY, purpose=Purpose.SERVING)
    whole = fresh.client_pair.read_text()
    fresh.client_pair.write_text(whole.partition("-----BEGIN PRIVATE KEY-----")[0] + other.key)
    assert (by_default(fresh).returncode, by_default(fresh).stdout) == (2, "")
    node.put_pair(age=9000, left=-1)
    assert (by_default(fresh).returncode, by_default(fresh).stdout) == (2, "")


# The attestor.


@pytest.mark.slow
@pytest.mark.parametrize("code", [HANGING, BROKEN], ids=["hangs", "fails"])
def test_an_attestor_with_a_defect(program: NodeProgram, code: str) -> None:
    assert printed(program, code) == stored(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster", "bootstrap"])
def test_a_damaged_file_of_the_store(program: NodeProgram, name: str) -> None:
    (program.store / f"kubelet-authenticator-{name}.json").write_text("{")
    assert printed(program) == stored(program)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["half", "folder"])
def test_a_bootstrap_kubeconfig_that_cannot_be_read_does_not_keep_it_from_being_renewed(
    admin: ClusterAdmin, program: NodeProgram, kind: str
) -> None:
    former = stored(program)
    if kind == "half":
        program.bootstrap_kubeconfig.write_text("apiVersion: v1\nkind: Conf")
    else:
        program.bootstrap_kubeconfig.mkdir()
    with admin.granting():
        done = run_with(program, "")
    assert certificate_in(done.stdout) == stored(program) != former
    assert (
        f"the bootstrap credential is not copied: bootstrap kubeconfig {program.bootstrap_kubeconfig}: " in done.stderr
    )


def test_an_unreadable_bootstrap_kubeconfig_is_reported_when_needed(node: Node) -> None:
    node.put_pair(age=9000, left=-1)
    node.configuration.bootstrap_kubeconfig.write_text("apiVersion: v1\nkind: Conf")
    with pytest.raises(InvalidConfiguration, match="bootstrap kubeconfig"):
        node.certificates().client()


@pytest.mark.slow
def test_but_not_one_that_ran_out_and_none_of_another_key(node: Node, program: NodeProgram) -> None:
    program.configure(provider="no-such-attestor")
    other = node.put_pair(age=LONG_AGO, left=DAY, purpose=Purpose.SERVING)
    certificate = program.client_pair.read_text().partition("-----BEGIN PRIVATE KEY-----")[0]
    program.client_pair.write_text(certificate + other.key)
    assert program.credential().exit_code != 0
    node.put_pair(age=9000, left=-1)
    assert program.credential().exit_code != 0


def test_another_user_s_store_is_not_printed(program: NodeProgram) -> None:
    program.store.chmod(0o777)
    assert program.credential().exit_code == 10


# What attestors leave to others: their output, and their threads.

CHATTY: Final = """
    import ctypes, subprocess
    print("in Python")
    os.write(1, b"to the descriptor\\n")
    subprocess.run(["echo", "by a program"], check=True)
    ctypes.CDLL(None).printf(b"kept by C until the end\\n")
"""
LEFT: Final = """
    from concurrent.futures import ThreadPoolExecutor
    threading.Thread(target=threading.Event().wait).start()
    ThreadPoolExecutor(1).submit(threading.Event().wait)
"""
"""Two threads that wait for ever, and that Python would wait for."""


@pytest.mark.slow
def test_what_an_attestor_prints_is_not_in_the_first_credential(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    with admin.granting():
        done = run_with(node.program(), CHATTY)
    assert certificate_in(done.stdout) == stored(node.program())
    for said in ("in Python", "to the descriptor", "by a program", "kept by C until the end"):
        assert said in done.stderr


@pytest.mark.slow
def test_what_an_attestor_prints_is_not_in_a_renewed_credential(admin: ClusterAdmin, program: NodeProgram) -> None:
    former = stored(program)
    with admin.granting():
        done = run_with(program, CHATTY)
    assert certificate_in(done.stdout) == stored(program) != former
    for said in ("in Python", "to the descriptor", "by a program"):
        assert said in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["credential", "request"])
def test_a_thread_does_not_delay_the_first_credential(admin: ClusterAdmin, node: Node, command: str) -> None:
    node.supply_bootstrap()
    with admin.granting():
        done = run_with(node.program(), LEFT, command=command)
    assert done.returncode == 0, done.stderr
    assert node.store.pair(Purpose.CLIENT) is not None
    if command == "credential":
        assert certificate_in(done.stdout) == stored(node.program())


@pytest.mark.slow
def test_a_process_does_not_delay_the_first_credential(admin: ClusterAdmin, node: Node) -> None:
    """A kubelet reads stdout to its end. Of stderr it gives its own."""
    node.supply_bootstrap()
    gate, log = node.folder / "gate", node.folder / "log"
    forked = f"""
        if os.fork() == 0:
            for _ in range(9000):
                if Path({str(gate)!r}).exists():
                    break
                time.sleep(0.01)
            os._exit(0)
    """
    try:
        with admin.granting(), log.open("w") as stderr:
            done = run_with(node.program(), forked, stderr=stderr)
    finally:
        gate.touch()
    assert certificate_in(done.stdout) == stored(node.program())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "before", "code", "said"),
    [
        ("raise EvidenceUnavailable('no TPM')", "", ExitCode.NO_EVIDENCE, "no TPM"),
        ("raise ValueError('x')", "", ExitCode.NO_EVIDENCE, "failed with ValueError"),
        ("", "from attestors.wire import request\nrequest.encode = None", 1, "object is not callable"),
    ],
    ids=["no evidence", "a defect of its own", "a defect of ours"],
)
def test_a_thread_does_not_delay_a_failure(node: Node, failure: str, before: str, code: int, said: str) -> None:
    node.supply_bootstrap()
    done = run_with(node.program(), f"{LEFT}\n    {failure}", before=before)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count(said) == 1


@pytest.mark.slow
def test_a_thread_does_not_delay_a_renewal(admin: ClusterAdmin, program: NodeProgram) -> None:
    former = stored(program)
    with admin.granting():
        done = run_with(program, LEFT)
    assert certificate_in(done.stdout) == stored(program) != former


@pytest.mark.slow
def test_a_thread_does_not_delay_a_stopped_agent(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    with start_with(node.program(), LEFT, command="agent") as agent, admin.granting():
        try:
            wait_until(lambda: node.store.pair(Purpose.CLIENT) is not None, "the certificate is stored")
            agent.send_signal(signal.SIGTERM)
            assert "Traceback" not in agent.communicate(timeout=60)[1]
        finally:
            agent.kill()
    assert agent.returncode == 0


# A pair that is no good although it is valid.


def test_a_pair_of_another_name_is_none_where_a_credential_is_supplied(admin: ClusterAdmin, node: Node) -> None:
    former = node.put_pair(age=LONG_AGO, left=DAY)
    node.changes["node_name"] = "renamed"
    node.supply_bootstrap()
    with node.store.bootstrap_lock():
        import_bootstrap(node.configuration, node.store, now=node.time.now)
    assert (node.store.folder / "kubelet-authenticator-client.former.pem").read_text() == former.encode()
    copied = node.store.bootstrap()
    assert copied is not None
    assert isinstance(copied.credential, BearerToken)


def test_a_server_that_answers_an_endless_uid_does_not_wedge_the_node(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ApiServer.create

    def lying(self: ApiServer, signing_request: dict[str, object]) -> dict[str, object]:
        found = create(self, signing_request)
        return found | {"metadata": found["metadata"] | {"uid": "u" * 600_000}}

    monkeypatch.setattr(ApiServer, "create", lying)
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer, admin.granting():
        answer.result()
    assert node.store.attempt(Purpose.CLIENT) == Attempt()
    assert len(created(api)) == 1


def test_a_certificate_that_comes_almost_run_out_is_not_renewed_at_every_call(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """A controller's clock behind, or lives so short: each renewal would cost an entry in the journal."""
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        now = int(time.time())
        admin.grant(admin.next(), not_before=now - 900, not_after=now + 100)
        answer.result()
    assert any("clock" in line for line in node.reports)
    api.requests.clear()
    use = node.certificates().client()
    assert use.until == node.time.now + 30
    assert len(asked(api)) == 0


def test_a_node_whose_clock_is_days_ahead_renews_ever_more_seldom(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """All that it gets is due at once. A fleet that was told the wrong time would ask without end."""
    node.put_pair(age=9 * DAY, left=DAY)
    due = node.time.now
    waits = []
    with admin.deciding(lambda found: admin.grant(found, not_before=due - 9 * DAY, not_after=due + DAY)):
        for _ in range(9):
            use = node.certificates().client()
            node.time.pass_by(node.certificates().client().until - node.time.now)
            waits.append(node.time.now)
            assert use.pair.not_after == due + DAY
    assert [later - earlier for earlier, later in pairwise([due, *waits])] == [
        *(30, 60, 120, 240, 480, 960, 1920),
        *(3600, 3600),
    ]
    assert len(created(api)) == len(waits)


def test_a_refused_pair_gives_way_to_a_new_credential(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    """What the API server no longer knows is no use, however long it is valid; until then it is left alone."""
    former = node.put_pair(age=9000, left=1000)
    api.faults.inject("POST */certificatesigningrequests", status=401)
    assert node.certificates().client().pair.encode() == former.encode()
    pause = node.store.attempt(Purpose.CLIENT).pause
    assert pause is not None
    assert pause.exit_code is ExitCode.REFUSED
    node.supply_bootstrap()
    with node.store.bootstrap_lock():
        import_bootstrap(node.configuration, node.store, now=node.time.now)
    assert node.store.pair(Purpose.CLIENT) is None
    with asking(node.certificates().client) as answer, admin.granting():
        assert answer.result().pair.key != former.key


def test_a_changed_bundle_makes_no_new_credential_of_a_used_one(admin: ClusterAdmin, node: Node) -> None:
    """A CA that is being rotated stands beside the next one; the token is as used up as before."""
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer, admin.granting():
        kept = answer.result().pair
    path = node.configuration.bootstrap_kubeconfig
    document = safe_load(path.read_text())
    held = document["clusters"][0]["cluster"]
    both = Issuer.new().certificate_pem + base64.b64decode(held["certificate-authority-data"])
    held["certificate-authority-data"] = base64.b64encode(both).decode()
    path.write_text(yaml.safe_dump(document))
    with node.store.bootstrap_lock():
        import_bootstrap(node.configuration, node.store, now=node.time.now)
    assert node.store.bootstrap() is None
    stored_pair = node.store.pair(Purpose.CLIENT)
    assert stored_pair is not None
    assert stored_pair.encode() == kept.encode()


def test_a_serving_certificate_of_a_cluster_that_was_left_meanwhile_is_not_stored(
    admin: ClusterAdmin, node: Node
) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    node.serve(addresses=["192.0.2.10"])
    with asking(node.certificates().serving) as answer:
        found = admin.next()
        node.store.set_aside(Purpose.CLIENT)
        admin.grant(found)
        assert isinstance(answer.exception(), StillPending)
    assert node.store.pair(Purpose.SERVING) is None
