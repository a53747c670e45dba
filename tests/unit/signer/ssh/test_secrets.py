"""A tenant may write Secrets in the Cluster's namespace, and must not be able to choose an authority."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.private_key import new_private_key
from signer.authority.ssh.secret import AuthorityPurpose
from signer.model.cluster import ClusterKey, cluster_view
from signer.model.seal import ControllerKeys
from signer.rotation.phases import Phase
from signer.ssh.available import NotAvailable, Reason
from signer.ssh.reports import NotReported
from signer.ssh.rotation_record import Cause, InvalidState, Step, begun, parse_state, state_text
from signer.ssh.secrets import (
    CREATED_ANNOTATION,
    OTHER_CREATED_ANNOTATION,
    ROTATION_ANNOTATION,
    SEAL_ANNOTATION,
    TRUST_DIGEST_ANNOTATION,
    TRUST_VERSION_ANNOTATION,
    Absent,
    HeldAuthority,
    Unusable,
    authority_manifest,
    read_authority,
)
from tests.unit.signer.ssh.world import HOST, START, USER, Process, World, order, run


def pair() -> dict[str, str]:
    """``data`` of a tenant's own authority."""
    key = new_private_key()
    texts = {
        "ssh-privatekey": key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        "ssh-publickey": key_line(public_key_of(key)).encode(),
    }
    return {name: base64.b64encode(text).decode() for name, text in texts.items()}


def annotate(name: str, value: str | None) -> Any:
    def change(manifest: dict[str, Any], other: dict[str, Any]) -> None:
        manifest["metadata"]["annotations"].pop(name)
        if value is not None:
            manifest["metadata"]["annotations"][name] = value

    return change


def own_pair(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"] = pair()


def own_secret(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"] = pair()
    manifest["metadata"]["annotations"] = {}


def key_gone(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    del manifest["data"]["ssh-privatekey"]


def no_data(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    del manifest["data"]


def of_another_pair(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"]["ssh-publickey"] = pair()["ssh-publickey"]


def damaged(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"]["ssh-privatekey"] = base64.b64encode(b"garbage").decode()


def no_base64(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"]["ssh-privatekey"] = "?"


def the_others(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    """With everything that the other Secret has, seal included."""
    manifest["data"] = other["data"]
    manifest["metadata"]["annotations"] = other["metadata"]["annotations"]


def the_others_data(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    manifest["data"] = other["data"]


CHANGES: dict[str, tuple[Any, str]] = {
    "a pair of its own under the seal": (own_pair, "EditedAuthority"),
    "a Secret of its own": (own_secret, "ForeignAuthority"),
    "no private key": (key_gone, "KeyMissing"),
    "no data": (no_data, "KeyMissing"),
    "another public key": (of_another_pair, "Malformed"),
    "a damaged key": (damaged, "Malformed"),
    "no Base64": (no_base64, "Malformed"),
    "the other authority": (the_others, "SwappedAuthority"),
    "the other authority's data": (the_others_data, "EditedAuthority"),
    "no seal": (annotate(SEAL_ANNOTATION, None), "ForeignAuthority"),
    "a malformed seal": (annotate(SEAL_ANNOTATION, "v2.x.y"), "ForeignAuthority"),
    "another time of creation": (annotate(CREATED_ANNOTATION, "2030-01-01T00:00:00Z"), "EditedAuthority"),
    "no time of creation": (annotate(CREATED_ANNOTATION, None), "EditedAuthority"),
}
OF_USER: dict[str, Any] = {
    "another trust version": annotate(TRUST_VERSION_ANNOTATION, "1"),
    "no trust version": annotate(TRUST_VERSION_ANNOTATION, None),
    "another trust": annotate(TRUST_DIGEST_ANNOTATION, "0" * 64),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("path", "other"), [(USER, HOST), (HOST, USER)], ids=["user", "host"])
def test_what_this_controller_did_not_seal(path: str, other: str, change: str) -> None:
    act, reason = CHANGES[change]
    run(stops_everything(path, other, act, reason))


@pytest.mark.parametrize("change", OF_USER)
def test_the_recorded_trust_is_sealed(change: str) -> None:
    run(stops_everything(USER, HOST, OF_USER[change], "EditedAuthority"))


async def stops_everything(path: str, other: str, act: Any, reason: str, *, rotates: bool = False) -> None:
    """It stops both authorities, is named, is not overwritten, and is over when the Secret is put back."""
    world = World(ssh={})
    process = await Process.started(world)
    await process.until_it_waits()
    if rotates:
        world.reports = NotReported("nodes are asleep")
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
    before, found = world.found(path), process.offered()
    changed = copy.deepcopy(before)
    act(changed, copy.deepcopy(world.found(other)))
    written = world.api.put(path, changed)
    shown = await process.until_it_waits()
    assert shown.startswith(f"{reason}: Secret {path.rpartition('/')[2]}: ")
    assert "PRIVATE" not in shown
    assert isinstance(process.of(), NotAvailable)
    assert process.reconciler.status == {}
    assert world.found(path) == written, "a person may want to look at it"
    process.stop()
    restarted = await Process.started(world)
    assert (await restarted.until_it_waits()).startswith(f"{reason}: ")
    world.api.put(path, before)
    await process.until_it_waits()
    assert process.offered() == found


def second(name: str) -> Any:
    def change(manifest: dict[str, Any], other: dict[str, Any]) -> None:
        manifest["data"] |= {f"{name}{field}": text for field, text in pair().items()}

    return change


def other_role(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    data = manifest["data"]
    for field in pair():
        data[f"former.{field}"] = data.pop(f"next.{field}")


def swapped(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    """The one that has not been given to all nodes signs."""
    data = manifest["data"]
    for field in pair():
        data[field], data[f"next.{field}"] = data[f"next.{field}"], data[field]


def next_gone(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    for field in pair():
        del manifest["data"][f"next.{field}"]


def next_private_key_gone(manifest: dict[str, Any], other: dict[str, Any]) -> None:
    del manifest["data"]["next.ssh-privatekey"]


def state(**changes: str) -> Any:
    def change(manifest: dict[str, Any], other: dict[str, Any]) -> None:
        annotations = manifest["metadata"]["annotations"]
        annotations[ROTATION_ANNOTATION] = json.dumps({**json.loads(annotations[ROTATION_ANNOTATION]), **changes})

    return change


OF_ROTATION: dict[str, tuple[Any, str]] = {
    "another new authority": (second("next."), "EditedAuthority"),
    "a third authority": (second("former."), "Malformed"),
    "another role": (other_role, "EditedAuthority"),
    "the new one signs": (swapped, "EditedAuthority"),
    "no new authority": (next_gone, "EditedAuthority"),
    "a new authority without its private key": (next_private_key_gone, "Malformed"),
    "another phase": (state(phase="Completing"), "EditedAuthority"),
    "another step": (state(step="NodesForget"), "EditedAuthority"),
    "skipped gates": (state(skipped="x"), "EditedAuthority"),
    "no state": (annotate(ROTATION_ANNOTATION, None), "EditedAuthority"),
    "another time of creation": (annotate(OTHER_CREATED_ANNOTATION, "2030-01-01T00:00:00Z"), "EditedAuthority"),
}


@pytest.mark.parametrize("change", OF_ROTATION)
@pytest.mark.parametrize(("path", "other"), [(USER, HOST), (HOST, USER)], ids=["user", "host"])
def test_the_second_authority_and_the_state_are_sealed(path: str, other: str, change: str) -> None:
    act, reason = OF_ROTATION[change]
    run(stops_everything(path, other, act, reason, rotates=True))


def test_an_authority_that_the_tenant_adds() -> None:
    """Without a rotation, nodes are not made to trust it."""
    for role in ("next.", "former."):
        run(stops_everything(USER, HOST, second(role), "EditedAuthority"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "7",
        "x",
        json.dumps({"phase": "Preparing"}),
    ],
)
def test_a_state_of_another_release(text: str) -> None:
    with pytest.raises(InvalidState):
        parse_state(text)


@pytest.mark.parametrize("path", [USER, HOST])
def test_there_before_ssh_was_turned_on(path: str) -> None:
    """A tenant's own authority is not taken over, and nothing is made beside it."""

    async def scenario() -> None:
        world = World(ssh={})
        world.api.put(path, {"apiVersion": "v1", "kind": "Secret", "data": pair()})
        process = await Process.started(world)
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert not [call for call in process.client.calls if call.writes]

    run(scenario())


def test_sealed_with_a_key_that_is_known_no_longer() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await Process.started(world)
        await process.until_it_waits()
        world.set_keys(ControllerKeys(b"y" * 32))
        await process.read_key()
        shown = await process.until_it_waits()
        assert shown.startswith("ForeignAuthority: ")
        assert "another controller" in shown

    run(scenario())


def test_a_seal_of_another_cluster() -> None:
    """Its tenant knows the private key."""
    keys = ControllerKeys(b"k" * 32)
    key = ClusterKey("tenant", "blue")
    view = cluster_view({"metadata": {"name": key.name, "namespace": key.namespace, "uid": "u"}, "spec": {}})
    manifest = authority_manifest(AuthorityPurpose.USER, new_private_key(), view, "v1", keys, START)
    assert isinstance(read_authority(AuthorityPurpose.USER, key, manifest, keys), HeldAuthority)
    for other in (ClusterKey("team-b", "blue"), ClusterKey("tenant", "green")):
        found = read_authority(AuthorityPurpose.USER, other, manifest, keys)
        assert isinstance(found, Unusable)
        assert found.reason is Reason.EDITED_AUTHORITY
    assert isinstance(read_authority(AuthorityPurpose.USER, key, {}, keys), Absent)


def test_a_state_with_a_field_that_this_release_does_not_know() -> None:
    """It may mean that something must be waited for."""
    state_ = begun("u/1", Step.NODES_TRUST, Cause.ORDERED, Phase.PREPARING, START)
    assert parse_state(state_text(state_)) == state_
    with pytest.raises(InvalidState):
        parse_state(json.dumps({**json.loads(state_text(state_)), "more": True}))
