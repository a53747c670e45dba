"""Whatever a TPM refuses: a person is told what to do, and the TPM is left as it was."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from attestors.contract import EvidenceUnavailable
from attestors.wire.evidence import Evidence
from tests.support.software_tpm import LIBRARY_MISSING, PORT_TAKEN, START_ATTEMPTS, SoftwareTPM, listens

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from tpm2_pytss.constants import ESYS_TR, TPMA_NV

from attestors.tpm.node import connection, device, endorsement_key
from attestors.tpm.node import deadline as timeout
from attestors.tpm.node.plugin import agent_plugin_from
from tests.integration.tpm import node_tpm
from tests.integration.tpm.interposer import FLUSH_CONTEXT, QUOTE, Interposer, Rule, extend_command
from tests.integration.tpm.node_tpm import agent_plugin, challenge_for, challenge_text, field, left_behind, request
from tests.support.processes import ProgramFailed, Programs, free_port, free_ports

pytestmark = pytest.mark.slow

OBJECT_MEMORY = 0x902
RETRY, YIELDED, TESTING = 0x922, 0x908, 0x90A

Interpose = Callable[[Rule], Interposer]


@pytest.fixture
def challenge(software_tpm: SoftwareTPM) -> str:
    return challenge_for(agent_plugin(software_tpm).gather(request()))


@pytest.fixture
def interpose(software_tpm: SoftwareTPM, monkeypatch: pytest.MonkeyPatch) -> Interpose:
    """Every connection of the agent plugin goes through an interposer with the given rule."""

    def install(rule: Rule) -> Interposer:
        interposer = Interposer(software_tpm.tcti, rule)
        monkeypatch.setattr(connection, "_open", lambda tcti: interposer)
        return interposer

    return install


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "BUSY_SECONDS", 0.1)


def answered(software_tpm: SoftwareTPM, challenge: str) -> Evidence:
    return agent_plugin(software_tpm).gather(request(challenge))


def commands(software_tpm: SoftwareTPM, challenge: str, interpose: Interpose) -> list[int]:
    """The command codes of an undisturbed answer."""
    interposer = interpose(lambda number, code: None)
    answered(software_tpm, challenge)
    return list(interposer.codes)


def fail_at(failing: int) -> Rule:
    return lambda number, code: OBJECT_MEMORY if number == failing else None


def test_nothing_is_left_loaded_whichever_command_fails(
    software_tpm: SoftwareTPM, challenge: str, interpose: Interpose
) -> None:
    codes = commands(software_tpm, challenge, interpose)
    assert codes.count(FLUSH_CONTEXT) >= 2
    for failing, code in enumerate(codes, start=1):
        if code == FLUSH_CONTEXT:
            continue  # then nobody can; below it is only busy
        interpose(fail_at(failing))
        with pytest.raises(EvidenceUnavailable, match="tcti device:/dev/tpmrm0") as raised:
            answered(software_tpm, challenge)
        assert str(raised.value).startswith("the TPM did not ")
        assert not left_behind(software_tpm), f"after command {failing} ({code:#x}) failed"


@pytest.mark.parametrize("busy", [RETRY, YIELDED, TESTING], ids=["retry", "yielded", "testing"])
def test_busy_tpm_is_asked_again(software_tpm: SoftwareTPM, challenge: str, interpose: Interpose, busy: int) -> None:
    """More often than the library does by itself, at every command, the flushes among them."""
    undisturbed = commands(software_tpm, challenge, interpose)
    refusals = 8
    interposer = interpose(lambda number, code: busy if number % (refusals + 1) else None)
    answered(software_tpm, challenge)
    assert interposer.codes[refusals :: refusals + 1] == undisturbed
    assert not left_behind(software_tpm)


@pytest.mark.usefixtures("impatient")
def test_a_tpm_that_stays_busy_is_reported(software_tpm: SoftwareTPM, challenge: str, interpose: Interpose) -> None:
    interpose(lambda number, code: RETRY if code == QUOTE else None)
    with pytest.raises(EvidenceUnavailable, match="the TPM did not quote its PCRs: it stayed busy: retry later"):
        answered(software_tpm, challenge)
    assert not left_behind(software_tpm)


@pytest.mark.usefixtures("impatient")
def test_a_tpm_that_goes_away_is_reported(own_tpm: SoftwareTPM, monkeypatch: pytest.MonkeyPatch) -> None:
    challenge = challenge_for(agent_plugin(own_tpm).gather(request()))

    def stop(number: int, code: int) -> None:
        if code == QUOTE:
            own_tpm.stop()

    monkeypatch.setattr(connection, "_open", lambda tcti: Interposer(own_tpm.tcti, stop))
    with pytest.raises(EvidenceUnavailable, match="the connection to it broke"):
        answered(own_tpm, challenge)
    monkeypatch.undo()
    own_tpm.start()
    assert not left_behind(own_tpm)
    answered(own_tpm, challenge)


def test_pcrs_that_change_meanwhile_are_quoted_again(
    software_tpm: SoftwareTPM, challenge: str, interpose: Interpose
) -> None:
    quotes = []

    def extend_before_the_first(number: int, code: int) -> None:
        if code == QUOTE:
            quotes.append(number)
            interposer.before = {QUOTE: extend_command(16)} if len(quotes) == 1 else {}

    interposer = interpose(extend_before_the_first)
    answer = answered(software_tpm, challenge)
    assert len(quotes) == 2
    assert hashlib.sha256(field(answer, "pcrValues")).digest() in field(answer, "quote")


def test_pcrs_that_always_change_are_reported(software_tpm: SoftwareTPM, challenge: str, interpose: Interpose) -> None:
    interposer = interpose(lambda number, code: None)
    interposer.before = {QUOTE: extend_command(16)}
    with pytest.raises(EvidenceUnavailable, match="changed during each of 5 attempts"):
        answered(software_tpm, challenge)
    assert interposer.codes.count(QUOTE) == 5
    assert not left_behind(software_tpm)


@pytest.mark.parametrize("choice", ["rsa-2048", "high-ecc-p384"])
@pytest.mark.parametrize("sizes", [(1, 1), (34, 256), (68, 258), (132, 512)], ids=str)
def test_a_malformed_challenge_is_reported(software_tpm: SoftwareTPM, choice: str, sizes: tuple[int, int]) -> None:
    blob, secret = (size.to_bytes(2, "big") + bytes([0x5A]) * size for size in sizes)
    with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
        agent_plugin(software_tpm, ek=choice).gather(request(challenge_text(blob, secret)))
    assert not left_behind(software_tpm)


def test_a_certificate_of_another_key_is_reported(own_tpm: SoftwareTPM) -> None:
    node_tpm.write_index(own_tpm, 0x01C00014, b"\x30certificate of another chip")
    with pytest.raises(EvidenceUnavailable, match=r"0x01c00014 is for another endorsement key .* the setting ek"):
        agent_plugin(own_tpm, ek="high-ecc-p256").gather(request())
    assert not left_behind(own_tpm)


def test_a_too_large_certificate_is_reported(software_tpm: SoftwareTPM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endorsement_key, "MAXIMUM_CERTIFICATE_BYTES", 600)
    with pytest.raises(EvidenceUnavailable, match=r"0x01c00002 of the TPM holds \d+ bytes, more than the limit of 600"):
        agent_plugin(software_tpm).gather(request())


def test_index_that_was_never_written_counts_as_none(own_tpm: SoftwareTPM) -> None:
    node_tpm.write_index(own_tpm, 0x01C0000A, b"", size=600)
    assert "ekCertificate" not in agent_plugin(own_tpm, ek="ecc-p256").gather(request()).fields


CLOSED = {
    "password": (TPMA_NV.AUTHREAD | TPMA_NV.NO_DA, "it requires a password of the index or the owner"),
    "policy": (TPMA_NV.POLICYREAD | TPMA_NV.NO_DA, "it requires a password of the index or the owner"),
    "lockout": (TPMA_NV.AUTHREAD, "it is locked after too many wrong passwords"),
    "read-lock": (node_tpm.EVERYBODY_READS | TPMA_NV.READ_STCLEAR, "or it is locked until the next boot"),
}


@pytest.mark.parametrize("how", CLOSED)
def test_an_index_with_a_password(own_tpm: SoftwareTPM, how: str) -> None:
    """A certificate is needed, and the message says what is in the way; of the authorities' it only may be."""
    reading, sentence = CLOSED[how]
    for index in (0x01C0000A, 0x01C00100):
        password = b"of its own" if how == "password" else b""
        node_tpm.write_index(own_tpm, index, b"x" * 8, reading=reading, password=password)
        with node_tpm.opened(own_tpm) as esys:
            if how == "read-lock":
                esys.nv_read_lock(esys.tr_from_tpmpublic(index), auth_handle=ESYS_TR.OWNER)
            if how == "lockout":
                esys.dictionary_attack_parameters(0, 1000, 1000)
    first = agent_plugin(own_tpm).gather(request())
    assert "ekCertificateChain" not in first.fields
    agent_plugin(own_tpm).gather(request(challenge_for(first)))
    with pytest.raises(EvidenceUnavailable, match=f"did not read NV index 0x01c0000a: .*{sentence}"):
        agent_plugin(own_tpm, ek="ecc-p256").gather(request())
    assert not left_behind(own_tpm)


def test_chain_that_is_too_large_is_left_out(own_tpm: SoftwareTPM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endorsement_key, "MAXIMUM_CHAIN_BYTES", 20)
    node_tpm.write_index(own_tpm, 0x01C00100, b"a" * 15)
    node_tpm.write_index(own_tpm, 0x01C00101, b"b" * 15)
    assert field(agent_plugin(own_tpm).gather(request()), "ekCertificateChain") == b"a" * 15


KEYED_HASH = bytes.fromhex("0008000b00000000000000100000")


@pytest.mark.parametrize(
    ("index", "content"),
    [(0x01C0000C, b"no TPMT_PUBLIC"), (0x01C0000C, KEYED_HASH), (0x01C0000B, b"n" * 300)],
    ids=["no template", "template of no asymmetric key", "nonce that is too long"],
)
def test_an_unusable_template_is_reported(own_tpm: SoftwareTPM, index: int, content: bytes) -> None:
    node_tpm.write_index(own_tpm, index, content)
    with pytest.raises(EvidenceUnavailable, match=r"for the endorsement key ecc-p256 that cannot be used; .* ek"):
        agent_plugin(own_tpm, ek="ecc-p256").gather(request())
    assert not left_behind(own_tpm)


def test_a_password_of_the_endorsement_hierarchy_is_reported(own_tpm: SoftwareTPM) -> None:
    challenge = challenge_for(agent_plugin(own_tpm).gather(request()))
    with node_tpm.opened(own_tpm) as esys:
        esys.hierarchy_change_auth(ESYS_TR.ENDORSEMENT, b"hunter2")
    for text in ("", challenge):
        with pytest.raises(EvidenceUnavailable, match=r"endorsement hierarchy has a password.*tpm2_changeauth"):
            agent_plugin(own_tpm).gather(request(text))
    assert not left_behind(own_tpm)


def test_a_disabled_hierarchy_is_reported(own_tpm: SoftwareTPM) -> None:
    with node_tpm.opened(own_tpm) as esys:
        esys.hierarchy_control(ESYS_TR.PLATFORM, ESYS_TR.ENDORSEMENT, False)
    with pytest.raises(EvidenceUnavailable, match="endorsement hierarchy is disabled: restart the machine"):
        agent_plugin(own_tpm).gather(request())
    own_tpm.restart()
    agent_plugin(own_tpm).gather(request())


def test_lockout_does_not_keep_a_node_out(own_tpm: SoftwareTPM) -> None:
    """Somebody guessed passwords until the TPM locked itself: neither key has one."""
    with node_tpm.opened(own_tpm) as esys:
        esys.dictionary_attack_parameters(0, 1000, 1000)  # no failure is allowed: locked at once
    agent = agent_plugin(own_tpm)
    agent.gather(request(challenge_for(agent.gather(request()))))


def test_a_full_tpm_is_reported(own_tpm: SoftwareTPM) -> None:
    with node_tpm.opened(own_tpm) as esys:
        for _ in range(3):
            esys.create_primary(None, "ecc")
    full = len(left_behind(own_tpm))
    with pytest.raises(EvidenceUnavailable, match="tpm2_flushcontext --transient-object"):
        agent_plugin(own_tpm).gather(request())
    assert len(left_behind(own_tpm)) == full == 3


@pytest.fixture
def tpm_1_2() -> Iterator[str]:
    """The TCTI of a software TPM of the older kind."""
    if shutil.which("swtpm") is None:
        pytest.skip("swtpm is not installed: run tests/provision/provision.sh tpm")
    with Programs("node-attestation-tpm-") as programs:
        yield f"swtpm:host=127.0.0.1,port={_start_tpm_1_2(programs)}"


def _start_tpm_1_2(programs: Programs) -> int:
    """Start one on free ports; somebody else may take them first."""
    command = ["swtpm", "socket", "--tpmstate", f"dir={programs.folder}", "--flags", "not-need-init,startup-clear"]
    for attempt in range(1, START_ATTEMPTS + 1):
        port = free_ports(2)
        addresses = [("--server", port), ("--ctrl", port + 1)]
        options = [word for option, at in addresses for word in (option, f"type=tcp,port={at},bindaddr=127.0.0.1")]
        program = programs.start("swtpm", [*command, *options])
        try:
            program.wait_ready(partial(listens, port + 1))
            program.check_running()
        except ProgramFailed as failure:
            programs.stop(program)
            if attempt == START_ATTEMPTS or PORT_TAKEN not in str(failure):
                raise
        else:
            return port
    raise AssertionError("unreachable: the last attempt returns or raises")


def test_a_tpm_1_2_is_reported(tpm_1_2: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=r"it is a TPM 1\.2, and a TPM 2.0 is needed"):
        agent_plugin_from({"tcti": tpm_1_2}).gather(request())


@pytest.mark.parametrize(
    ("tcti", "sentence"),
    [
        (f"swtpm:host=127.0.0.1,port={free_port()}", "no TPM answers at swtpm:host=127.0.0.1,port="),
        ("swtpm:nonsense", "no TPM answers at swtpm:nonsense"),
        ("tabrmd:bus_type=none", r"no TPM answers at .* \(libtss2-tcti-tabrmd\)"),
        ("device:/nonexistent", "no TPM at /nonexistent: enable the TPM 2.0 .* or set another tcti"),
        ("device:/dev/null", "TPM did not|no TPM answers"),
    ],
    ids=["nobody listens", "no address", "no resource manager", "no device", "a device that is no TPM"],
)
def test_a_wrong_address_is_reported(tcti: str, sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EvidenceUnavailable, match=sentence):
        agent_plugin_from({"tcti": tcti}).gather(request())
    assert capfd.readouterr().err == ""


def test_a_machine_without_a_tpm_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "DEFAULT_DEVICES", (tmp_path / "tpmrm0", tmp_path / "tpm0"))
    with pytest.raises(EvidenceUnavailable, match=r"no TPM found: there is neither .*tpmrm0 nor .*tpm0"):
        agent_plugin_from({}).gather(request())
