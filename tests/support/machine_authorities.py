"""What the Machines of a control plane have of etcd's CA, the front proxy's CA and the service-account key.

As kubeadm makes it at a Machine's join from Cluster API's Secrets: each Machine has an etcd member with certificates of
its own, and its API server talks to that member alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.api_servers import ApiServer, ReplicatedControlPlane, free_port_of, replace_file
from tests.support.certificates import CertificateAuthority, private_key_pem, public_key_pem
from tests.support.etcd_members import Member, Ports
from tests.support.processes import Program

ETCD: Final = "etcd"
PROXY: Final = "proxy"
SERVICE_ACCOUNT: Final = "sa"
KINDS: Final = (ETCD, PROXY, SERVICE_ACCOUNT)
"""Suffixes of the Secrets in the management cluster."""
_PROXY_USER: Final = "front-proxy-client"

PairData = Mapping[str, bytes]
"""``tls.crt``, which may hold several certificates or public keys, and ``tls.key``, that of the first."""


def new_pairs() -> dict[str, PairData]:
    """As Cluster API makes them, by the suffix of their Secret."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pairs: dict[str, PairData] = {SERVICE_ACCOUNT: {"tls.crt": public_key_pem(key), "tls.key": private_key_pem(key)}}
    for suffix in (ETCD, PROXY):
        authority = CertificateAuthority.like_cluster_api()
        pairs[suffix] = {"tls.crt": authority.certificate_pem, "tls.key": authority.key_pem}
    return pairs


def authority_of(pair: PairData) -> CertificateAuthority:
    """The one that signs: the first certificate."""
    end = b"-----END CERTIFICATE-----\n"
    return CertificateAuthority.from_pem(pair["tls.crt"].partition(end)[0] + end, pair["tls.key"])


@dataclass
class MachineAuthorities:
    """The files and etcd members of all Machines."""

    pairs: Mapping[str, PairData] = field(default_factory=new_pairs, repr=False)
    """With which the first Machines are made."""
    members: list[Member] = field(default_factory=list)
    _control_plane: ReplicatedControlPlane | None = None

    def start(self, control_plane: ReplicatedControlPlane, addresses: Sequence[str], names: Sequence[str]) -> None:
        """Start a member for each Machine."""
        self._control_plane = control_plane
        replace_file(control_plane.folder / "sa.key", self.pairs[SERVICE_ACCOUNT]["tls.key"])
        ports: set[int] = set()
        while len(ports) < 3:
            ports.add(free_port_of(*addresses))
        own = Ports(*ports)
        for address, name in zip(addresses, names, strict=False):
            folder = control_plane.folder / f"machine-{name}"
            folder.mkdir()
            self.members.append(Member(f"etcd-{name}", address, own, folder))
        for member in self.members:
            self._write(member, self.pairs)
            self._launch(member)
        for member in self.members:
            assert member.program is not None
            member.program.wait_ready(member.has_leader)

    def member_of(self, server: ApiServer) -> Member:
        """On the same Machine."""
        return next(member for member in self.members if member.address == server.address)

    def make(self, server: ApiServer, pairs: Mapping[str, PairData]) -> None:
        """Make the Machine's files anew, and start its member again. Its API server must be stopped."""
        assert self._control_plane is not None
        member = self.member_of(server)
        assert member.program is not None
        self._control_plane.stop_program(member.program)
        self._write(member, pairs)
        self._launch(member).wait_ready(member.has_leader)

    def flags_of(self, address: str) -> dict[str, object]:
        """Flags of the API server at that address, as kubeadm sets them."""
        member = next(member for member in self.members if member.address == address)
        folder = member.folder
        return {
            "etcd-servers": member.url,
            "etcd-cafile": member.trusted,
            "etcd-certfile": folder / "apiserver-etcd-client.crt",
            "etcd-keyfile": folder / "apiserver-etcd-client.key",
            "requestheader-client-ca-file": folder / "front-proxy-ca.crt",
            "requestheader-allowed-names": _PROXY_USER,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": folder / "front-proxy-client.crt",
            "proxy-client-key-file": folder / "front-proxy-client.key",
            "service-account-key-file": folder / "sa.pub",
            "service-account-signing-key-file": folder / "sa.key",
        }

    def _write(self, member: Member, pairs: Mapping[str, PairData]) -> None:
        etcd, proxy = authority_of(pairs[ETCD]), authority_of(pairs[PROXY])
        member.trust_pem(pairs[ETCD]["tls.crt"])
        member.present(etcd)
        files = {
            "front-proxy-ca.crt": pairs[PROXY]["tls.crt"],
            "sa.pub": pairs[SERVICE_ACCOUNT]["tls.crt"],
            "sa.key": pairs[SERVICE_ACCOUNT]["tls.key"],
        }
        for name, (certificate, key) in {
            "apiserver-etcd-client": etcd.issue_client("kube-apiserver-etcd-client", ["system:masters"]),
            "front-proxy-client": proxy.issue_client(_PROXY_USER, []),
        }.items():
            files |= {f"{name}.crt": certificate, f"{name}.key": key}
        for name, content in files.items():
            replace_file(member.folder / name, content)

    def _launch(self, member: Member) -> Program:
        assert self._control_plane is not None
        return member.start(self._control_plane.programs, self._control_plane.binaries.etcd, self.members)
