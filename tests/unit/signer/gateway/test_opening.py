"""What a grant opens at the gateway: proven by its certificate."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import serialization

from attestors.wire.ssh.certificate import Certificate, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.container_names import Container, Pod
from attestors.wire.ssh.options import VerifyRequired, parse_network
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.ssh.signatures import sign
from signer.access.lifetimes import MAXIMUM_CERTIFICATE_DURATION
from signer.authority.ssh.authorities import UserAuthority
from signer.gateway.opening import (
    CLOCK_TOLERANCE,
    LONGEST_CERTIFICATE,
    Closed,
    ClosedReason,
    Opening,
    admitted,
    continued,
    grant_of,
)
from signer.model.cluster import ClusterKey
from tests.support.access_grants import AUTHORITY, HOUR, NOW
from tests.support.access_objects import USER_KEY, grant_object
from tests.support.gateway_grants import UID, container_grant
from tests.support.openssh import public_keys, ssh_keygen
from tests.unit.signer.authority.ssh.requests import authority_key

OTHER_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPjHUyfKmhKPaLC7D8u6oh1z9UIgXVy2Pj29E940gSaA"
OTHER: Final = UserAuthority(authority_key("ed25519", 301))


def opened(manifest: dict[str, Any], *, now: Any = NOW, authorities: Any = (AUTHORITY.public_key,)) -> Opening:
    return admitted(grant_of(manifest), authorities, now)


def refused(manifest: dict[str, Any], **how: Any) -> ClosedReason:
    with pytest.raises(Closed) as caught:
        opened(manifest, **how)
    assert USER_KEY.split(" ")[1] not in caught.value.message
    return caught.value.reason


def resigned(manifest: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The authority has signed another certificate."""
    signed = parse_certificate_line(manifest["status"]["certificates"][0]["certificate"])
    fields = {name: getattr(signed.certificate, name) for name in Certificate.__dataclass_fields__}
    other = Certificate(**{**fields, **changes})
    manifest["status"]["certificates"][0]["certificate"] = SignedCertificate(
        other, sign(AUTHORITY.private_key, other.signed_bytes)
    ).line
    return manifest


def test_everything_comes_from_the_certificate() -> None:
    manifest = container_grant(
        ingress=[{"ipBlock": {"cidr": "198.51.100.0/24"}}],
        permissions={"pty": False, "portForwarding": True, "command": "uptime"},
    )
    found = opened(manifest)
    assert found.cluster == ClusterKey("team-a", "production")
    assert (found.grant, found.uid, found.creator) == ("repair", UID.format(11), "alice")
    assert found.container == Container("shop", Pod("web-0"), "app")
    assert found.ends == NOW + HOUR
    assert (found.has_terminal, found.has_port_forwarding, found.command) == (False, True, "uptime")
    assert found.sources == (parse_network("198.51.100.0/24"),)
    assert found.key_id == f"grant/team-a/repair/{UID.format(11)}/alice"
    assert opened(container_grant()).has_terminal


def test_the_creator_is_the_certificates_not_the_objects() -> None:
    manifest = container_grant()
    manifest["spec"]["createdBy"]["username"] = "mallory"
    assert opened(manifest).creator == "alice"


def test_a_creators_name_comes_back_as_it_was() -> None:
    for name in ("alice/3", "é", "oidc:alice@example.com", "a b%2F"):
        assert opened(container_grant(creator=name)).creator == name
    assert opened(container_grant(epoch=3)).creator == "alice"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one: one["metadata"].update(deletionTimestamp="2026-11-27T14:10:00Z"), ClosedReason.ENDED),
        (lambda one: one["spec"].update(suspend=True), ClosedReason.ENDED),
        (lambda one: one["status"]["conditions"][0].update(status="False"), ClosedReason.NOT_READY),
        (lambda one: one["status"]["conditions"].append({"type": "Ready", "status": "True"}), ClosedReason.NOT_READY),
        (lambda one: one["status"].update(conditions=[]), ClosedReason.NOT_READY),
        (lambda one: one["status"].update(conditions=["Ready"]), ClosedReason.NOT_READY),
        (lambda one: one["status"].update(certificates=[]), ClosedReason.NOT_CERTIFIED),
        (lambda one: one["status"]["certificates"][0].update(hop="node"), ClosedReason.NOT_CERTIFIED),
        (lambda one: one["status"].update(certificates=one["status"]["certificates"] * 2), ClosedReason.NOT_CERTIFIED),
        (lambda one: one["status"]["certificates"][0].update(certificate="x"), ClosedReason.CERTIFICATE_REFUSED),
        (lambda one: one["metadata"].update(uid=UID.format(12)), ClosedReason.CERTIFICATE_REFUSED),
        (lambda one: one["metadata"].update(name="other"), ClosedReason.CERTIFICATE_REFUSED),
        (lambda one: one["metadata"].update(namespace="team-b"), ClosedReason.CERTIFICATE_REFUSED),
        (lambda one: one["spec"]["target"]["container"].update(pod="db-0"), ClosedReason.CERTIFICATE_REFUSED),
        (lambda one: one["spec"].update(surprise=1), ClosedReason.INVALID),
    ],
)
def test_other_objects_open_nothing(change: Any, reason: ClosedReason) -> None:
    manifest = deepcopy(container_grant())
    change(manifest)
    assert refused(manifest) is reason


def test_a_grant_for_nodes_opens_no_container() -> None:
    assert refused(grant_object()) is ClosedReason.NOT_FOR_CONTAINERS


def test_another_key_in_the_grant_is_refused() -> None:
    """A key that the certificate does not name gets nothing, whoever wrote it into the grant."""
    manifest = container_grant()
    other = container_grant(
        sshPublicKey="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPjHUyfKmhKPaLC7D8u6oh1z9UIgXVy2Pj29E940gSaA"
    )
    manifest["spec"]["sshPublicKey"] = other["spec"]["sshPublicKey"]
    assert refused(manifest) is ClosedReason.CERTIFICATE_REFUSED


def test_the_certificate_counts_in_its_time_alone() -> None:
    manifest = container_grant()
    assert refused(manifest, now=NOW + HOUR) is ClosedReason.EXPIRED
    assert opened(manifest, now=NOW + HOUR - timedelta(seconds=1)).grant == "repair"
    begins = NOW - timedelta(minutes=1)
    assert opened(manifest, now=begins - CLOCK_TOLERANCE).grant == "repair"
    assert refused(manifest, now=begins - CLOCK_TOLERANCE - timedelta(seconds=1)) is ClosedReason.EXPIRED


def test_only_a_user_authority_of_the_cluster_counts() -> None:
    assert refused(container_grant(authority=OTHER)) is ClosedReason.AUTHORITY_UNKNOWN
    assert refused(container_grant(), authorities=()) is ClosedReason.AUTHORITY_UNKNOWN
    both = (AUTHORITY.public_key, OTHER.public_key)
    assert opened(container_grant(authority=OTHER), authorities=both).grant == "repair"


def test_a_broken_signature_is_refused() -> None:
    manifest = container_grant()
    line = manifest["status"]["certificates"][0]["certificate"]
    other = container_grant(number=12)["status"]["certificates"][0]["certificate"]
    assert len(line) == len(other)
    manifest["status"]["certificates"][0]["certificate"] = line[:-60] + other[-60:]
    assert refused(manifest) is ClosedReason.CERTIFICATE_REFUSED


@pytest.mark.parametrize(
    "changes",
    [
        {"principals": ()},
        {"principals": (PlainPrincipal("shop_web-0_app"), PlainPrincipal("shop_db-0_app"))},
        {"principals": (PlainPrincipal("root"),)},
        {"critical_options": (VerifyRequired(),)},
        {"key_id": "alice"},
        {"key_id": f"grant/team-a/repair/{UID.format(11)}"},
        {"key_id": f"grant/team-a/repair/{UID.format(11)}/alice/0"},
        {"key_id": f"grant/team-a/repair/{UID.format(11)}/al%69ce"},
        {"key_id": f"grant/team-a/repair/{UID.format(11)}/%FF"},
        {"public_key": public_keys()["nistp256"]},
    ],
)
def test_certificates_that_the_controller_does_not_make_are_refused(changes: dict[str, Any]) -> None:
    """Also if a user authority has signed them."""
    assert refused(resigned(container_grant(), **changes)) is ClosedReason.CERTIFICATE_REFUSED


# The rule for new sessions, and for those that run

GOES_ON, ENDS, ADMITTED = "goes on", "ends", "admitted"
PERMISSIONS: Final = {"pty": True, "portForwarding": True}
MINUTE: Final = timedelta(minutes=1)


def rule(manifest: dict[str, Any], *, now: Any, authorities: Any) -> tuple[str, str]:
    """What becomes of a session by the grant as it was made, and of somebody who comes now."""
    session = opened(container_grant(permissions=PERMISSIONS))
    try:
        grant = grant_of(manifest)
    except Closed as closed:
        return ENDS, closed.reason.value
    try:
        continued(grant, session, authorities, now)
        before = GOES_ON
    except Closed:
        before = ENDS
    try:
        admitted(grant, authorities, now)
    except Closed as closed:
        return before, closed.reason.value
    return before, ADMITTED


def held(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["status"]["conditions"][0].update(status="False", reason="CreatorUnproven")
    return manifest


def without_certificate(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["status"]["certificates"] = []
    return manifest


def grant(**how: Any) -> dict[str, Any]:
    return container_grant(**{"permissions": PERMISSIONS, **how})


@pytest.mark.parametrize(
    ("manifest", "minutes", "authority", "running", "coming"),
    [
        pytest.param(grant(), 0, AUTHORITY, GOES_ON, ADMITTED, id="ready"),
        pytest.param(held(grant()), 0, AUTHORITY, GOES_ON, "NotReady", id="held: a hiccup of the controller"),
        pytest.param(
            {**grant(), "status": grant()["status"] | {"conditions": []}},
            0,
            AUTHORITY,
            GOES_ON,
            "NotReady",
            id="held: no conditions",
        ),
        pytest.param(held(grant()), 59, AUTHORITY, GOES_ON, "NotReady", id="held to the last minute"),
        pytest.param(held(grant()), 60, AUTHORITY, ENDS, "Expired", id="held, and expired: nothing renews it"),
        pytest.param(grant(), 60, AUTHORITY, ENDS, "Expired", id="expired"),
        pytest.param(grant(now=NOW + 40 * MINUTE), 70, AUTHORITY, GOES_ON, ADMITTED, id="renewed"),
        pytest.param(without_certificate(grant()), 0, AUTHORITY, ENDS, "NotCertified", id="the certificate is gone"),
        pytest.param(without_certificate(held(grant())), 0, AUTHORITY, ENDS, "NotCertified", id="ended"),
        pytest.param({**grant(), "status": {}}, 0, AUTHORITY, ENDS, "NotCertified", id="the status is gone"),
        pytest.param(grant(suspend=True), 0, AUTHORITY, ENDS, "Ended", id="suspended"),
        pytest.param(held(grant(suspend=True)), 0, AUTHORITY, ENDS, "Ended", id="suspended and held"),
        pytest.param(grant(), 0, OTHER, ENDS, "AuthorityUnknown", id="the authority was revoked"),
        pytest.param(held(grant()), 0, OTHER, ENDS, "AuthorityUnknown", id="the authority was revoked, held"),
        pytest.param(grant(creator="mallory"), 0, AUTHORITY, ENDS, ADMITTED, id="another person"),
        pytest.param(
            grant(container={"namespace": "shop", "pod": "db-0", "container": "app"}),
            0,
            AUTHORITY,
            ENDS,
            ADMITTED,
            id="another container",
        ),
        pytest.param(grant(number=12), 0, AUTHORITY, ENDS, ADMITTED, id="another grant"),
        pytest.param(grant(sshPublicKey=OTHER_KEY), 0, AUTHORITY, ENDS, ADMITTED, id="another key"),
        pytest.param(
            grant(permissions={"pty": False, "portForwarding": True}),
            0,
            AUTHORITY,
            ENDS,
            ADMITTED,
            id="no terminal any more",
        ),
        pytest.param(grant(permissions={"pty": True}), 0, AUTHORITY, ENDS, ADMITTED, id="no ports any more"),
        pytest.param(
            grant(permissions={**PERMISSIONS, "command": "uptime"}),
            0,
            AUTHORITY,
            ENDS,
            ADMITTED,
            id="one command alone",
        ),
    ],
)
def test_who_comes_in_and_who_stays(
    manifest: dict[str, Any], minutes: int, authority: UserAuthority, running: str, coming: str
) -> None:
    found = rule(manifest, now=NOW + minutes * MINUTE, authorities=(authority.public_key,))
    assert found == (running, coming)


def test_a_wider_certificate_covers_a_session() -> None:
    session = opened(container_grant(permissions={"pty": False}))
    wider = grant_of(container_grant(permissions=PERMISSIONS))
    assert continued(wider, session, (AUTHORITY.public_key,), NOW).has_port_forwarding


# Grants that somebody has written who may write them, and their status


def written_into(manifest: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The certificate of another grant in this one's status."""
    manifest["status"]["certificates"] = deepcopy(other["status"]["certificates"])
    return manifest


def by_ssh_keygen(folder: Path, *options: str) -> str:
    """A certificate for the grant's key, container and key id, by the Cluster's authority, with more options."""
    (folder / "ca").touch(mode=0o600)
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    (folder / "ca").write_bytes(AUTHORITY.private_key.private_bytes(*encoding))
    (folder / "user.pub").write_text(f"{USER_KEY}\n")
    names = ["-I", f"grant/team-a/repair/{UID.format(11)}/alice", "-n", "shop_web-0_app"]
    times = [one.strftime("%Y%m%d%H%M%SZ") for one in (NOW, NOW + HOUR)]
    names += ["-V", ":".join(times)]
    ssh_keygen("-q", "-s", folder / "ca", *names, *options, folder / "user.pub").check_returncode()
    return " ".join((folder / "user-cert.pub").read_text().split()[:2])


def test_a_certificate_of_ssh_keygen_for_the_same_is_taken(tmp_path: Path) -> None:
    """So that the tests below refuse for what they add."""
    manifest = container_grant()
    manifest["status"]["certificates"][0]["certificate"] = by_ssh_keygen(tmp_path)
    assert opened(manifest).creator == "alice"


@pytest.mark.parametrize(
    "options",
    [
        ["-O", "critical:frobnicate@example.com=x"],
        ["-O", "verify-required"],
        ["-O", "critical:source-address"],
        ["-h"],
        ["-n", "shop_web-0_app,shop_db-0_app"],
        ["-n", "root"],
        ["-V", "always:forever"],
        ["-V", "19700101000000Z:20991231235959Z"],
    ],
)
def test_certificates_that_the_gateway_cannot_keep_are_refused(tmp_path: Path, options: list[str]) -> None:
    manifest = container_grant()
    manifest["status"]["certificates"][0]["certificate"] = by_ssh_keygen(tmp_path, *options)
    assert refused(manifest) is ClosedReason.CERTIFICATE_REFUSED


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        pytest.param(
            container_grant(number=12, creator="admin"), ClosedReason.CERTIFICATE_REFUSED, id="of another grant"
        ),
        pytest.param(container_grant(name="other"), ClosedReason.CERTIFICATE_REFUSED, id="of another name"),
        pytest.param(
            container_grant(clusterRef={"name": "staging"}, authority=OTHER),
            ClosedReason.AUTHORITY_UNKNOWN,
            id="of another cluster",
        ),
        pytest.param(container_grant(authority=OTHER), ClosedReason.AUTHORITY_UNKNOWN, id="of another authority"),
        pytest.param(container_grant(now=NOW - 2 * HOUR), ClosedReason.EXPIRED, id="expired"),
        pytest.param(container_grant(now=NOW + 2 * HOUR), ClosedReason.EXPIRED, id="not valid yet"),
        pytest.param(
            container_grant({"namespace": "kube-system", "pod": "etcd", "container": "etcd"}),
            ClosedReason.CERTIFICATE_REFUSED,
            id="of another container",
        ),
    ],
)
def test_a_certificate_that_is_not_this_grants_opens_nothing_and_ends_sessions(
    other: dict[str, Any], reason: ClosedReason
) -> None:
    session = opened(container_grant())
    hostile = written_into(container_grant(), other)
    assert refused(hostile) is reason
    with pytest.raises(Closed):
        continued(grant_of(hostile), session, (AUTHORITY.public_key,), NOW)


@pytest.mark.parametrize(
    "status",
    [
        {"certificates": "x"},
        {"certificates": [7, None, []]},
        {"certificates": [{"hop": "container", "certificate": 7}]},
        {"certificates": [{"hop": "container", "certificate": "x" * 1024 * 1024}]},
        {"certificates": [{"hop": "container"}] * 100_000},
        {"certificates": [{"hop": ["container"], "certificate": "x"}]},
        {"conditions": [{"type": "Ready", "status": "True"}] * 100_000},
        {"conditions": [{"type": ["Ready"], "status": True}]},
        {"conditions": {"type": "Ready"}},
        {"conditions": None, "certificates": None},
    ],
)
def test_a_status_of_any_form_opens_nothing(status: dict[str, Any]) -> None:
    manifest = container_grant()
    manifest["status"] |= status
    assert refused(manifest) in (ClosedReason.NOT_CERTIFIED, ClosedReason.CERTIFICATE_REFUSED, ClosedReason.NOT_READY)


def test_the_controllers_longest_certificate_is_taken() -> None:
    assert MAXIMUM_CERTIFICATE_DURATION + MINUTE <= LONGEST_CERTIFICATE
    assert opened(container_grant(lifetime=MAXIMUM_CERTIFICATE_DURATION)).creator == "alice"
