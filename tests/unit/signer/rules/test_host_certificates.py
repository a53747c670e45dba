"""Which host keys get certificates, for which names and how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.contract import Security
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh.sshsig import Namespace, sign_message
from attestors.wire.ssh_host_keys import ClaimedHostKey, HostKeysClaim, claim_with, encode
from signer.model.cluster import ClusterKey, MachineAddress
from signer.model.host_keys import (
    NO_FORMER,
    NO_HOST_KEYS,
    AttestedHostKeys,
    FormerHostCertificates,
    HostCertificateReason,
    NoFormerHostCertificates,
    ReportedTrust,
)
from signer.model.record import AttestedNode
from signer.model.service_networks import ReportedServices
from signer.model.serving_facts import ServingFacts
from signer.model.ssh_access import NoRotationPeriod, SSHSettings
from signer.rules.host_certificates import (
    MAXIMUM_NAME_BYTES,
    MAXIMUM_NAMES,
    HostAuthorityFacts,
    HostKeysNotCertified,
    HostNameFacts,
    ProvenHostKeys,
    former_certificates,
    host_certificate_end,
    host_names,
    host_principals,
    planned_host_keys,
    proven_host_keys,
    reported_trust_version,
    require_certifiable,
)
from signer.rules.machine import MachineFacts
from tests.support.openssh import private_key
from tests.unit.signer.builders import (
    NODE,
    attested_identity,
    ec_key,
    machine_facts,
    machine_view,
    record,
    verified,
)

KEY, OTHER = private_key("ed25519"), private_key("ed25519", 1)
LINE: Final = key_line(public_key_of(KEY))
SPKI: Final = ec_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
AUTHORITY: Final = HostAuthorityFacts("ssh-ed25519 CA", "SHA256:ca", ("ssh-ed25519 CA", "ssh-ed25519 USER"), "0123")
PROVEN: Final = ProvenHostKeys(3, (LINE,))
SETTINGS: Final = SSHSettings(timedelta(days=30), (), NoRotationPeriod())
REPORTED: Final = ReportedServices((), frozenset({4, 6}))
FREE: Final = HostNameFacts(frozenset(), ServingFacts(reported_services=REPORTED))


def facts(*addresses: tuple[str, str], **changes: Any) -> MachineFacts:
    read = tuple(MachineAddress(kind, text) for kind, text in addresses)
    return machine_facts(**{"machine": machine_view(addresses=read), **changes})


def reason(error: pytest.ExceptionInfo[HostKeysNotCertified]) -> HostCertificateReason:
    assert str(error.value).startswith(f"{error.value.reason}: ")
    return error.value.reason


def taken(*names: str) -> HostNameFacts:
    return replace(FREE, conflicting_names=frozenset(names))


def test_proven_keys_are_in_order_with_the_version() -> None:
    claims = tuple(claim_with(key, SPKI) for key in (KEY, OTHER))
    proven = proven_host_keys(encode(HostKeysClaim(9, claims)), SPKI)
    assert proven == ProvenHostKeys(9, (LINE, key_line(public_key_of(OTHER))))


@pytest.mark.parametrize(
    "claim",
    [
        ClaimedHostKey(public_key_of(KEY), claim_with(OTHER, SPKI).proof),
        ClaimedHostKey(public_key_of(KEY), replace(claim_with(OTHER, SPKI).proof, public_key=public_key_of(KEY))),
        claim_with(KEY, SPKI + b"another request"),
        ClaimedHostKey(public_key_of(KEY), sign_message(KEY, Namespace("file"), SPKI)),
    ],
)
def test_what_proves_nothing(claim: ClaimedHostKey) -> None:
    with pytest.raises(HostKeysNotCertified) as error:
        proven_host_keys(encode(HostKeysClaim(0, (claim,))), SPKI)
    assert reason(error) is HostCertificateReason.HOST_KEY_NOT_PROVEN


def test_what_is_of_no_form() -> None:
    with pytest.raises(HostKeysNotCertified) as error:
        proven_host_keys(b"\x30\x00", SPKI)
    assert reason(error) is HostCertificateReason.HOST_KEYS_MALFORMED


def test_a_key_that_nobody_has_is_certified() -> None:
    require_certifiable(PROVEN, facts(), (), AUTHORITY)


def test_an_insecure_attestor_proves_no_host() -> None:
    insecure = facts(identity=replace(attested_identity(), security=Security.INSECURE))
    with pytest.raises(HostKeysNotCertified) as error:
        require_certifiable(PROVEN, insecure, (), AUTHORITY)
    assert reason(error) is HostCertificateReason.ATTESTOR_NOT_SECURE


@pytest.mark.parametrize("key", [AUTHORITY.public_key, *AUTHORITY.trusted])
def test_no_authority_is_a_host_key(key: str) -> None:
    with pytest.raises(HostKeysNotCertified) as error:
        require_certifiable(ProvenHostKeys(0, (LINE, key)), facts(), (), AUTHORITY)
    assert reason(error) is HostCertificateReason.HOST_KEY_IS_AUTHORITY


def holder(now: datetime, identity: str = "ek:other", **changes: Any) -> AttestedNode:
    return replace(record(identity=identity), node_name="other", last_not_after=now + timedelta(hours=1), **changes)


def test_a_key_of_another_identity_is_in_use_until_its_name_is_free() -> None:
    now = facts().now
    held = holder(now)
    with pytest.raises(HostKeysNotCertified) as error:
        require_certifiable(PROVEN, facts(), (held,), AUTHORITY)
    assert reason(error) is HostCertificateReason.HOST_KEY_IN_USE
    assert "other" in error.value.message
    require_certifiable(PROVEN, facts(now=held.held_until), (held,), AUTHORITY)


def test_a_holder_in_another_namespace_is_not_named_to_the_tenant() -> None:
    held = holder(facts().now)
    own = held.machine
    elsewhere = replace(held, machine=replace(own, cluster=ClusterKey("team-b", "secret-project")))
    for one, shown in ((held, str(own.cluster)), (elsewhere, "a node of another namespace")):
        with pytest.raises(HostKeysNotCertified) as error:
            require_certifiable(PROVEN, facts(), (one,), AUTHORITY)
        assert shown in error.value.message
        assert not {"team-b", "secret-project"} & set(error.value.message.replace("/", " ").split())


def test_the_same_machine_may_have_its_key_under_another_name() -> None:
    require_certifiable(PROVEN, facts(), (holder(facts().now, facts().identity.identity),), AUTHORITY)


def test_the_names_are_the_machines_by_the_rules_of_serving_certificates() -> None:
    asked = facts(
        ("InternalIP", "192.0.2.17"),
        ("ExternalIP", "2001:db8::1"),
        ("InternalIP", "127.0.0.1"),
        ("InternalIP", "169.254.3.4"),
        ("InternalDNS", "A.example"),
        ("InternalDNS", "kubernetes"),
        ("InternalDNS", "x.svc"),
        proven=verified(dns_names=("b.example",), ip_addresses=(ip_address("192.0.2.18"),)),
    )
    key = asked.machine.cluster
    assert host_principals(asked, FREE) == (
        asked.node_name, f"{asked.node_name}.{key.name}.{key.namespace}",
        "a.example", "b.example", "192.0.2.17", "2001:db8::1", "192.0.2.18",
    )  # fmt: skip


def test_what_another_machine_has_too_is_left_out() -> None:
    asked = facts(("InternalIP", "192.0.2.17"), ("InternalDNS", "a.example"))
    key = asked.machine.cluster
    both = f"{asked.node_name}.{key.name}.{key.namespace}"
    assert host_principals(asked, taken("192.0.2.17", "a.example", both)) == (asked.node_name,)


@pytest.mark.parametrize("other", ["worker-2", "worker-3.example", "not-yet"])
def test_a_machine_whose_hostname_is_anothers_name_with_cluster_and_namespace(other: str) -> None:
    """A provider may take the hostname from inside of the machine. Clients know the other node by that name."""
    key = facts().machine.cluster
    full = f"{other}.{key.name}.{key.namespace}"
    asked = facts(("Hostname", full), ("InternalDNS", full.upper()), proven=verified(dns_names=(full,)))
    assert host_principals(asked, FREE) == (asked.node_name, f"{asked.node_name}.{key.name}.{key.namespace}")


def test_names_that_services_may_have_are_left_out() -> None:
    unknown = replace(FREE, serving=ServingFacts())
    asked = facts(("InternalIP", "192.0.2.17"), cluster=replace(facts().cluster, service_networks=()))
    assert "192.0.2.17" not in host_principals(asked, unknown)
    assert "192.0.2.17" in host_principals(asked, FREE)


def test_names_of_the_control_plane_are_left_out_as_far_as_they_are_known() -> None:
    """No name waits for the others: it would be missing until the next renewal."""
    serving = replace(FREE.serving, control_plane_names=frozenset({"192.0.2.17"}), control_plane_unknown="not read yet")
    asked = facts(("InternalIP", "192.0.2.17"), ("InternalIP", "192.0.2.18"))
    found = host_principals(asked, replace(FREE, serving=serving))
    assert ("192.0.2.17" in found, "192.0.2.18" in found) == (False, True)


def test_a_node_called_as_another_one_with_cluster_and_namespace() -> None:
    key = facts().machine.cluster
    asked = facts(node_name=f"short.{key.name}.{key.namespace}")
    assert "short" in host_names(asked).dns_names
    assert host_principals(asked, FREE)[0] == asked.node_name
    assert "short" not in host_principals(asked, FREE)
    with pytest.raises(HostKeysNotCertified) as error:
        host_principals(asked, taken("short"))
    assert reason(error) is HostCertificateReason.HOST_NAME_TAKEN


def test_names_are_limited() -> None:
    many = facts(*(("InternalIP", f"192.0.2.{number}") for number in range(60)))
    assert len(host_principals(many, FREE)) == MAXIMUM_NAMES
    label = ".".join(["x" * 60] * 3)
    long = facts(*(("InternalDNS", f"{label}.n{number}.example") for number in range(20)))
    names = host_principals(long, FREE)
    assert names[0] == NODE
    assert 2 < len(names) < MAXIMUM_NAMES
    assert sum(map(len, names)) <= MAXIMUM_NAME_BYTES


def test_a_name_that_is_too_long_with_cluster_and_namespace_is_left_out() -> None:
    asked = facts(node_name=".".join(["x" * 60] * 4))
    assert host_principals(asked, FREE) == (asked.node_name,)


def test_they_end_by_the_policy_and_with_the_kubelets_while_the_machine_is_deleted() -> None:
    now = facts().now.replace(microsecond=0)
    assert host_certificate_end(facts(), SETTINGS) == now + timedelta(days=30)
    going = facts(machine=machine_view(deleting=True))
    assert host_certificate_end(going, SETTINGS) == now + going.policy.deleting_duration
    short = replace(SETTINGS, host_certificate_duration=timedelta(hours=1))
    assert host_certificate_end(going, short) == now + timedelta(hours=1)


@pytest.mark.parametrize("skew", [timedelta(minutes=-5), timedelta(0), timedelta(minutes=5)])
def test_a_clock_that_is_off_by_five_minutes(skew: timedelta) -> None:
    """Test 25. The certificate begins a minute before the controller's time, and lasts as long as the policy says."""
    now = datetime(2026, 11, 27, 12, tzinfo=UTC) + skew
    planned = planned_host_keys(PROVEN, (4711,), facts(now=now), FREE, (), AUTHORITY, SETTINGS)
    assert (planned.not_before, planned.not_after) == (now - timedelta(seconds=60), now + timedelta(days=30))
    assert (planned.trust_version, planned.authority, planned.nonce_key) == (3, "SHA256:ca", "0123")
    assert [(one.public_key, one.serial_number) for one in planned.host_keys] == [(LINE, 4711)]


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (encode(HostKeysClaim(9, (claim_with(KEY, SPKI),))), 9),
        (encode(HostKeysClaim(9, (claim_with(KEY, SPKI),)))[:5] + b"\x00" * 300, 0),
        (bytes.fromhex("3005020109") + bytes.fromhex("3000"), 9),
        (bytes.fromhex("300502020009") + b"\x30\x00", 0),
        (bytes.fromhex("3003020181"), 0),
        (b"no DER", 0),
        (b"", 0),
    ],
    ids=["good", "longer than it says", "no key", "not in its only form", "negative", "no DER", "empty"],
)
def test_the_trust_that_a_refused_request_reports(value: bytes, version: int) -> None:
    assert reported_trust_version(value) == version


def former(ssh: AttestedHostKeys | ReportedTrust, authority: str, **changes: Any) -> FormerHostCertificates | None:
    """What a node with that record may present until it can read a certificate by the authority."""
    found = former_certificates(facts(record=replace(record(), ssh=ssh), **changes), authority)
    return None if isinstance(found, NoFormerHostCertificates) else found


def test_the_certificates_of_another_authority_may_be_in_place_until_it_is_known_that_they_are_not() -> None:
    first = planned_host_keys(PROVEN, (4711,), facts(), FREE, (), AUTHORITY, SETTINGS)
    assert first.former == NO_FORMER, "it has none yet"
    assert former(first, AUTHORITY.fingerprint) is None
    assert former(first, "SHA256:new") == FormerHostCertificates(AUTHORITY.fingerprint, first.not_after)
    shorter = replace(
        first,
        authority="SHA256:new",
        not_after=first.not_after - timedelta(days=9),
        former=FormerHostCertificates(AUTHORITY.fingerprint, first.not_after),
    )
    assert former(shorter, "SHA256:new") == shorter.former, "no later entry alone shows that the node got it"
    assert former(shorter, AUTHORITY.fingerprint) == FormerHostCertificates("SHA256:new", first.not_after)
    assert former(replace(shorter, former=NO_FORMER), "SHA256:new") is None


def test_who_has_no_former_certificates() -> None:
    first = planned_host_keys(PROVEN, (4711,), facts(), FREE, (), AUTHORITY, SETTINGS)
    another = replace(attested_identity(), identity="another")
    assert former(first, "SHA256:new", identity=another) is None, "another machine under the name"
    assert former(ReportedTrust(3, first.attested), "SHA256:new") is None
    assert former_certificates(facts(record=replace(record(), ssh=NO_HOST_KEYS)), "SHA256:new") == NO_FORMER
