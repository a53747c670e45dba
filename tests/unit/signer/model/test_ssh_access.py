"""``spec.ssh`` of a policy: what turns SSH on, and what is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.audit.values import InvalidValue, read, write
from signer.model.floors import NO_FLOOR
from signer.model.policy import InvalidPolicy, Policy, parse_policy
from signer.model.ssh_access import (
    MasterSecretReference,
    NoMasterSecret,
    NoRotationPeriod,
    RevokedByPolicy,
    SSHOff,
    SSHSettings,
)

ON: Final = SSHSettings(timedelta(hours=720), (), NoRotationPeriod())


def line(number: int = 1) -> str:
    """The public key of a break-glass authority."""
    return key_line(public_key_of(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)))


def parse(ssh: Any) -> Policy:
    return parse_policy(
        {"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": {"authorizedAttestors": [], "ssh": ssh}},
        NO_FLOOR,
    )


def keys(*entries: Any) -> Any:
    return {"breakGlass": {"publicKeys": list(entries)}}


def invalid(ssh: Any) -> str:
    with pytest.raises(InvalidPolicy) as refused:
        parse(ssh)
    return str(refused.value)


def test_without_the_field_it_is_off() -> None:
    assert parse(None).ssh == SSHOff()
    assert parse_policy({"metadata": {}, "spec": {}}, NO_FLOOR).ssh == SSHOff()


def test_an_empty_object_turns_it_on() -> None:
    assert parse({}).ssh == ON


def test_everything() -> None:
    found = parse(
        {
            "hostCertificateDuration": "8784h",
            "rotationPeriod": "2160h",
            **keys({"key": line(1), "comment": "in the safe"}, {"key": line(2)}),
        }
    ).ssh
    assert isinstance(found, SSHSettings)
    assert (found.host_certificate_duration, found.rotation_period) == (timedelta(days=366), timedelta(days=90))
    assert [(key_line(one.public_key), one.comment) for one in found.break_glass_keys] == [
        (line(1), "in the safe"),
        (line(2), ""),
    ]


@pytest.mark.parametrize(
    "ssh",
    [
        None,
        {},
        {"masterSecretRef": {"name": "m", "generations": [1, 2]}},
        {"rotationPeriod": "24h", **keys({"key": line(1), "comment": "in the safe"}, {"key": line(2)})},
    ],
)
def test_in_the_audit_log(ssh: Any) -> None:
    """A decision's line holds the policy, and is read again."""
    policy = parse(ssh)
    assert read(Policy, json.loads(write(policy)), "policy") == policy


def test_a_line_of_the_audit_log_with_what_is_no_key() -> None:
    written = json.loads(write(parse(keys({"key": line()}))))
    written["ssh"]["break_glass_keys"][0]["key"] = "no key"
    with pytest.raises(InvalidValue, match="break_glass_keys"):
        read(Policy, written, "policy")


@pytest.mark.parametrize("duration", ["59m", "8785h", "0s", "1d", "", 720, None, []])
def test_durations_of_host_certificates(duration: Any) -> None:
    if duration is None:
        assert parse({"hostCertificateDuration": None}).ssh == ON
        return
    assert invalid({"hostCertificateDuration": duration}).startswith("spec.ssh.hostCertificateDuration")


@pytest.mark.parametrize("period", ["23h59m", "87841h", "0s", "90d", "", 90, {}])
def test_periods(period: Any) -> None:
    assert invalid({"rotationPeriod": period}).startswith("spec.ssh.rotationPeriod")


@pytest.mark.parametrize("period", ["24h", "87840h"])
def test_the_shortest_and_the_longest_period(period: str) -> None:
    assert isinstance(parse({"rotationPeriod": period}).ssh, SSHSettings)


def test_so_many_keys_and_no_more() -> None:
    found = parse(keys(*({"key": line(number)} for number in range(8)))).ssh
    assert isinstance(found, SSHSettings)
    assert len(found.break_glass_keys) == 8
    assert invalid(keys(*({"key": line(number)} for number in range(9)))).endswith("must be a list of at most 8")


@pytest.mark.parametrize(
    "key",
    [
        f"{line()} comment",
        f"{line()}\n",
        f"{line()}\n{line(2)}",
        f"no-pty {line()}",
        f"cert-authority {line()}",
        f" {line()}",
        line().replace(" ", "  "),
        line().replace("ssh-ed25519", "ssh-rsa", 1),
        line()[:-2],
        f"{line()}AAAA",
        "ssh-dss AAAA",
        "",
        None,
        5,
    ],
)
def test_lines_that_are_no_key(key: Any) -> None:
    message = invalid(keys({"key": line(3)}, {"key": key}))
    assert message.startswith("spec.ssh.breakGlass.publicKeys[1].key")
    assert line().split()[1] not in message


def test_a_key_twice() -> None:
    """Under another comment, too."""
    entries = {"key": line(), "comment": "a"}, {"key": line(), "comment": "b"}
    assert invalid(keys(*entries)) == "spec.ssh.breakGlass.publicKeys[1].key is there twice"


@pytest.mark.parametrize("comment", ["", "x" * 257, "a\nb", "a\x00", "\x1b[2J", "\u2028", 5, []])
def test_comments(comment: Any) -> None:
    message = invalid(keys({"key": line(), "comment": comment}))
    assert message == "spec.ssh.breakGlass.publicKeys[0].comment must be one line of at most 256 characters"


@pytest.mark.parametrize("ssh", [[], "on", True, {"breakGlass": []}, keys("x"), {"breakGlass": {"publicKeys": {}}}])
def test_other_types(ssh: Any) -> None:
    assert invalid(ssh).startswith("spec.ssh")


# The reference to a master secret


def reference(value: Any) -> Any:
    found = parse({"masterSecretRef": value}).ssh
    assert isinstance(found, SSHSettings)
    return found.master_secret


def test_references_to_a_master_secret() -> None:
    assert reference(None) == NoMasterSecret()
    assert reference({"name": "break-glass"}) == MasterSecretReference("break-glass", (0,))
    assert reference({"name": "m", "generations": [3, 4]}) == MasterSecretReference("m", (3, 4))
    assert reference({"name": "m", "generations": [1_000_000]}) == MasterSecretReference("m", (1_000_000,))


@pytest.mark.parametrize("name", [None, "", "A", "a/b", "../a", "a" * 254, 5, "a\n"])
def test_names_that_no_secret_has(name: Any) -> None:
    assert invalid({"masterSecretRef": {"name": name}}).startswith("spec.ssh.masterSecretRef.name")


def test_a_reference_that_is_no_object() -> None:
    assert invalid({"masterSecretRef": "m"}).startswith("spec.ssh.masterSecretRef.name")


@pytest.mark.parametrize("generations", [[], [0, 1, 2], [1, 1], [-1], [1_000_001], [True], ["0"], 0, {}])
def test_generations_that_are_none(generations: Any) -> None:
    refused = invalid({"masterSecretRef": {"name": "m", "generations": generations}})
    assert refused.startswith("spec.ssh.masterSecretRef.generations")


def test_a_line_of_the_audit_log_from_before_the_reference() -> None:
    written = json.loads(write(parse({})))
    written["ssh"].pop("master_secret")
    assert read(Policy, written, "policy") == parse({})


# Revocations


def test_revocations() -> None:
    found = parse({"revoked": {"keyIDs": ["grant/a", "x"], "serials": ["7", "9" * 19], "publicKeys": [line()]}}).ssh
    assert isinstance(found, SSHSettings)
    assert found.revoked == RevokedByPolicy(("grant/a", "x"), ("7", "9" * 19), (line(),))
    assert 9 * 10**18 < int(found.revoked.serials[1]) < 2**64
    assert parse({"revoked": None}).ssh == parse({"revoked": {}}).ssh == ON


@pytest.mark.parametrize(
    "revoked",
    [
        {"keyIDs": [""]},
        {"keyIDs": ["a b"]},
        {"keyIDs": ["a\n"]},
        {"keyIDs": ["\x1b[2J"]},
        {"keyIDs": ["é"]},
        {"keyIDs": ["a" * 1025]},
        {"keyIDs": ["a", "a"]},
        {"keyIDs": [str(number) for number in range(1001)]},
        {"keyIDs": "a"},
        {"serials": ["0"]},
        {"serials": ["07"]},
        {"serials": ["-1"]},
        {"serials": ["1" * 20]},
        {"serials": ["7-9"]},
        {"serials": ["\u0667"]},
        {"serials": [7]},
        {"serials": ["7", "7"]},
        {"serials": [str(number + 1) for number in range(1001)]},
        {"publicKeys": [f"{line()} comment"]},
        {"publicKeys": [f"{line()}\n"]},
        {"publicKeys": [line()[:-2]]},
        {"publicKeys": [line(), line()]},
        {"publicKeys": [line(1 + number % 200) for number in range(257)]},
        {"publicKeys": [None]},
        [],
    ],
)
def test_revocations_that_are_none(revoked: Any) -> None:
    """An invalid list makes the policy invalid, so the published list stays: no entry is dropped in silence."""
    message = invalid({"revoked": revoked})
    assert message.startswith("spec.ssh.revoked")
    assert line().split()[1] not in message
