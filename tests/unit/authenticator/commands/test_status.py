from __future__ import annotations

import io
import json
import sys
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from attestors.wire.certificate_request import node_subject
from attestors.wire.names import Purpose
from attestors.wire.statement import PinnedController
from authenticator import commands
from authenticator.commands.status import _span
from authenticator.configuration import Given, configure
from authenticator.model.attempt import Attempt, Sent, Step
from authenticator.model.failures import ExitCode
from authenticator.model.renewal_state import RenewalState
from authenticator.model.trust_state import Change, Direction, Rejection, TrustState, pair_digest
from authenticator.store.store import KnownCluster
from tests.support.full_disk import run_on_full_disk
from tests.support.no_reader import run_without_reader
from tests.support.statements import IDENTITY, controller
from tests.unit.authenticator.builders import (
    MACHINE_KEY,
    NODE,
    NOW,
    PROVIDER_ID,
    SERVER,
    SERVING,
    TOKEN,
    bootstrap,
    cluster,
    key_pem,
    pair,
    pair_with_left,
    pause,
    pending,
    secret_line,
)
from tests.unit.authenticator.commands.conftest import Node

DAY = timedelta(days=1)
NAMES = [x509.DNSName(NODE), x509.IPAddress(ip_address("192.0.2.7"))]


def text(node: Node, expected: ExitCode) -> list[str]:
    with node.unchanged():
        code, output, log = node.run("status")
    assert (code, log) == (expected, "")
    return output.splitlines()


def document(node: Node, expected: ExitCode) -> dict[str, Any]:
    with node.unchanged():
        code, output, log = node.run("status", "--output", "json")
    assert (code, log) == (expected, "")
    found: dict[str, Any] = json.loads(output)
    return found


def keep(node: Node, left: timedelta, purpose: Purpose = Purpose.CLIENT, **changes: Any) -> None:
    node.store.open()
    node.store.save_pair(purpose, pair_with_left(NOW, left, **changes))


def test_an_empty_store(node: Node) -> None:
    assert text(node, ExitCode.NO_CREDENTIAL) == [
        "node         worker-1",
        "attestor     keyed-mac",
        f"store        {node.store.folder}",
        "client       no certificate",
        f"next         there is no credential: supply a new bootstrap kubeconfig as {node.bootstrap_kubeconfig}",
    ]
    supply = f"supply a new bootstrap kubeconfig as {node.bootstrap_kubeconfig}"
    assert document(node, ExitCode.NO_CREDENTIAL) == {
        "nodeName": "worker-1",
        "provider": "keyed-mac",
        "providerProblem": "",
        "store": str(node.store.folder),
        "server": "",
        "certificates": {},
        "underWay": {},
        "refused": {},
        "trust": {"sequence": 0, "changing": False, "rejected": None, "pinnedControllerKeys": []},
        "clientRenewal": None,
        "bootstrapCredential": False,
        "next": {"step": "Nothing", "message": f"there is no credential: {supply}"},
        "mismatches": [],
    }


def test_a_certificate_for_something_else(node: Node) -> None:
    keep(node, 9 * DAY)
    node.store.save_known_cluster(KnownCluster(cluster(), "", "keyed-mac", PROVIDER_ID))
    node.configure(providerID="test:///other", nodeName="worker-1.example")
    code, output, log = node.run("status")
    assert code == ExitCode.MISMATCH
    assert output.splitlines()[-3:] == [
        "mismatch     nodeName: stored worker-1, configured worker-1.example",
        f"mismatch     providerID: stored {PROVIDER_ID}, configured test:///other",
        "next         expire at 2026-01-11T03:04:05Z, in 9 days: under another node name, it is not renewed",
    ]
    assert [line.partition(":")[0] for line in log.splitlines()] == ["kubelet-authenticator"] * 2
    assert f"If worker-1.example is right, supply a new bootstrap kubeconfig as {node.bootstrap_kubeconfig}" in log
    code, output, _ = node.run("status", "--output", "json")
    assert code == ExitCode.MISMATCH
    found = json.loads(output)["mismatches"]
    assert [(one["property"], one["stored"], one["configured"]) for one in found] == [
        ("nodeName", "worker-1", "worker-1.example"),
        ("providerID", PROVIDER_ID, "test:///other"),
    ]
    assert found[0]["message"] in log


def test_one_that_expired_comes_first(node: Node) -> None:
    keep(node, -DAY)
    node.configure(nodeName="worker-1.example")
    assert node.run("status")[0] == ExitCode.NO_CREDENTIAL


def test_the_store_is_not_made(node: Node) -> None:
    text(node, ExitCode.NO_CREDENTIAL)
    assert not node.store.folder.exists()


def test_a_bootstrap_kubeconfig_that_is_there_comes_next(node: Node) -> None:
    node.bootstrap_kubeconfig.write_text("x")
    expected = f"import {node.bootstrap_kubeconfig}, unless its token was used before"
    assert text(node, ExitCode.NO_CREDENTIAL)[-1] == f"next         {expected}"
    assert document(node, ExitCode.NO_CREDENTIAL)["next"] == {"step": "Nothing", "message": expected}


def test_a_valid_certificate(node: Node) -> None:
    keep(node, 9 * DAY)
    node.store.save_known_cluster(KnownCluster(cluster(), "d" * 64))
    assert text(node, ExitCode.DONE)[3:] == [
        f"cluster      {SERVER}",
        "client       valid until 2026-01-11T03:04:05Z, 9 days (90 % of its life) left",
        "             CN=system:node:worker-1,O=system:nodes",
        "             serial 1267, issued by CN=kubernetes",
        "next         renew at 2026-01-09T03:04:05Z, in 7 days",
    ]
    found = document(node, ExitCode.DONE)
    assert found["server"] == SERVER
    assert found["certificates"] == {
        "client": {
            "file": str(node.store.pair_file(Purpose.CLIENT)),
            "subject": "CN=system:node:worker-1,O=system:nodes",
            "issuer": "CN=kubernetes",
            "serialNumber": "1267",
            "notBefore": "2026-01-01T03:04:05Z",
            "notAfter": "2026-01-11T03:04:05Z",
            "secondsLeft": 9 * 86400,
            "names": [],
        }
    }
    assert found["next"] == {"step": "Use", "message": "renew at 2026-01-09T03:04:05Z, in 7 days"}


def test_a_clock_that_is_behind(node: Node) -> None:
    """By its clock the certificate would be good for decades; the API server's shows another time."""
    keep(node, 10 * DAY + timedelta(minutes=5))
    assert text(node, ExitCode.DONE)[3].startswith("client       valid until 2026-01-12T03:09:05Z, 10 days (100 % ")
    keep(node, 10 * DAY + timedelta(minutes=5, seconds=1))
    assert (
        text(node, ExitCode.DONE)[3]
        == "client       not valid before 2026-01-02T03:09:06Z: is this node's clock right?"
    )


def test_a_certificate_that_is_due(node: Node) -> None:
    keep(node, 2 * DAY)
    lines = text(node, ExitCode.DONE)
    assert lines[3] == "client       valid until 2026-01-04T03:04:05Z, 2 days (20 % of its life) left"
    assert lines[-1] == "next         renew now: the kubelet's next call or the agent does it"
    assert document(node, ExitCode.DONE)["next"]["step"] == "Renew"


def test_a_certificate_that_cannot_be_renewed(node: Node) -> None:
    node.configure(provider="insecure", settings={})
    keep(node, DAY)
    assert text(node, ExitCode.DONE)[-1] == "next         expire at 2026-01-03T03:04:05Z, in 24 hours"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"provider": "no-such"}, "no-such"),
        ({"settings": {}}, "settings of attestor keyed-mac: "),
    ],
    ids=["not installed", "settings"],
)
@pytest.mark.parametrize("left", [9 * DAY, timedelta(0)], ids=["valid", "ran out"])
def test_an_attestor_that_cannot_be_loaded_hides_nothing_that_is_stored(
    node: Node, changes: dict[str, Any], problem: str, left: timedelta
) -> None:
    """That is when people look; and scripts must not take it for well, since nothing will be renewed."""
    keep(node, left)
    well = text(node, ExitCode.DONE if left else ExitCode.NO_CREDENTIAL)
    node.configure(**changes)
    lines = text(node, ExitCode.CONFIGURATION)
    assert lines[2].startswith("unusable     ")
    assert problem in lines[2]
    assert lines[3:] == well[2:]
    found = document(node, ExitCode.CONFIGURATION)
    assert f"unusable     {found['providerProblem']}" == lines[2]
    assert (found["certificates"]["client"]["secondsLeft"] > 0) is (left > timedelta(0))
    assert found["next"]["step"] == ("Use" if left else "Expired")


@pytest.mark.parametrize("ago", [timedelta(0), 3 * DAY], ids=["now", "long-ago"])
def test_a_certificate_that_ran_out(node: Node, ago: timedelta) -> None:
    keep(node, -ago)
    lines = text(node, ExitCode.NO_CREDENTIAL)
    when = (NOW - ago).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert lines[3] == f"client       expired at {when}, {'3 days' if ago else '0 s'} ago"
    assert lines[-1].startswith("next         the certificate expired: supply a new bootstrap kubeconfig as")
    found = document(node, ExitCode.NO_CREDENTIAL)
    assert found["certificates"]["client"]["secondsLeft"] == 0
    assert found["next"]["step"] == "Expired"


def test_a_bootstrap_credential(node: Node) -> None:
    node.store.open()
    node.store.save_bootstrap(bootstrap())
    assert text(node, ExitCode.NO_CREDENTIAL)[3:] == [
        "client       no certificate",
        "bootstrap    credential stored, until the first certificate replaces it",
        f"next         request the first certificate from {SERVER}",
    ]
    found = document(node, ExitCode.NO_CREDENTIAL)
    assert found["bootstrapCredential"] is True
    assert found["next"] == {"step": "Join", "message": f"request the first certificate from {SERVER}"}


def asker(node: Node) -> str:
    return configure(Given(config=str(node.folder / "configuration.json")), {}).asker


def test_a_pause(node: Node) -> None:
    node.store.open()
    node.store.save_bootstrap(bootstrap())
    node.store.save_attempt(
        Purpose.CLIENT, Attempt(pause=pause(credential=asker(node) + bootstrap().digest, failures=3))
    )
    lines = text(node, ExitCode.NO_CREDENTIAL)
    assert "refused      client, 3 times: no Machine has this provider ID" in lines
    assert lines[-1] == "next         pause until 2026-01-02T03:05:05Z, then retry"
    found = document(node, ExitCode.NO_CREDENTIAL)
    assert found["refused"] == {
        "client": {
            "message": "no Machine has this provider ID",
            "times": 3,
            "notBefore": "2026-01-02T03:05:05Z",
            "exitCode": 7,
        }
    }
    assert found["next"]["step"] == "KeepStill"


@pytest.mark.parametrize(
    ("step", "words"), [(Step.FIRST, "request"), (Step.ANSWER, "answer to a challenge")], ids=["first", "answer"]
)
def test_a_request_under_way(node: Node, step: Step, words: str) -> None:
    node.store.open()
    node.store.save_attempt(Purpose.CLIENT, Attempt(pending(step=step, sent=Sent.MAYBE)))
    lines = text(node, ExitCode.NO_CREDENTIAL)
    assert f"pending      client {words} node-attestation-0123456789" in lines
    assert document(node, ExitCode.NO_CREDENTIAL)["underWay"] == {
        "client": {
            "name": "node-attestation-0123456789",
            "step": step.value,
            "evidenceVersion": "v1",
            "sent": "maybe",
        }
    }


def test_a_serving_certificate(node: Node) -> None:
    keep(node, 9 * DAY)
    keep(node, 8 * DAY, Purpose.SERVING, names=NAMES, usages=[SERVING], key=1)
    node.store.save_attempt(Purpose.SERVING, Attempt(pending(), pause()))
    lines = text(node, ExitCode.DONE)
    assert "serving      valid until 2026-01-10T03:04:05Z, 8 days (80 % of its life) left" in lines
    assert "             for worker-1, 192.0.2.7" in lines
    assert "pending      serving request node-attestation-0123456789" in lines
    found = document(node, ExitCode.DONE)
    assert list(found["certificates"]) == ["client", "serving"]
    assert found["certificates"]["serving"]["names"] == ["worker-1", "192.0.2.7"]
    assert list(found["refused"]) == ["serving"]


def test_what_was_issued_commands_no_terminal(node: Node) -> None:
    """Issuer and names come from an API server, and root reads them."""
    hostile = "\x1b]0;owned\x07\x1b[2J\nnext         all is well\x9b31m"
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hostile)])
    keep(node, 9 * DAY, issuer=issuer)
    keep(node, 9 * DAY, Purpose.SERVING, names=[x509.DNSName("\x1b[31mred\r\n")], usages=[SERVING], issuer=issuer)
    lines = text(node, ExitCode.DONE)
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("next")] == lines[-1:]
    assert "all is well" not in lines[-1]
    found = document(node, ExitCode.DONE)["certificates"]["serving"]
    assert found["issuer"] == "CN= ]0\\;owned  [2J next         all is well 31m"
    assert found["names"] == ["[31mred"]


def test_a_serving_certificate_alone_is_no_credential(node: Node) -> None:
    keep(node, 9 * DAY, Purpose.SERVING, names=NAMES, usages=[SERVING])
    assert "client       no certificate" in text(node, ExitCode.NO_CREDENTIAL)


def test_a_node_with_a_long_name(node: Node) -> None:
    name = "n" * 80
    node.configure(nodeName=name)
    keep(node, 9 * DAY, subject=node_subject(name))
    assert f"             CN=system:node:{name},O=system:nodes" in text(node, ExitCode.DONE)


def test_a_store_that_cannot_be_read(node: Node) -> None:
    node.store.open()
    node.store.pair_file(Purpose.CLIENT).write_text(pair().encode()[:-9])
    code, output, log = node.run("status")
    assert (code, output) == (ExitCode.STORE, "")
    assert "does not end with one private key" in log


def test_a_store_that_others_may_write_in(node: Node) -> None:
    """Nothing else reads it, so it is of no use that a valid certificate is there."""
    keep(node, 9 * DAY)
    node.store.folder.chmod(0o777)
    code, output, log = node.run("status")
    assert (code, output) == (ExitCode.STORE, "")
    assert "must not be writable by others: chown and chmod go-w" in log


def test_a_file_in_the_place_of_the_store(node: Node) -> None:
    node.store.folder.parent.mkdir(parents=True, exist_ok=True)
    node.store.folder.write_text("")
    code, output, log = node.run("status")
    assert (code, output) == (ExitCode.STORE, "")
    assert "is not a folder: name another one with --store" in log


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_read_enough(tmp_path: Path, unbuffered: str) -> None:
    """As ``head`` does."""
    arguments = ["status", "--provider", "insecure", "--store", str(tmp_path)]
    assert run_without_reader("authenticator.cli", arguments, unbuffered=unbuffered) == (141, b"")


FULL_DISK = (
    b"kubelet-authenticator: standard output cannot be written: No space left on device: fix that, or write elsewhere\n"
)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output", ["text", "json"])
def test_output_to_a_disk_that_is_full(tmp_path: Path, output: str, unbuffered: str) -> None:
    arguments = ["status", "--provider", "insecure", "--store", str(tmp_path), "--output", output]
    assert run_on_full_disk("authenticator.cli", arguments, unbuffered=unbuffered) == (ExitCode.OUTPUT, FULL_DISK)
    everything = run_on_full_disk("authenticator.cli", arguments, unbuffered=unbuffered, log_too=True)
    assert everything == (ExitCode.OUTPUT, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_that_cannot_be_written_changes_no_exit_code(tmp_path: Path, unbuffered: str) -> None:
    """systemd goes by it."""
    arguments = ["agent", "--provider", "missing", "--store", str(tmp_path)]
    ended = run_on_full_disk("authenticator.cli", arguments, unbuffered=unbuffered, log_too=True)
    assert ended == (ExitCode.CONFIGURATION, b"")


def test_help_that_cannot_be_written() -> None:
    assert run_on_full_disk("authenticator.cli", ["--help"], unbuffered="") == (ExitCode.OUTPUT, FULL_DISK)


def test_a_terminal_that_has_ascii_alone(node: Node) -> None:
    node.configure(providerID=PROVIDER_ID, store=str(node.folder / "\N{SNOWMAN}"))
    written = io.BytesIO()
    node.monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    assert commands.run(["status", "--config", str(node.folder / "configuration.json")]) == ExitCode.NO_CREDENTIAL
    assert rb"/\u2603" in written.getvalue()


def test_streams_that_were_closed(node: Node) -> None:
    """What is told beside the output does not get into it; without output the exit code says enough."""
    written = io.StringIO()
    node.monkeypatch.setattr("sys.stderr", None)
    node.monkeypatch.setattr("sys.stdout", written)
    configuration = str(node.folder / "configuration.json")
    assert commands.run(["status", "--config", f"{configuration}.missing"]) == ExitCode.CONFIGURATION
    assert written.getvalue() == ""
    node.monkeypatch.setattr("sys.stdout", None)
    assert commands.run(["status", "--config", configuration]) == ExitCode.NO_CREDENTIAL
    for stream in (sys.stdout, sys.stderr):
        stream.close()


@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_shows_a_secret(node: Node, output: str) -> None:
    keep(node, 9 * DAY)
    keep(node, 9 * DAY, Purpose.SERVING, key=1)
    node.store.save_bootstrap(bootstrap())
    for purpose in Purpose:
        node.store.save_attempt(purpose, Attempt(pending(), pause()))
    planted = [TOKEN, TOKEN.partition(".")[2], MACHINE_KEY, "cGxhbnRlZCByZXF1ZXN0"]
    planted += [secret_line(key_pem(number)) for number in (0, 1, 7)]
    kept = b"".join(node.files().values()).decode() + (node.folder / "configuration.json").read_text()
    assert all(secret in kept for secret in planted)
    _, printed, log = node.run("status", "--output", output)
    assert [secret for secret in planted if secret in printed + log] == []
    assert "PRIVATE" not in printed


# Colours


def coloured(node: Node, *, terminal: bool, no_color: str | None = None) -> bool:
    node.monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    if no_color is not None:
        node.monkeypatch.setenv("NO_COLOR", no_color)
    return "\033[" in node.run("status")[1]


def test_colours_are_for_terminals_without_no_color(node: Node) -> None:
    assert coloured(node, terminal=True)
    assert not coloured(node, terminal=False)
    assert coloured(node, terminal=True, no_color="")
    assert not coloured(node, terminal=True, no_color="1")


def test_json_has_no_colours(node: Node) -> None:
    node.monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\033[" not in node.run("status", "--output", "json")[1]


@pytest.mark.parametrize(
    ("left", "colour"), [(9 * DAY, "32"), (2 * DAY, "33"), (timedelta(0), "31")], ids=["green", "yellow", "red"]
)
def test_a_colour_says_how_long_it_lives(node: Node, left: timedelta, colour: str) -> None:
    keep(node, left)
    node.monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    line = node.run("status")[1].splitlines()[3]
    assert line.startswith(f"\033[{colour}mclient")
    assert line.endswith("\033[0m")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 minutes"),
        (7199, "119 minutes"),
        (7200, "2 hours"),
        (172_799, "47 hours"),
        (172_800, "2 days"),
    ],
)
def test_spans(seconds: int, words: str) -> None:
    assert _span(seconds) == words


# Trust.


def test_a_rejected_statement_is_shown(node: Node) -> None:
    keep(node, 5 * DAY)
    since = int(NOW.timestamp())
    rejection = Rejection("KubeletFailed", "it does not answer", 7, since, 2, since + 600)
    node.store.save_trust_state(TrustState(sequence=6, rejection=rejection))
    lines = text(node, ExitCode.DONE)
    assert "trust        statement 6 is in force" in lines
    assert "trust        TrustRejected since 2026-01-02T03:04:05Z: KubeletFailed: it does not answer" in lines
    assert document(node, ExitCode.DONE)["trust"] == {
        "sequence": 6,
        "changing": False,
        "rejected": {
            "condition": "TrustRejected",
            "reason": "KubeletFailed",
            "message": "it does not answer",
            "sequence": 7,
            "since": "2026-01-02T03:04:05Z",
            "times": 2,
            "notBefore": "2026-01-02T03:14:05Z",
        },
        "pinnedControllerKeys": [],
    }


@pytest.mark.parametrize(
    ("direction", "shown"),
    [(Direction.FORWARD, "restarting the kubelet"), (Direction.BACK, "restoring the former CAs")],
)
def test_a_change_under_way_is_shown(node: Node, direction: Direction, shown: str) -> None:
    keep(node, 5 * DAY)
    node.store.save_trust_state(TrustState(change=Change("", 7, (), 60, direction)))
    assert f"trust        statement 7: {shown}" in text(node, ExitCode.DONE)
    assert document(node, ExitCode.DONE)["trust"]["changing"] is True


def test_a_renewal_that_the_controller_asked_for_is_shown(node: Node) -> None:
    keep(node, 5 * DAY)
    pair = node.store.pair(Purpose.CLIENT)
    assert pair is not None
    node.store.save_renewal_state(RenewalState(9, pair_digest(pair), 1_800_000_000))
    shown = "renewal      asked for by statement 9: the client certificate, at 2027-01-15T08:00:00Z"
    assert shown in text(node, ExitCode.DONE)
    assert document(node, ExitCode.DONE)["clientRenewal"] == {"sequence": 9, "due": "2027-01-15T08:00:00Z"}
    node.store.save_renewal_state(RenewalState(9, "another pair", 1_800_000_000))
    assert not [line for line in text(node, ExitCode.DONE) if line.startswith("renewal")], "it is done"
    assert document(node, ExitCode.DONE)["clientRenewal"] is None


def test_the_pinned_keys_are_shown(node: Node) -> None:
    keep(node, 5 * DAY)
    keys = controller("d", "c").public
    node.store.save_pin(PinnedController(IDENTITY, keys, 1))
    assert "controller   2 pinned keys" in text(node, ExitCode.DONE)
    assert document(node, ExitCode.DONE)["trust"]["pinnedControllerKeys"] == sorted(keys.by_hash())
