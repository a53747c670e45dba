from __future__ import annotations

import hmac
import json
from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.names import Purpose, SignerName
from authenticator.model.attempt import (
    Attempt,
    Pause,
    Sent,
    Step,
    UnreadableAttempt,
    decode_attempt,
    encode_attempt,
    pause_after,
    pause_in_force,
    request_name,
    times,
)
from authenticator.model.failures import ExitCode
from tests.unit.authenticator.builders import SUBJECT, key_pem, pause, pending, secret_line

NOW = 1_767_323_045
HOUR = 3600
SIGNER = SignerName(Purpose.CLIENT, "keyed-mac")
FULL = Attempt(
    pending(
        subject=replace(SUBJECT, dns_names=("worker-1",), ip_addresses=("192.0.2.7", "2001:db8::7")),
        step=Step.ANSWER,
        sent=Sent.YES,
        uid="u-1",
        asker="0123456789abcdef ",
        trust_version=7,
        tried_versions=("v1", "v2"),
    ),
    pause(credential="d" * 64, exit_code=ExitCode.REFUSED, failures=3),
)


# The request's name


def test_the_name_is_a_mac_under_the_private_key() -> None:
    message = b"node-attestation CSR name v1"
    for part in (b"cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac", b"first", b"v1"):
        message += len(part).to_bytes(8, "big") + part
    expected = hmac.digest(b"key", message, "sha256").hex()[:40]
    assert request_name(b"key", SIGNER, Step.FIRST, "v1") == f"node-attestation-{expected}"


def test_every_request_has_a_name_of_its_own() -> None:
    names = {
        request_name(b"key", SIGNER, Step.FIRST, "v1"),
        request_name(b"other key", SIGNER, Step.FIRST, "v1"),
        request_name(b"key", SignerName(Purpose.SERVING, "keyed-mac"), Step.FIRST, "v1"),
        request_name(b"key", SignerName(Purpose.CLIENT, "tpm"), Step.FIRST, "v1"),
        request_name(b"key", SIGNER, Step.ANSWER, "v1"),
        request_name(b"key", SIGNER, Step.FIRST, "v2"),
    }
    assert len(names) == 6
    assert all(len(name) == 57 for name in names)


# Pauses


def again(before: Pause | None, exit_code: ExitCode = ExitCode.DENIED, *, jitter: float = 0.0) -> Pause:
    return pause_after(before, exit_code=exit_code, message="no", credential="d", now=NOW, jitter=jitter)


@pytest.mark.parametrize(
    ("exit_code", "seconds"),
    [
        (ExitCode.DENIED, 60),
        (ExitCode.REFUSED, 10),
        (ExitCode.NO_EVIDENCE, 10),
        (ExitCode.UNAVAILABLE, 10),
        (ExitCode.PENDING, 10),
        (ExitCode.UNTRUSTED, 60),
        (ExitCode.UNEXPECTED, 60),
    ],
)
def test_the_first_pause(exit_code: ExitCode, seconds: int) -> None:
    assert again(None, exit_code) == Pause(NOW + seconds, 1, exit_code, "no", "d")


def test_every_pause_is_twice_as_long_up_to_an_hour() -> None:
    found: Pause | None = None
    lengths = []
    for number in range(1, 10):
        found = again(found)
        assert found.failures == number
        lengths.append(found.until - NOW)
    assert lengths == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_pauses_stay_an_hour_for_ever() -> None:
    assert again(pause(failures=10**9, credential="d")).until == NOW + HOUR


def test_twelve_doublings_are_enough_for_the_shortest() -> None:
    lengths = [again(pause(failures=n, credential="d"), ExitCode.REFUSED).until - NOW for n in (8, 9, 12, 13, 14)]
    assert lengths == [2560, 3600, 3600, 3600, 3600]


def test_another_credential_begins_anew() -> None:
    assert again(pause(failures=7, credential="another")) == again(None)


def test_jitter_adds_up_to_a_quarter() -> None:
    assert again(None, jitter=0.5).until == NOW + 60 + 7
    assert again(None, jitter=1.0).until == NOW + 75
    assert again(pause(failures=99, credential="d"), jitter=1.0).until == NOW + HOUR + HOUR // 4


def test_a_pause_is_in_force_until_its_end() -> None:
    held = pause(until=NOW + 1, credential="d")
    assert pause_in_force(held, credential="d", now=NOW)
    assert not pause_in_force(held, credential="d", now=NOW + 1)
    assert not pause_in_force(None, credential="d", now=NOW)
    assert not pause_in_force(None, credential="", now=NOW)


def test_another_credential_ends_a_pause() -> None:
    assert not pause_in_force(pause(until=NOW + 1, credential="d"), credential="e", now=NOW)


def test_a_clock_that_once_ran_far_ahead_is_no_pause() -> None:
    """No pause is longer than the one that this many refusals bring, with all its jitter."""
    assert pause_in_force(pause(until=NOW + 75), credential="", now=NOW)
    assert not pause_in_force(pause(until=NOW + 76), credential="", now=NOW)
    assert pause_in_force(pause(until=NOW + HOUR + HOUR // 4, failures=99), credential="", now=NOW)
    assert not pause_in_force(pause(until=NOW + HOUR + HOUR // 4 + 1, failures=99), credential="", now=NOW)


# The file


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(),
        FULL,
        Attempt(pending()),
        Attempt(pause=pause()),
        Attempt(pause=pause(until=0)),
        Attempt(pause=pause(until=253402300799)),
    ],
)
def test_reads_back_what_it_writes(attempt: Attempt) -> None:
    assert decode_attempt(encode_attempt(attempt)) == attempt


def test_the_format_stays() -> None:
    """A release finds what the former one was about."""
    assert json.loads(encode_attempt(FULL)) == {
        "format": 1,
        "pending": {
            "subject": {
                "provider": "keyed-mac",
                "node_name": "worker-1",
                "provider_id": "test:///worker-1",
                "ca_cert_hash": "sha256:" + "0f" * 32,
                "dns_names": ["worker-1"],
                "ip_addresses": ["192.0.2.7", "2001:db8::7"],
            },
            "key": key_pem(7),
            "step": "answer",
            "evidence_version": "v1",
            "tried_versions": ["v1", "v2"],
            "name": "node-attestation-0123456789",
            "request": "cGxhbnRlZCByZXF1ZXN0",
            "sent": "yes",
            "uid": "u-1",
            "asker": "0123456789abcdef ",
            "trust_version": 7,
        },
        "pause": {
            "until": FULL.pause.until if FULL.pause else 0,
            "failures": 3,
            "exit_code": 6,
            "message": "no Machine has this provider ID",
            "credential": "d" * 64,
        },
    }
    assert (Step.FIRST.value, Sent.NO.value, Sent.MAYBE.value) == ("first", "no", "maybe")


def test_the_file_is_lines_for_a_person() -> None:
    assert encode_attempt(Attempt()) == '{\n "format": 1\n}\n'


def changed(*path: str, value: Any = None, without: bool = False) -> str:
    """The full attempt with another value at ``path``, or nothing there."""
    document = json.loads(encode_attempt(FULL))
    place = document
    for name in path[:-1]:
        place = place[name]
    if without:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document)


FIELDS = [
    *(("pending", name) for name in json.loads(encode_attempt(FULL))["pending"]),
    *(("pending", "subject", name) for name in json.loads(encode_attempt(FULL))["pending"]["subject"]),
    *(("pause", name) for name in json.loads(encode_attempt(FULL))["pause"]),
]
OPTIONAL = [("pending", "uid"), ("pending", "asker"), ("pending", "trust_version")]
"""Older versions did not write the last two."""


def refuse(text: str) -> None:
    with pytest.raises(UnreadableAttempt, match=r"^it is not an attempt of this program's format$"):
        decode_attempt(text)


@pytest.mark.parametrize("path", [("format",), *FIELDS], ids="-".join)
def test_nothing_may_be_missing(path: tuple[str, ...]) -> None:
    if path in OPTIONAL:
        found = decode_attempt(changed(*path, without=True)).pending
        assert found is not None
        assert not getattr(found, path[-1])
    else:
        refuse(changed(*path, without=True))


@pytest.mark.parametrize("path", [("pending",), ("pause",), ("pending", "subject"), *FIELDS], ids="-".join)
def test_nothing_may_be_null(path: tuple[str, ...]) -> None:
    refuse(changed(*path, value=None))


@pytest.mark.parametrize("path", [("more",), ("pending", "more"), ("pending", "subject", "more"), ("pause", "more")])
def test_nothing_may_be_added(path: tuple[str, ...]) -> None:
    refuse(changed(*path, value="x"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 2),
        (("format",), "1"),
        (("pending", "step"), "second"),
        (("pending", "sent"), True),
        (("pending", "key"), ["x"]),
        (("pending", "name"), 7),
        (("pending", "trust_version"), "7"),
        (("pending", "trust_version"), -1),
        (("pending", "trust_version"), True),
        (("pending", "tried_versions"), "v1"),
        (("pending", "tried_versions"), [1]),
        (("pending", "tried_versions"), ["v1", None]),
        (("pending", "subject", "provider"), 7),
        (("pending", "subject", "ca_cert_hash"), ["x"]),
        (("pending", "subject", "dns_names"), "worker-1"),
        (("pending", "subject", "ip_addresses"), [7]),
        (("pause", "until"), "1"),
        (("pause", "until"), 1.5),
        (("pause", "until"), True),
        (("pause", "until"), -1),
        (("pause", "until"), 253402300800),
        (("pause", "failures"), 0),
        (("pause", "failures"), -1),
        (("pause", "failures"), 1.0),
        (("pause", "failures"), True),
        (("pause", "exit_code"), 13),
        (("pause", "exit_code"), "7"),
    ],
)
def test_another_value_is_refused(path: tuple[str, ...], value: Any) -> None:
    refuse(changed(*path, value=value))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"format"', "{}", "[" * 100_000, '{"format": ' + "9" * 5000]
)
def test_what_is_no_attempt_is_refused(text: str) -> None:
    refuse(text)


def test_a_file_that_is_cut_off_is_refused() -> None:
    text = encode_attempt(FULL).rstrip("}\n ")
    for length in range(0, len(text), 7):
        refuse(text[:length])


def test_one_failure_is_a_pause() -> None:
    assert decode_attempt(changed("pause", "failures", value=1)).pause is not None


def test_a_refusal_holds_nothing_of_the_file() -> None:
    with pytest.raises(UnreadableAttempt) as refused:
        decode_attempt(changed("pending", "step", value=key_pem(7)))
    assert refused.value.__suppress_context__
    assert secret_line(key_pem(7)) not in str(refused.value)


def test_nothing_shows_the_key_or_the_request() -> None:
    for shown in (repr(FULL), str(FULL), repr(FULL.pending)):
        assert secret_line(key_pem(7)) not in shown
        assert "cGxhbnRlZCByZXF1ZXN0" not in shown
        assert "node-attestation-0123456789" in shown


@pytest.mark.parametrize(("count", "said"), [(1, "once"), (2, "2 times"), (0, "0 times")])
def test_how_often(count: int, said: str) -> None:
    assert times(count) == said
