"""Which certificates a grant gets: judged by ``ssh-keygen -L``; and which it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, Fingerprint
from attestors.wire.ssh.options import Extension, ForceCommand, SourceAddress, parse_network
from signer.access.certificates import CertificateReason, NotCertified, access_of, hop_requests
from signer.access.parts import Hop, HopRequest, IssuanceFacts, NoBastion, TargetsFound
from signer.model.access import AccessGrant
from signer.rules.access_certificates import grant_key_id, principals_of
from tests.support.access_grants import AUTHORITY, HOUR, NOW, bastion, facts_of, grant_of, issued, key_facts
from tests.support.access_objects import GRANT_UID, USER_KEY
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import find_openssh, public_keys
from tests.unit.attestors.wire.ssh.test_interoperability import assert_listed_alike
from tests.unit.signer.builders import record

INGRESS: Final = [{"ipBlock": {"cidr": "198.51.100.7/32"}}, {"ipBlock": {"cidr": "2001:db8::/64"}}]
NETWORKS: Final = (parse_network("198.51.100.7/32"), parse_network("2001:db8::/64"))
KEY_ID: Final = f"grant/team-a/repair/{GRANT_UID}/alice"


def requests(facts: IssuanceFacts | None = None, **spec: Any) -> dict[Hop, HopRequest]:
    found = hop_requests(facts or facts_of(grant_of(**spec)), key_facts())
    return {one.hop: one for one in found}


def names(request: HopRequest) -> list[str]:
    return list(map(str, request.principals))


def refused(facts: IssuanceFacts | None = None, *, keys: Any = None, **spec: Any) -> CertificateReason:
    """The reason; none of the grant's key is in the message."""
    with pytest.raises(NotCertified) as caught:
        hop_requests(facts or facts_of(grant_of(**spec)), keys or key_facts())
    assert USER_KEY.split(" ")[1] not in str(caught.value)
    assert str(caught.value).startswith(f"{caught.value.why}: ")
    return caught.value.why


# What they say


def test_a_certificate_names_each_login_on_each_node() -> None:
    found = requests(target={"nodes": ["worker-2", "worker-1"]}, logins=["root", "admin"])
    assert set(found) == {Hop.NODE}
    assert names(found[Hop.NODE]) == ["admin@worker-1", "root@worker-1", "admin@worker-2", "root@worker-2"]
    assert str(found[Hop.NODE].key_id) == KEY_ID


def test_a_grant_for_every_node_has_the_star() -> None:
    grant = grant_of(target={"allNodes": {}}, logins=["root", "admin"])
    found = {one.hop: one for one in hop_requests(facts_of(grant), key_facts())}
    assert names(found[Hop.NODE]) == ["admin@*", "root@*"]


def test_nodes_that_have_not_attested_are_left_out() -> None:
    facts = facts_of(grant_of(target={"nodes": ["worker-1", "worker-2"]}))
    some = replace(facts, targets=TargetsFound(facts.targets.nodes[:1]))
    assert names(requests(some)[Hop.NODE]) == ["root@worker-1"]
    assert refused(replace(facts, targets=TargetsFound(()))) is CertificateReason.NO_NODES


def test_found_nodes_never_widen_a_grant() -> None:
    """Whatever the look-up returns: every node, or another one."""
    facts = facts_of(grant_of())
    other = facts_of(grant_of(target={"nodes": ["worker-9"]})).targets
    assert refused(replace(facts, targets=replace(other, every_node=True))) is CertificateReason.NO_NODES


def test_nothing_is_permitted_unless_granted() -> None:
    found = requests(permissions={"pty": False})[Hop.NODE]
    assert (found.critical_options, found.extensions) == ((), ())
    assert requests()[Hop.NODE].extensions == (Extension.PERMIT_PTY,)
    both = requests(permissions={"portForwarding": True})[Hop.NODE]
    assert both.extensions == (Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY)


def test_a_direct_way_counts_from_the_creators_networks_alone() -> None:
    assert requests(ingress=INGRESS)[Hop.NODE].critical_options == (SourceAddress(NETWORKS),)


def test_a_bastion_gets_a_certificate_that_counts_nowhere_else() -> None:
    grant = grant_of(ingress=INGRESS, bastion="local", permissions={"command": "uptime"})
    found = requests(facts_of(grant, bastion=bastion("10.1.0.9/32")))
    assert names(found[Hop.BASTION]) == [f"bastion@{GRANT_UID}"]
    assert found[Hop.BASTION].extensions == (Extension.PERMIT_PORT_FORWARDING,)
    assert found[Hop.BASTION].critical_options == (SourceAddress(NETWORKS),)
    node = found[Hop.NODE]
    assert node.critical_options == (ForceCommand("uptime"), SourceAddress((parse_network("10.1.0.9/32"),)))
    assert node.key_id == found[Hop.BASTION].key_id
    unknown = requests(facts_of(grant, bastion=bastion()))
    assert unknown[Hop.NODE].critical_options == (ForceCommand("uptime"),), "the node sees the bastion, not the person"


def test_another_epoch_is_another_key_id() -> None:
    assert str(requests(facts_of(grant_of(), epoch=3))[Hop.NODE].key_id) == f"{KEY_ID}/3"
    forged = grant_key_id("team-a", "repair", GRANT_UID, "alice/3", 0)
    assert str(forged) == f"{KEY_ID}%2F3", "no user name looks like an epoch"


# Which are refused


def test_the_key_of_an_authority_is_refused() -> None:
    key = parse_key_line(USER_KEY)
    assert refused(keys=key_facts(key)) is CertificateReason.KEY_IS_AUTHORITY
    own = facts_of(grant_of(sshPublicKey=key_line(AUTHORITY.public_key)))
    assert refused(own) is CertificateReason.KEY_IS_AUTHORITY


def test_the_host_key_of_a_node_is_refused() -> None:
    assert refused(keys=key_facts(holders=(record(),))) is CertificateReason.KEY_IS_HOST_KEY


@pytest.mark.parametrize(
    "revoked",
    [
        parse_key_line(USER_KEY),
        Fingerprint.of(parse_key_line(USER_KEY)),
        CertificateRevocations(AnyAuthority(), key_ids=(KEY_ID,)),
        AUTHORITY.public_key,
    ],
)
def test_what_is_revoked_is_refused(revoked: Any) -> None:
    assert refused(keys=key_facts(revoked=(revoked,))) is CertificateReason.REVOKED


def test_what_revokes_something_else_is_in_no_way() -> None:
    others = public_keys()["nistp256"]
    found = (others, Fingerprint.of(others), CertificateRevocations(AnyAuthority(), key_ids=(f"{KEY_ID}/1",)))
    assert hop_requests(facts_of(grant_of()), key_facts(revoked=found))


def test_the_login_of_bastions_is_on_no_node() -> None:
    """Another grant's UID as the name of a node: the certificate would open that grant's bastion."""
    node = {"nodes": ["0d2f7e9e-58a4-4ad1-9a55-0d6fdf9a3c99"]}
    assert refused(target=node, logins=["bastion"]) is CertificateReason.NAME_INVALID
    assert refused(target={"allNodes": {}}, logins=["bastion"]) is CertificateReason.NAME_INVALID


def test_a_uid_that_is_no_name_is_refused() -> None:
    grant = grant_of(ingress=INGRESS)
    upper = replace(grant, metadata=replace(grant.metadata, uid="A,root@worker-2"))
    assert refused(facts_of(upper, bastion=bastion())) is CertificateReason.NAME_INVALID


@pytest.mark.parametrize("command", [" uptime", "uptime\n", "é", "x" * 1025])
def test_a_command_that_is_no_option_is_refused(command: str) -> None:
    grant = grant_of()
    changed = replace(grant, permissions=replace(grant.permissions, command=command))
    assert refused(facts_of(changed)) is CertificateReason.OPTION_INVALID


def test_a_long_name_of_a_creator_is_refused() -> None:
    """A revocation list could not name the key id."""
    assert refused(facts_of(grant_of(), creator="é" * 300)) is CertificateReason.KEY_ID_TOO_LONG


def test_a_bastion_without_ingress_is_refused() -> None:
    assert refused(facts_of(grant_of(), bastion=bastion("10.1.0.9/32"))) is CertificateReason.INGRESS_MISSING


@pytest.mark.parametrize("egress", ["10.1.0.9", "10.1.0.9/24", "all", "::ffff:10.0.0.0/104"])
def test_egress_that_is_no_network_is_refused(egress: str) -> None:
    facts = facts_of(grant_of(ingress=INGRESS), bastion=bastion(egress))
    assert refused(facts) is CertificateReason.OPTION_INVALID


@pytest.mark.parametrize("lifetime", [timedelta(0), HOUR + timedelta(seconds=1)])
def test_a_lifetime_out_of_bounds_is_refused(lifetime: timedelta) -> None:
    assert refused(facts_of(grant_of(), lifetime=lifetime)) is CertificateReason.LIFETIME_INVALID


CONTAINER: Final[dict[str, Any]] = {"container": {"namespace": "web", "pod": "web-1", "container": "app"}}


def test_a_container_gets_one_certificate_with_its_name_alone() -> None:
    found = requests(target=CONTAINER, logins=[], ingress=INGRESS, permissions={"command": "uptime"})
    assert set(found) == {Hop.CONTAINER}
    assert names(found[Hop.CONTAINER]) == ["web_web-1_app"]
    assert found[Hop.CONTAINER].critical_options == (ForceCommand("uptime"), SourceAddress(NETWORKS))
    workload = {"namespace": "web", "workload": {"kind": "Deployment", "name": "web"}, "container": "app"}
    assert names(requests(target={"container": workload}, logins=[])[Hop.CONTAINER]) == ["web_deploy.web_app"]


def test_a_container_behind_a_bastion_counts_from_there_alone() -> None:
    """So the gateway, which sees the person, refuses it."""
    grant = grant_of(target=CONTAINER, logins=[], bastion="local", ingress=INGRESS)
    found = {one.hop: one for one in hop_requests(facts_of(grant, bastion=bastion("192.0.2.9/32")), key_facts())}
    assert set(found) == {Hop.BASTION, Hop.CONTAINER}
    assert names(found[Hop.CONTAINER]) == ["web_web-1_app"]
    assert found[Hop.CONTAINER].critical_options == (SourceAddress((parse_network("192.0.2.9/32"),)),)
    assert names(found[Hop.BASTION]) == [f"bastion@{grant.metadata.uid}"]
    assert found[Hop.BASTION].critical_options == (SourceAddress(NETWORKS),)


def test_a_grant_for_a_container_opens_no_node() -> None:
    access = access_of(facts_of(grant_of(target=CONTAINER, logins=[])))
    with pytest.raises(SSHRefused, match="opens no node"):
        principals_of(access, Hop.NODE)
    with pytest.raises(SSHRefused, match="opens no node"):
        principals_of(replace(access, logins=("root",)), Hop.CONTAINER)


def test_a_grant_for_nodes_opens_no_container() -> None:
    with pytest.raises(SSHRefused, match="opens no container"):
        principals_of(access_of(facts_of(grant_of())), Hop.CONTAINER)


def test_a_container_whose_name_is_longer_than_a_certificate_takes_is_refused() -> None:
    workload = {"namespace": "n" * 63, "workload": {"kind": "Deployment", "name": "w" * 253}, "container": "c" * 63}
    assert refused(target={"container": workload}, logins=[]) is CertificateReason.NAME_INVALID


def test_more_names_than_openssh_reads_are_refused() -> None:
    grant = grant_of()
    wide = replace(grant, logins=tuple(f"u{number}" for number in range(257)))
    assert refused(facts_of(wide)) is CertificateReason.NAME_INVALID


# Bytes


@st.composite
def grants(draw: st.DrawFn) -> tuple[AccessGrant, bool]:
    logins = draw(st.lists(st.sampled_from(["root", "admin", "a.b-c", "_x", "core"]), min_size=1, unique=True))
    nodes = draw(st.lists(st.sampled_from(["worker-1", "a.example", "0", "n" * 253]), min_size=1, unique=True))
    target = draw(st.sampled_from([{"nodes": nodes}, {"allNodes": {}}]))
    networks = draw(st.lists(st.sampled_from(["198.51.100.7/32", "10.0.0.0/24", "2001:db8::/64"]), unique=True))
    permissions = {
        "pty": draw(st.booleans()),
        "portForwarding": draw(st.booleans()),
        "command": draw(st.sampled_from(["", "uptime", 'sh -c "echo $1"; true'])),
    }
    key = draw(st.sampled_from(sorted(public_keys())))
    ingress = [{"ipBlock": {"cidr": one}} for one in networks]
    line = key_line(public_keys()[key])
    grant = grant_of(target=target, logins=logins, ingress=ingress, permissions=permissions, sshPublicKey=line)
    return grant, bool(networks) and draw(st.booleans())


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(found=st.lists(grants(), min_size=10, max_size=25), creator=st.text("ab@:/%é ", min_size=1, max_size=20))
def test_ssh_keygen_lists_them_alike(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[AccessGrant, bool]], creator: str
) -> None:
    try:
        find_openssh("ssh-keygen")
    except MissingPart as missing:
        skip_or_fail(missing)
    signed: list[SignedCertificate] = []
    for grant, has_bastion in found:
        facts = facts_of(grant, creator=creator, bastion=bastion("10.1.0.9/32") if has_bastion else NoBastion())
        certificates = issued(facts)
        assert set(certificates) == ({Hop.NODE, Hop.BASTION} if has_bastion else {Hop.NODE})
        assert issued(facts) == certificates, "the same entry, the same bytes"
        signed += certificates.values()
    folder: Path = tmp_path_factory.mktemp("access")
    assert_listed_alike(folder, signed)


def test_every_part_of_an_entry_changes_the_nonce() -> None:
    def nonces(facts: IssuanceFacts, **changes: Any) -> set[bytes]:
        return {one.certificate.nonce for one in issued(facts, **changes).values()}

    grant = grant_of(ingress=INGRESS, bastion="local")
    base = facts_of(grant, bastion=bastion("10.1.0.9/32"))
    other = facts_of(grant_of(ingress=INGRESS, bastion="local", logins=["admin"]), bastion=base.bastion)
    moved = replace(base, bastion=bastion("10.1.0.10/32"))
    found = [nonces(base), nonces(other), nonces(moved), nonces(replace(base, epoch=1)), nonces(base, serial=9)]
    found += [nonces(base, now=NOW + timedelta(seconds=1)), nonces(replace(base, lifetime=timedelta(minutes=5)))]
    assert [len(one) for one in found] == [2] * len(found), "each hop has its own"
    assert found[0] & found[1] == found[0] & found[2] != set(), "the bastion's certificate is the same"
    assert len(set().union(*found)) == 2 * len(found) - 2
