"""The contract of :class:`attestors.contract.DeniesIdentities`, for each attestor here whose settings deny any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from attestors.aws import plugin as aws
from attestors.composite import plugin as composite
from attestors.contract import (
    AnswerNotRecorded,
    AttestedBefore,
    AttestorSettings,
    Denied,
    DeniesIdentities,
    NotProvableYet,
    Standing,
    StillAllowed,
)
from attestors.contract.composite import CompositeIdentity
from attestors.gcp import plugin as gcp
from attestors.tpm import plugin as tpm
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls
from signer.explain.offline import no_network
from tests.unit.attestors.composite.support import MASTER_KEY_TEXT
from tests.unit.attestors.tpm.fixtures import CHIP, OTHER

CHIP_NAME = "chip:sha256:" + "c1" * 32
KEY, OTHER_KEY = f"tpm:{CHIP.fingerprint}", f"tpm:{OTHER.fingerprint}"


class Subject(Protocol):
    """An attestor whose operator denies by a file."""

    def plugin(self, file: Path) -> Any: ...

    def identity(self, key: str) -> str: ...


@dataclass(frozen=True)
class Alone:
    """The attestor tpm."""

    @staticmethod
    def settings(file: Path) -> Mapping[str, Any]:
        return {"allowUncertifiedEndorsementKeys": True, "deniedEndorsementKeysFile": str(file)}

    def plugin(self, file: Path) -> Any:
        return tpm.server_plugin(AttestorSettings(self.settings(file)))

    def identity(self, key: str) -> str:
        return key


@dataclass(frozen=True)
class Part:
    """The same as a part of the composite attestor, beside one that denies no identities."""

    def plugin(self, file: Path) -> Any:
        parts = {"keyed-mac": {"masterKey": MASTER_KEY_TEXT}, "tpm": Alone.settings(file)}
        return composite.server_plugin(AttestorSettings({"attestors": parts}))

    def identity(self, key: str) -> str:
        return str(CompositeIdentity({"keyed-mac": "keyed-mac:0", "tpm": key}))


@dataclass(frozen=True)
class Desk:
    subject: Subject
    file: Path
    plugin: Any

    def deny(self, *entries: str) -> None:
        self.file.write_text("\n".join(["# These and no others.", *entries]) + "\n")

    def ask(self, key: str, hardware: str = "", **more: Any) -> Standing:
        assert isinstance(self.plugin, DeniesIdentities)
        with no_network() as refused:
            found = self.plugin.standing_of(AttestedBefore(self.subject.identity(key), hardware, **more))
        assert not refused
        return found


@pytest.fixture(params=[Alone(), Part()], ids=["tpm", "composite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return desk_of(request.param, tmp_path)


def desk_of(subject: Subject, folder: Path) -> Desk:
    file = folder / "denied"
    file.write_text("# Nothing yet.\n")
    return Desk(subject, file, subject.plugin(file))


def test_an_identity_that_is_not_denied(desk: Desk) -> None:
    assert desk.ask(KEY, CHIP_NAME) == StillAllowed()
    desk.deny(OTHER.fingerprint)
    assert desk.ask(KEY) == StillAllowed()


def test_an_identity_that_is_denied_since(desk: Desk) -> None:
    assert desk.ask(KEY) == StillAllowed()
    desk.deny(CHIP.fingerprint)
    found = desk.ask(KEY)
    assert isinstance(found, Denied)
    assert (found.reason, CHIP.fingerprint in found.message) == ("EndorsementKeyDenied", True)
    assert desk.ask(OTHER_KEY) == StillAllowed()


def test_hardware_that_is_denied_since_with_any_of_its_identities(desk: Desk) -> None:
    desk.deny(CHIP_NAME)
    for key in (KEY, OTHER_KEY):
        found = desk.ask(key, CHIP_NAME)
        assert isinstance(found, Denied)
        assert (found.reason, CHIP_NAME in found.message) == ("EndorsementKeyDenied", True)
        assert desk.ask(key, "chip:sha256:" + "c2" * 32) == StillAllowed()


@pytest.mark.parametrize("content", [None, "", "sha256:short\n"], ids=["removed", "emptied", "malformed"])
def test_a_list_that_cannot_be_used_allows_nothing(desk: Desk, content: str | None) -> None:
    desk.file.unlink()
    if content is not None:
        desk.file.write_text(content)
    found = desk.ask(KEY)
    assert isinstance(found, NotProvableYet)
    assert (found.reason, str(desk.file) in found.message) == ("OperatorFileUnusable", True)


@pytest.mark.parametrize("key", ["", CHIP.fingerprint, f"{KEY}0", f"aws:{CHIP.fingerprint}", f" {KEY}"])
def test_an_identity_that_the_attestor_does_not_prove_is_not_allowed(desk: Desk, key: str) -> None:
    """The core takes an exception as a fault of the plugin, and the request waits."""
    with pytest.raises(ValueError, match="not the identity of a TPM"):
        desk.ask(key)


@pytest.mark.parametrize("denied", [(), (CHIP.fingerprint,), (CHIP_NAME,)], ids=["none", "key", "hardware"])
def test_a_replay_gives_the_recorded_answer_whatever_the_list_says_now(desk: Desk, denied: tuple[str, ...]) -> None:
    desk.deny(*denied)
    recorder = CallRecorder()
    found = desk.ask(KEY, CHIP_NAME, recorded_calls=recorder)
    recorded = json.loads(json.dumps(recorder.recorded))
    desk.deny(*(() if denied else (CHIP.fingerprint, CHIP_NAME)))
    assert desk.ask(KEY, CHIP_NAME, recorded_calls=ReplayedCalls(recorded)) == found
    with pytest.raises(AnswerNotRecorded):
        desk.ask(KEY, CHIP_NAME, recorded_calls=ReplayedCalls(()))


def test_a_record_of_other_parts_waits(tmp_path: Path) -> None:
    """The operator requires other parts now, and the deny list of the former ones cannot be asked."""
    desk = desk_of(Part(), tmp_path)
    for parts in ({"tpm": KEY}, {"aws": "aws:1", "tpm": KEY}, {"aws": "aws:1", "keyed-mac": "keyed-mac:0", "tpm": KEY}):
        found = desk.plugin.standing_of(AttestedBefore(str(CompositeIdentity(parts))))
        assert isinstance(found, NotProvableYet)
        assert found.reason == "AttestorsChanged"
    with pytest.raises(ValueError, match="not JSON"):
        desk.plugin.standing_of(AttestedBefore(KEY))


EC2 = "aws:aws:123456789012:eu-west-1:i-0123456789abcdef0"
VIRTUAL_MACHINE = "gcp:730000000001:4711000000000000001"


def of_cloud(name: str, operator: Mapping[str, Any], policy: Mapping[str, Any] | None = None) -> Any:
    """Its server plugin. EC2 and IAM are not called, which would need boto3."""
    offline = {"describeInstances": False, "checkRoleTrust": False} if name == "aws" else {}
    plugin = aws if name == "aws" else gcp
    return plugin.server_plugin(AttestorSettings({**offline, **operator}, policy or {}))


def standing(plugin: Any, identity: str) -> Standing:
    assert isinstance(plugin, DeniesIdentities)
    with no_network() as refused:
        found = plugin.standing_of(AttestedBefore(identity))
    assert not refused
    return found


def roles(*accounts: str, partition: str = "aws") -> list[str]:
    return [f"arn:{partition}:iam::{account}:role/nodes" for account in accounts]


MINE, OTHERS = "123456789012", "210987654321"
PROJECTS = {"my-workloads": 730000000001, "my-other-workloads": 730000000002}


@pytest.mark.parametrize(
    ("name", "identity", "operator", "policy", "reason"),
    [
        ("aws", EC2, {"allowedRoles": roles(MINE)}, {}, ""),
        ("aws", EC2, {"allowedRoles": roles(MINE, OTHERS), "allowedRegions": ["eu-west-1"]}, {}, ""),
        ("aws", EC2, {"allowedRoles": roles(OTHERS)}, {}, "AccountNotAllowed"),
        ("aws", EC2, {"allowedRoles": roles(MINE, partition="aws-cn")}, {}, "AccountNotAllowed"),
        ("aws", EC2, {"allowedRoles": roles(MINE, OTHERS)}, {"allowedRoles": roles(OTHERS)}, "AccountNotAllowed"),
        ("aws", EC2, {"allowedRoles": roles(MINE), "allowedRegions": ["eu-west-2"]}, {}, "RegionNotAllowed"),
        ("aws", EC2, {"allowedRoles": roles(MINE)}, {"allowedRegions": ["eu-west-2"]}, "RegionNotAllowed"),
        ("gcp", VIRTUAL_MACHINE, {"projects": PROJECTS}, {}, ""),
        ("gcp", VIRTUAL_MACHINE, {"projects": {"my-other-workloads": 730000000002}}, {}, "ProjectNotAllowed"),
        ("gcp", VIRTUAL_MACHINE, {"projects": {"my-workloads": 730000000003}}, {}, "ProjectNotAllowed"),
        ("gcp", VIRTUAL_MACHINE, {"projects": PROJECTS}, {"projects": ["my-other-workloads"]}, "ProjectNotAllowed"),
    ],
    ids=[
        "an account",
        "an account and its Region",
        "an account that was taken out",
        "another partition's account of that number",
        "an account that the policy leaves out",
        "a Region that was taken out",
        "a Region that the policy leaves out",
        "a project",
        "a project that was taken out",
        "a project whose number changed",
        "a project that the policy leaves out",
    ],
)
def test_what_the_settings_of_a_cloud_say_of_an_instance(
    name: str, identity: str, operator: Mapping[str, Any], policy: Mapping[str, Any], reason: str
) -> None:
    found = standing(of_cloud(name, operator, policy), identity)
    assert (found.reason if isinstance(found, Denied) else "", isinstance(found, StillAllowed)) == (reason, not reason)


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        *(("aws", text) for text in ("", VIRTUAL_MACHINE, f"{EC2} ", EC2.replace("eu-west-1", "mars-1"))),
        *(("gcp", text) for text in ("", EC2, f"{VIRTUAL_MACHINE}0000", "gcp:0:1", "gcp:1:01", "gcp:730000000001")),
    ],
)
def test_an_identity_that_no_instance_has(name: str, identity: str) -> None:
    operator = {"allowedRoles": roles(MINE)} if name == "aws" else {"projects": PROJECTS}
    with pytest.raises(ValueError, match="not the identity of"):
        standing(of_cloud(name, operator), identity)


def test_an_instance_that_a_part_denies() -> None:
    """The composite attestor asks each part: a chip that is still allowed does not help."""
    chip = {"allowUncertifiedEndorsementKeys": True}
    identity = str(CompositeIdentity({"gcp": VIRTUAL_MACHINE, "tpm": KEY}))
    for projects, allowed in ((PROJECTS, True), ({"my-other-workloads": 730000000002}, False)):
        parts = {"attestors": {"gcp": {"projects": projects}, "tpm": chip}}
        found = standing(composite.server_plugin(AttestorSettings(parts)), identity)
        assert isinstance(found, StillAllowed) is allowed
