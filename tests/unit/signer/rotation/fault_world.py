"""A Cluster whose CAs are rotated by the real reconciler, observer, writer and records, over two APIs in memory.

Secrets hold real CAs, and the decision's own source says who signs. Only machines are played: an API server is made of
what the Secrets hold at that moment, as kubeadm makes it, and a node's agent takes the published trust and renews. All
that outlives a controller is in :class:`State`, so a copy of it is a backup, and a new :class:`Controller` a restart.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any, Final, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestors.contract import Security
from signer.authority import IssuingSet, load_certificate_authority
from signer.authority.authority_certificate import AuthorityContents, sign_authority_certificate
from signer.authority.der import encode_block
from signer.authority.lenient_certificate import CACertificate, parse_ca_certificate
from signer.authority.presented import Presented
from signer.authority.profiles import Validity
from signer.configuration import AllowedAuthorities
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_AUTHORITY_ROTATIONS,
    CLUSTERS_V1BETA2,
    CONFIG_MAPS,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    Resource,
)
from signer.model.cluster import (
    CLUSTER_NAME_LABEL,
    CONTROL_PLANE_LABEL,
    ClusterKey,
    ClusterView,
    MachineView,
    machine_view,
)
from signer.model.decision import Deferred
from signer.model.fields import format_time, mapping_of
from signer.model.floors import NO_FLOORS
from signer.model.record import (
    KUBELET_CLIENT,
    KUBELET_SERVING,
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    new_record,
)
from signer.model.record_object import parse_record, record_spec
from signer.model.rotation_waits import Waits
from signer.model.seal import ControllerKeys, RecordSeals
from signer.rotation.authorities import AuthorityKind, NotMade, Role, RotatedAuthority, new_rotation_id
from signer.rotation.bundles import bundle_of, digest_of, is_issued_by, read_bundle
from signer.rotation.facts import RENEWED, CanarySigner, HeldPair, NotObserved, Publication, RenewalFacts, Unusable
from signer.rotation.kubeconfigs import cluster_info_authorities
from signer.rotation.observer import WorldObserver
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION, Operation, OperationRejected, Order
from signer.rotation.phases import Phase, SigningPairs, Step, TakesBack
from signer.rotation.reconciler import RotationReconciler
from signer.rotation.record import Moment as RecordMoment
from signer.rotation.record import NotYet, RotationRecord, StoredRotation, WorkersRollout, stored_rotation
from signer.rotation.rotations import RotationChanged, Rotations
from signer.rotation.secrets import decoded, read_kept_pair, read_secret
from signer.rotation.servers.observation import (
    Accepted,
    ExpectedServer,
    Refused,
    ServerObservation,
    ServersObserved,
    Unseen,
)
from signer.rotation.servers.observing import TwoAuthorities
from signer.rotation.workload import AUTHENTICATION, CLIENT_CA_FIELD, CLUSTER_INFO, REQUEST_HEADER_FIELD
from signer.rotation.writer import Pinning
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.controller_key import controller_key_secret
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.builders import journal_entry
from tests.unit.signer.rotation.memory_api import SERVER, Interfere, MemoryAPI, MemoryClient, Objects, split

KEY: Final = ClusterKey("tenant", "blue")
OWN_NAMESPACE: Final = "own"
VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
KEYS: Final = ControllerKeys(bytes(range(32)))
POOL: Final = "pool"
NAMESPACES: Final = ("default", "kube-system")
KUBELET_LIFETIME: Final = timedelta(hours=24)
POLICY: Final = NODE_ATTESTATION_POLICIES.object(KEY.name, KEY.namespace)
CLUSTER: Final = CLUSTERS_V1BETA2.object(KEY.name, KEY.namespace)
RECORD: Final = CERTIFICATE_AUTHORITY_ROTATIONS.object(KEY.name, KEY.namespace)
PINS: Final = KUBEADM_CONFIGS_V1BETA2.object(POOL, KEY.namespace)


class Broken(AssertionError):
    """A member meets a peer that it does not accept, a node is denied, or an unexpected CA signs."""


def secret_path(suffix: str) -> str:
    """Path of Secret ``<cluster>-<suffix>``."""
    return SECRETS.object(f"{KEY.name}-{suffix}", KEY.namespace)


def certificates(pem: bytes) -> tuple[bytes, ...]:
    """DER of a bundle that the test reads."""
    found = read_bundle(pem)
    assert isinstance(found, tuple)
    return found


@lru_cache(maxsize=256)
def parsed(der: bytes) -> CACertificate:
    """A certificate."""
    return parse_ca_certificate(der)


parsed_kubeconfig = lru_cache(maxsize=64)(parse_kubeconfig)


@lru_cache(maxsize=1024)
def issued_by(der: bytes, issuer: bytes) -> bool:
    """Whether ``issuer`` signed it."""
    return is_issued_by(der, parsed(issuer))


@dataclass
class Server:
    """A Machine of the control plane, as it was made."""

    name: str
    created: datetime
    leaf: bytes
    """DER of the CA that signed its certificates."""
    link: bytes
    """DER of the link certificate that it presents; empty without one."""
    client_trust: tuple[bytes, ...]
    root_ca: bytes
    """PEM."""
    signs: tuple[bytes, bytes]
    """DER of the CAs by which its kube-controller-manager signs client and serving certificates."""
    keys: tuple[str, ...] = ()
    """Hashes of the service-account keys by which it verifies tokens; it signs with the first."""

    def is_accepted_by(self, trusted: tuple[bytes, ...], now: datetime) -> bool:
        """Whether a client that trusts these CAs accepts it."""
        if self.leaf in trusted:
            return True
        if not self.link or parsed(self.link).not_after <= now:
            return False
        fits = parsed(self.link).subject_public_key_info == parsed(self.leaf).subject_public_key_info
        return fits and any(issued_by(self.link, one) for one in trusted)


@dataclass
class Node:
    """A worker with an agent."""

    name: str
    trust: tuple[bytes, ...]
    client: bytes
    serving: bytes
    renewed: datetime
    evidence: bytes
    """DER of the CA that its newest request named."""
    waits: int = 0
    """Requests in a row that were deferred."""


@dataclass
class State:
    """Everything that outlives a controller."""

    management: Objects = field(default_factory=Objects)
    workload: Objects = field(default_factory=Objects)
    now: datetime = datetime(2026, 1, 1, tzinfo=Objects.now.tzinfo)
    servers: list[Server] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    made: int = 0
    requests: int = 0
    kinds: tuple[AuthorityKind, ...] = tuple(AuthorityKind)
    takes_back: TakesBack = TakesBack.NOT_LINKED
    """By the old CA's path length."""
    waits: Waits = field(default_factory=Waits)
    """Of the operator's configuration."""
    signing_pairs: SigningPairs = SigningPairs.ONE_PAIR
    """By the control plane's template."""
    kube_down: bool = False
    """Whether the workload cluster's API cannot be reached."""
    expected: frozenset[bytes] = frozenset()
    """DER of the CAs that may sign; empty if any may."""
    events: list[str] = field(default_factory=list)


@lru_cache(maxsize=64)
def pair_data(kind: AuthorityKind, number: int, *, limited: bool = True) -> Mapping[str, bytes]:
    """A pair as Cluster API makes it; ECDSA, for speed. Without ``limited`` its path length has no limit."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    if kind is AuthorityKind.SERVICE_ACCOUNT:
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return {"tls.crt": public, "tls.key": pem}
    made = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, key=key, serial_number=1, now=State.now)
    if limited:
        return made.secret_data
    return unlimited(made.secret_data)


def unlimited(data: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The same CA without a limit of path length."""
    (der,) = certificates(data["tls.crt"])
    authority = load_certificate_authority(dict(data), now=State.now)
    before = parsed(der)
    assert not isinstance(authority.private_key, NotMade)
    contents = AuthorityContents(
        issuer=before.subject,
        subject=before.subject,
        subject_public_key_info=before.subject_public_key_info,
        validity=Validity(before.not_before, before.not_after),
        extensions=tuple(
            (x509.BasicConstraints(ca=True, path_length=None), True)
            if isinstance(one.value, x509.BasicConstraints)
            else (one.value, one.critical)
            for one in before.extensions
        ),
    )
    signed = sign_authority_certificate(contents, cast("Any", authority.private_key))
    return {**data, "tls.crt": encode_block("CERTIFICATE", signed.der)}


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """``data`` of a Secret."""
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


class FaultWorld:
    """Both clusters, and what happens to them."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.management = MemoryAPI(self.state.management)
        self.workload = MemoryAPI(self.state.workload)

    @classmethod
    def new(
        cls,
        *,
        kinds: tuple[AuthorityKind, ...] = tuple(AuthorityKind),
        servers: int = 2,
        nodes: int = 2,
        takes_back: TakesBack = TakesBack.NOT_LINKED,
        signing_pairs: SigningPairs = SigningPairs.ONE_PAIR,
    ) -> FaultWorld:
        """A cluster whose CAs were never rotated."""
        world = cls()
        world.state.kinds, world.state.takes_back, world.state.signing_pairs = kinds, takes_back, signing_pairs
        world.management.put(
            SECRETS.object("node-attestation-controller-key", OWN_NAMESPACE), controller_key_secret(OWN_NAMESPACE, KEYS)
        )
        world._objects()
        for _ in range(servers):
            world.make_server()
        for number in range(nodes):
            world.add_node(f"node-{number}")
        return world

    def _objects(self) -> None:
        labels = {CLUSTER_NAME_LABEL: KEY.name}
        self.management.put(
            CLUSTER,
            {
                "spec": {"controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "blue-control-plane"}},
            },
        )
        self.management.put(POLICY, {"spec": {"authorizedAttestors": [{"name": "keyed-mac"}]}})
        for kind in self.state.kinds:
            limited = kind is not AuthorityKind.CLUSTER or self.state.takes_back is TakesBack.NOT_LINKED
            self.put_secret(kind.value, pair_data(kind, 0, limited=limited))
        if self.state.signing_pairs is SigningPairs.SPLIT:
            held = self.secret(AuthorityKind.CLUSTER.value)
            pairs = ((one, end) for one in ("client", "serving") for end in ("crt", "key"))
            self.put_secret("signing", {f"{one}.{end}": held[f"tls.{end}"] for one, end in pairs})
        old = self.authority()
        connection = ClusterConnection(SERVER.server, self.secret("ca")["tls.crt"])
        certificate, key = self._administrator(old)
        kubeconfig = kubeconfig_of(replace(connection, client_certificate=certificate, client_key=key), KEY.name)
        self.put_secret("kubeconfig", {"value": kubeconfig.encode()})
        self.management.put(
            PINS,
            {
                "metadata": {"labels": labels, "ownerReferences": [{"kind": "MachinePool", "name": POOL}]},
                "spec": {
                    "joinConfiguration": {
                        "discovery": {"bootstrapToken": {"caCertHashes": [parsed(old).public_key_hash]}}
                    }
                },
            },
        )
        info = kubeconfig_of(connection, KEY.name)
        self.workload.put(CLUSTER_INFO, {"data": {"kubeconfig": info}})
        self.workload.put(AUTHENTICATION, {"data": {CLIENT_CA_FIELD: "", REQUEST_HEADER_FIELD: ""}})

    def _administrator(self, authority: bytes) -> tuple[bytes, bytes]:
        """A client certificate of the cluster's administrator."""
        data = self.secret("ca")
        signer = load_pem_private_key(data["tls.key"], None)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes-admin")])
        leaf = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(x509.load_der_x509_certificate(authority).subject)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(self.state.now - timedelta(minutes=5))
            .not_valid_after(self.state.now + timedelta(days=365))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(cast("Any", signer), hashes.SHA256())
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return leaf.public_bytes(Encoding.PEM), pem

    # Objects

    def secret(self, suffix: str) -> dict[str, bytes]:
        """The decoded data of Secret ``<cluster>-<suffix>``."""
        return decoded(self.management.get(secret_path(suffix)))

    def put_secret(self, suffix: str, data: Mapping[str, bytes]) -> None:
        """Write it, as another client does."""
        kept = self.state.management.found.get(
            secret_path(suffix), {"metadata": {"labels": {CLUSTER_NAME_LABEL: KEY.name}}}
        )
        self.management.put(secret_path(suffix), {**kept, "data": encoded(data)})

    def authority(self, kind: AuthorityKind = AuthorityKind.CLUSTER) -> bytes:
        """DER of the first certificate in Secret ``<cluster>-<suffix>``."""
        return certificates(self.secret(kind.value)["tls.crt"])[0]

    def record(self) -> RotationRecord | None:
        """What the object says, whoever wrote it."""
        found = self.state.management.found.get(RECORD)
        stored = None if found is None else stored_rotation(found)
        return stored.claimed if isinstance(stored, StoredRotation) else None

    @property
    def now_record(self) -> RotationRecord:
        """The record, which exists."""
        found = self.record()
        assert found is not None
        return found

    def order(self, operation: str | Operation, *gates: str) -> None:
        """Write the annotation, as a person does."""
        value = operation.value if isinstance(operation, Operation) else operation
        annotations: dict[str, str] = {OPERATION_ANNOTATION: value}
        if gates:
            annotations[SKIP_GATES_ANNOTATION] = ",".join(gates)
        self.wait(1)  # managedFields have whole seconds
        owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{name}": {} for name in annotations}}}
        written = {"manager": "kubectl-annotate", "operation": "Update", "time": format_time(self.state.now)}
        metadata = {"annotations": annotations, "managedFields": [{**written, "fieldsV1": owned}]}
        self.management.edit(POLICY, {"metadata": metadata})

    def has_order(self) -> bool:
        """Whether the annotation is still there."""
        metadata = mapping_of(self.state.management.found[POLICY], "metadata")
        return OPERATION_ANNOTATION in mapping_of(metadata, "annotations")

    def pause(self, paused: bool) -> None:
        """Pause the Cluster, or unpause it."""
        self.management.edit(CLUSTER, {"spec": {"paused": paused}})

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.state.now += timedelta(seconds=seconds)
        self.state.management.now = self.state.workload.now = self.state.now

    # Machines

    def make_server(self) -> None:
        """KCP makes a Machine from what the Secrets hold now, and it joins."""
        state = self.state
        state.made += 1
        name = f"control-plane-{state.made}"
        leaf = self.authority()
        trust = self.secret("trust") if secret_path("trust") in state.management.found else {}
        clients = certificates(trust.get("client-ca.crt") or bundle_of(leaf))
        roots = trust.get("server-ca.crt") or bundle_of(leaf)
        link = certificates(trust.get("link.crt", b""))
        made = Server(name, state.now, leaf, link[0] if link else b"", clients, roots, self._controller_manager(leaf))
        made.keys = self.service_account_keys()
        for other in state.servers:
            if not other.is_accepted_by((leaf,), state.now):
                raise Broken(f"{name} joins with a CA that does not accept {other.name}")
            if leaf not in other.client_trust:
                raise Broken(f"{name} joins with a client certificate that {other.name} refuses")
        state.servers.append(made)
        self._put_machine(name, {CONTROL_PLANE_LABEL: ""})
        for namespace in NAMESPACES:
            path = CONFIG_MAPS.object("kube-root-ca.crt", namespace)
            self.workload.put(path, {"data": {"ca.crt": roots.decode()}})
        self._join_authentication(clients)

    def service_account_keys(self) -> tuple[str, ...]:
        """Hashes of the keys in Secret ``<cluster>-sa``, if this cluster's is rotated."""
        kind = AuthorityKind.SERVICE_ACCOUNT
        if kind not in self.state.kinds:
            return ()
        held = read_secret(kind, self.management.get(secret_path(kind.value))).held
        assert isinstance(held, HeldPair)
        return tuple(one.public_key_hash for one in held.certificates)

    def _controller_manager(self, leaf: bytes) -> tuple[bytes, bytes]:
        """What a kube-controller-manager that starts now signs with. It exits at two certificates."""
        if self.state.signing_pairs is SigningPairs.ONE_PAIR:
            return leaf, leaf
        held = self.secret("signing")
        client, serving = (certificates(held[f"{one}.crt"]) for one in ("client", "serving"))
        if (len(client), len(serving)) != (1, 1):
            raise Broken("kube-controller-manager does not start")
        return client[0], serving[0]

    def _join_authentication(self, clients: tuple[bytes, ...]) -> None:
        """The API server adds what it trusts, and removes nothing."""
        wanted = {CLIENT_CA_FIELD: clients}
        if AuthorityKind.FRONT_PROXY in self.state.kinds:
            wanted[REQUEST_HEADER_FIELD] = certificates(self.secret(AuthorityKind.FRONT_PROXY.value)["tls.crt"])
        data = {}
        for name, more in wanted.items():
            there = certificates(self.state.workload.found[AUTHENTICATION]["data"][name].encode())
            data[name] = bundle_of(*dict.fromkeys((*there, *more))).decode()
        self.workload.edit(AUTHENTICATION, {"data": data})

    def _put_machine(self, name: str, labels: Mapping[str, str]) -> None:
        self.management.put(
            MACHINES_V1BETA2.object(name, KEY.namespace),
            {
                "metadata": {"labels": dict(labels)},
                "spec": {"clusterName": KEY.name, "providerID": f"test:///{name}"},
                "status": {"nodeRef": {"name": name}},
            },
        )

    def lagging(self, record: RotationRecord) -> list[Server]:
        """The Machines of the control plane that are older than what the step published."""
        after = record.machines_made_after
        return [] if isinstance(after, NotYet) else [one for one in self.state.servers if one.created <= after]

    def roll_one(self) -> None:
        """KCP replaces the oldest Machine that lags."""
        record = self.record()
        lagging = [] if record is None else self.lagging(record)
        if not lagging:
            return
        self.wait(1)
        self.make_server()
        self.state.servers.remove(lagging[0])
        self.management.remove(MACHINES_V1BETA2.object(lagging[0].name, KEY.namespace))

    def add_node(self, name: str) -> None:
        """A worker that has joined, and got certificates of the present CA."""
        self._put_machine(name, {})
        old = self.authority()
        node = Node(name, (old,), old, old, self.state.now, old)
        self.state.nodes.append(node)
        self._journal(node, old, old, old)

    def _journal(self, node: Node, evidence: bytes, client: bytes, serving: bytes) -> None:
        """The record of the node after one attestation, sealed with the present key."""
        path = ATTESTED_NODES
        machine = machine_view(self.management.get(MACHINES_V1BETA2.object(node.name, KEY.namespace)))
        identity = AttestedIdentity("keyed-mac", f"mac:{node.name}", Security.SECURE)
        record: AttestedNode | None = None
        for kind, authority in ((KUBELET_CLIENT, client), (KUBELET_SERVING, serving)):
            self.state.requests += 1
            entry = journal_entry(
                self.state.requests,
                kind=kind,
                not_before=self.state.now - timedelta(minutes=5),
                not_after=self.state.now + KUBELET_LIFETIME,
                ca_cert_hash=parsed(authority).public_key_hash,
                evidence_ca_cert_hash=parsed(evidence).public_key_hash,
                created=self.state.now,
                decided=self.state.now,
            )
            if record is None:
                record = self._recorded(machine, node, identity, entry)
            else:
                record = record.with_entry(entry, machine=machine, identity=identity)
        assert record is not None
        keys = self.keys()
        spec = {**record_spec(record), "seal": RecordSeals(keys).seal(record)}
        own = path.object(record.name, KEY.namespace)
        before = self.state.management.found.get(own, {})
        self.management.put(own, {**before, "spec": spec})

    def _recorded(
        self, machine: MachineView, node: Node, identity: AttestedIdentity, entry: JournalEntry
    ) -> AttestedNode:
        fresh = new_record(machine, node.name, identity, entry)
        before = self.state.management.found.get(ATTESTED_NODES.object(fresh.name, KEY.namespace))
        return fresh if before is None else parse_record(before).with_entry(entry, machine=machine, identity=identity)

    def keys(self) -> ControllerKeys:
        """The controller keys that the Secret holds."""
        data = decoded(self.management.get(SECRETS.object("node-attestation-controller-key", OWN_NAMESPACE)))
        return ControllerKeys(data["current"], *([data["previous"]] if "previous" in data else []))

    def set_keys(self, keys: ControllerKeys) -> None:
        """An operator writes the Secret."""
        path = SECRETS.object("node-attestation-controller-key", OWN_NAMESPACE)
        self.management.put(path, controller_key_secret(OWN_NAMESPACE, keys))

    def take_trust(self, node: Node) -> None:
        """The agent takes what the controller publishes, if it trusts a CA of it."""
        if secret_path("trust") not in self.state.management.found:
            return
        published = certificates(self.secret("trust")["server-ca.crt"])
        if set(published) & set(node.trust):
            node.trust = published

    async def renew(self, node: Node, controller: Controller) -> None:
        """The node attests, and gets both certificates by the CAs that the decision's source names."""
        self.take_trust(node)
        try:
            signs = await controller.signers()
        except AuthorityUnavailable:
            node.waits += 1
            return
        named = parsed(node.trust[0]).public_key_hash
        if named not in signs.accepted_hashes:
            if named not in signs.waiting_hashes:
                raise Broken(f"{node.name} names a CA for which it is denied for good")
            node.waits += 1
            return
        client, serving = signs.client.certificate.der, signs.serving.certificate.der
        self.require_expected(client, serving)
        node.waits = 0
        wanted = (client, serving, node.trust[0])
        if (
            wanted == (node.client, node.serving, node.evidence)
            and self.state.now < node.renewed + KUBELET_LIFETIME / 2
        ):
            return  # a kubelet does not ask before its time
        node.client, node.serving, node.evidence = wanted
        node.renewed = self.state.now
        self._journal(node, node.trust[0], client, serving)

    def require_expected(self, *signers: bytes) -> None:
        """None but the CAs of the rotation sign."""
        if self.state.expected and not set(signers) <= self.state.expected | self.made_authorities():
            raise Broken("a CA that the rotation does not know signs")

    def require_everybody_is_accepted(self) -> None:
        """Every member accepts every peer that it may meet now."""
        (administrator,) = self._kubeconfig_client()
        trusted = self._kubeconfig_trust()
        for server in self.state.servers:
            for node in self.state.nodes:
                if not server.is_accepted_by(node.trust, self.state.now):
                    raise Broken(f"{node.name} does not accept {server.name}")
                if node.client not in server.client_trust:
                    raise Broken(f"{server.name} refuses the client certificate of {node.name}")
                if server.leaf not in node.trust:
                    raise Broken(f"{node.name} refuses the kubelet client certificate of {server.name}")
            for other in self.state.servers:
                if other.signs[0] not in server.client_trust:
                    raise Broken(f"{server.name} refuses what the controller manager of {other.name} signs")
                if not set(other.keys[:1]) <= set(server.keys):
                    raise Broken(f"{server.name} refuses the tokens that {other.name} signs")
            if not server.is_accepted_by(trusted, self.state.now):
                raise Broken(f"the kubeconfig does not accept {server.name}")
            if not any(issued_by(administrator, one) for one in server.client_trust):
                raise Broken(f"{server.name} refuses the kubeconfig's client certificate")
        for kind in self.state.kinds:
            held = read_secret(kind, self.management.get(secret_path(kind.value))).held
            if not isinstance(held, HeldPair) or held.certificates[0] != held.signs:
                raise Broken(f"the Secret of {kind.value} has no pair that begins with the key's certificate")
            if kind is AuthorityKind.CLUSTER and len(held.certificates) != 1:
                raise Broken("a bundle in the Secret of the cluster's CA")

    def _kubeconfig(self) -> Any:
        return parsed_kubeconfig(self.secret("kubeconfig")["value"])

    def _kubeconfig_client(self) -> tuple[bytes, ...]:
        return certificates(self._kubeconfig().client_certificate)

    def _kubeconfig_trust(self) -> tuple[bytes, ...]:
        return certificates(self._kubeconfig().certificate_authority)

    async def progress(self, controller: Controller) -> None:
        """A Machine of the control plane is replaced, every node renews, and time passes."""
        self.roll_one()
        for node in self.state.nodes:
            await self.renew(node, controller)
        self.wait(7200)

    def copied(self) -> FaultWorld:
        """Another world that goes on from here."""
        return FaultWorld(self.backup())

    def backup(self) -> State:
        """A copy of everything."""
        return copy.deepcopy(self.state)

    # What a test compares

    def roles(self) -> dict[str, str]:
        """A name for each authority of the record, by digest, so that worlds with other keys can be compared."""
        record = self.record()
        found: dict[str, str] = {}
        for authority in () if record is None else record.authorities:
            found[authority.old.digest] = f"{authority.kind.value}:old"
            if not isinstance(authority.new, NotMade):
                found[authority.new.digest] = f"{authority.kind.value}:new"
        return found

    def end_state(self) -> dict[str, Any]:
        """What is left, by roles instead of bytes. What API servers add to ``extension-apiserver-authentication`` until
        they are replaced counts only where the rotation prunes it.
        """
        record, roles = self.now_record, self.roles()

        def named(pem: bytes) -> list[str]:
            return [roles.get(_digest(der), "other") for der in certificates(pem)]

        held: dict[str, Any] = {}
        for path, manifest in self.state.management.found.items():
            collection, name = split(path, is_object=True)
            if collection.plural != "secrets" or collection.namespace != KEY.namespace:
                continue
            data = decoded(manifest)
            shown = name.replace(record.rotation_id, "ID")
            if "tls.crt" in data:
                held[shown] = named(data["tls.crt"]), bool(data.get("tls.key"))
            elif "client.crt" in data:
                held[shown] = named(data["client.crt"]), named(data["serving.crt"])
            elif "server-ca.crt" in data:
                held[shown] = named(data["client-ca.crt"]), named(data["server-ca.crt"]), bool(data["link.crt"])
        (administrator,) = self._kubeconfig_client()
        pins = self.state.management.found[PINS]["spec"]["joinConfiguration"]["discovery"]["bootstrapToken"]
        pinned = {one.public_key_hash: f"ca:{role.value}" for role in Role for one in self._made(record, role)}
        authentication = self.state.workload.found[AUTHENTICATION]["data"]
        info = cluster_info_authorities(self.state.workload.found[CLUSTER_INFO])
        return {
            "phase": record.phase.value,
            "step": record.step.value,
            "secrets": held,
            "kubeconfig": named(self._kubeconfig().certificate_authority),
            "administrator": [
                roles.get(_digest(der), "other")
                for der in self._cluster_certificates()
                if issued_by(administrator, der)
            ],
            "pins": [pinned.get(pin, "other") for pin in pins["caCertHashes"]],
            "authentication": [
                sorted(named(authentication[name].encode()))
                for name in (CLIENT_CA_FIELD, REQUEST_HEADER_FIELD)
                if record.phase is Phase.COMPLETED
            ],
            "cluster-info": [roles.get(digest, "other") for digest in cast("Any", info)],
            "order": self.has_order(),
        }

    def authority_certificates(self) -> set[bytes]:
        """DER of the cluster's CA, and of all that the rotation made."""
        return {self.authority(), *self.made_authorities(), *self._cluster_certificates()}

    def made_authorities(self) -> set[bytes]:
        """DER of the CAs that the rotation's Secrets have ever held with the controller's seal."""
        found: set[bytes] = set()
        prefix = secret_path(f"{AuthorityKind.CLUSTER.value}-")
        for path, contents in self.state.management.contents.items():
            for manifest in contents if path.startswith(prefix) else ():
                found |= {
                    der
                    for der in certificates(decoded(manifest)["tls.crt"])
                    if not isinstance(read_kept_pair(AuthorityKind.CLUSTER, manifest, self.keys()).held, Unusable)
                }
        return found

    @staticmethod
    def _made(record: RotationRecord, role: Role) -> Iterator[Any]:
        cluster = record.authority(AuthorityKind.CLUSTER)
        if role is Role.OLD or not isinstance(cluster.new, NotMade):
            yield cluster.of(role)

    def _cluster_certificates(self) -> set[bytes]:
        found: set[bytes] = set()
        for contents in self.state.management.contents.get(secret_path("ca"), ()):
            found |= set(certificates(decoded(contents).get("tls.crt", b"")))
        return found

    def new_authorities(self) -> dict[str, int]:
        """How many new authorities the rotation's Secrets ever held, by kind; and how many Secrets by kind and role."""
        held: dict[str, set[bytes]] = {}
        for path, contents in self.state.management.contents.items():
            name = path.rpartition("/")[2]
            for kind in self.state.kinds:
                if name.startswith(f"{KEY.name}-{kind.value}-") and not name.endswith("-old"):
                    held.setdefault(kind.value, set()).update(decoded(one)["tls.crt"] for one in contents)
        return {kind: len(found) for kind, found in held.items()}


def _digest(der: bytes) -> str:
    return hashlib.sha256(der).hexdigest()


class PlayedServers:
    """Asks the servers that the model has. See :class:`~signer.rotation.observer.AskServers`."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world
        self.asked = 0
        """How often, with two canaries each time."""

    async def __call__(
        self, endpoint: ClusterConnection, expected: tuple[ExpectedServer, ...], authorities: TwoAuthorities
    ) -> ServersObserved:
        self.asked += 1
        if self._world.state.kube_down:
            return ServersObserved.none(expected, "no connection")
        old, new = authorities.old.certificate.der, authorities.new.certificate.der
        servers = {server.name: server for server in self._world.state.servers}
        seen, unseen = [], []
        for one in expected:
            server = servers.get(one.machine)
            if server is None:
                unseen.append(Unseen(one, "no connection"))
                continue
            seen.append(
                ServerObservation(
                    server=one,
                    asked_at=SERVER.server,
                    presented=self._presented(server, old, new),
                    accepts_old=Accepted() if old in server.client_trust else Refused(),
                    accepts_new=Accepted() if new in server.client_trust else Refused(),
                    not_after=self._world.state.now + timedelta(days=365),
                    certificate_digest=digest_of(server.leaf),
                )
            )
        return ServersObserved(tuple(seen), tuple(unseen))

    def _presented(self, server: Server, old: bytes, new: bytes) -> Presented:
        now = self._world.state.now
        if server.leaf == old:
            return Presented.OLD_LINKED if server.is_accepted_by((new,), now) else Presented.OLD
        if server.leaf == new:
            return Presented.NEW_LINKED if server.is_accepted_by((old,), now) else Presented.NEW
        return Presented.FOREIGN


class PlayedLeader:
    """The kube-controller-manager of the Machine that was made first leads."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world

    async def __call__(
        self, workload: object, authorities: TwoAuthorities, rotation_id: str
    ) -> CanarySigner | NotObserved:
        record = self._world.now_record
        paused = mapping_of(self._world.state.management.found[CLUSTER], "spec").get("paused")
        written, began = record.at(RecordMoment.TRUST_WRITTEN), record.at(RecordMoment.STEP)
        early = isinstance(written, NotYet) or isinstance(began, NotYet) or written < began
        if record.step is not Step.CONTROLLER_MANAGERS_SIGN or early or self._world.lagging(record) or paused:
            raise Broken("a canary is made although nothing would come of it")
        if self._world.state.kube_down:
            return NotObserved("no connection")
        signer = self._world.state.servers[0].signs[0]
        own = {authorities.old.certificate.der: CanarySigner.OLD, authorities.new.certificate.der: CanarySigner.NEW}
        return own.get(signer, CanarySigner.OTHER)


class PlayedKeySets:
    """What the API servers publish. See :class:`~signer.rotation.observer.AskForKey`."""

    def __init__(self, world: FaultWorld) -> None:
        self._world = world

    async def __call__(
        self,
        kubeconfig: bytes,
        expected: tuple[ExpectedServer, ...],
        authorities: TwoAuthorities,
        public_key_hash: str,
    ) -> Mapping[str, Publication | NotObserved] | NotObserved:
        parse_kubeconfig(kubeconfig)
        record = self._world.now_record
        if not isinstance(record.held_at, Step) and not record.step.is_at_least(Step.SERVERS_TRUST):
            raise Broken("the API servers are asked for a key that is not published yet")
        if self._world.state.kube_down:
            return {one.machine: NotObserved("no connection") for one in expected}
        servers = {server.name: server for server in self._world.state.servers}
        return {
            one.machine: Publication.PUBLISHED if public_key_hash in servers[one.machine].keys else Publication.MISSING
            for one in expected
            if one.machine in servers
        } | {one.machine: NotObserved("no connection") for one in expected if one.machine not in servers}


class PlayedControlPlane:
    """See :class:`~signer.rotation.observer.ControlPlaneObserver`."""

    kubeadm_configs: Resource = KUBEADM_CONFIGS_V1BETA2

    def __init__(self, world: FaultWorld, client: MemoryClient) -> None:
        self._world = world
        self._client = client

    async def controller_manager_started(
        self, workload: Client, machine: MachineView, signing: SigningPairs
    ) -> datetime | NotObserved:
        if self._world.state.kube_down:
            return NotObserved("no connection")
        found = [one.created for one in self._world.state.servers if one.name == machine.name]
        return found[0] if found else NotObserved("the Machine is gone")

    async def pinning(self, cluster: ClusterView) -> Mapping[str, Pinning]:
        found = await self._client.get(PINS)
        pins = frozenset(found["spec"]["joinConfiguration"]["discovery"]["bootstrapToken"]["caCertHashes"])
        return {POOL: Pinning(pins, found["metadata"]["resourceVersion"])}

    async def renewal(self, record: RotationRecord) -> RenewalFacts:
        lagging = self._world.lagging(record)
        return RenewalFacts(tuple(one.name for one in lagging), "Machines are older") if lagging else RENEWED

    async def renew(self, record: RotationRecord) -> str:
        return ""

    async def first_record(self, order: Order, cluster: ClusterView, policy: JsonObject) -> RotationRecord:
        found = []
        for kind in self._world.state.kinds:
            held = read_secret(kind, await self._client.get(secret_path(kind.value))).held
            if not isinstance(held, HeldPair):
                raise OperationRejected(f"the Secret of authority {kind.value} has no key")
            found.append(RotatedAuthority(kind, held.signs, NotMade()))
        now = self._world.state.now.replace(microsecond=0)
        without = order.operation is Operation.START_WITHOUT_WORKERS_ROLLOUT
        return RotationRecord(
            cluster=KEY,
            rotation_id=new_rotation_id(),
            sequence=1,
            phase=Phase.PREPARING_WITHOUT_WORKERS_ROLLOUT if without else Phase.PREPARING,
            step=Step.NEW_AUTHORITY,
            authorities=tuple(found),
            workers_rollout=WorkersRollout.BY_OWNER if without else WorkersRollout.BY_CONTROLLER,
            takes_back=self._world.state.takes_back,
            signing_pairs=self._world.state.signing_pairs,
            operation=order.identifier,
            waits=self._world.state.waits,
            times={RecordMoment.STARTED: now, RecordMoment.STEP: now},
        )


class Controller:
    """One process of the controller: what it keeps in memory."""

    def __init__(self, world: FaultWorld, interfere: Interfere | None = None) -> None:
        self.world = world
        self.client = MemoryClient(world.management, interfere or Interfere())
        self.kube = MemoryClient(world.workload, interfere or Interfere())
        self.caches = Caches(VERSION, own_namespace=OWN_NAMESPACE, monotonic=self._monotonic, floors=NO_FLOORS)
        self.rotations = Rotations(cast("Any", self.client), self.caches, self.caches.authentic.keys)
        self.servers = PlayedServers(world)
        observer = WorldObserver(
            KEY,
            management=cast("Any", self.client),
            caches=self.caches,
            keys=self.caches.authentic.keys,
            ask_servers=self.servers,
            ask_controller_manager=PlayedLeader(world),
            ask_for_key=PlayedKeySets(world),
            control_plane=PlayedControlPlane(world, self.client),
            now=self._now,
        )
        self.told: list[tuple[str, str, str]] = []
        self.reconnected: list[bytes] = []
        """The kubeconfigs with which the controller was to connect again."""
        self.reconciler = RotationReconciler(
            KEY,
            management=cast("Any", self.client),
            caches=self.caches,
            rotations=self.rotations,
            observer=observer,
            node_client=self,
            tell=lambda kind, reason, message: self.told.append((kind, reason, message)),
            changed=lambda: None,
            reconnect=lambda: self.reconnected.append(world.secret("kubeconfig")["value"]),
            now=self._now,
            random=Random(0),
        )
        self._source = AuthoritySource(
            cast("Any", MemoryClient(world.management, Interfere())),
            KEY,
            choose=ChosenSecrets(KEY, self.caches, AllowedAuthorities(), self.rotations.authorities),
            now=self._now,
            monotonic=self._monotonic,
        )
        self.errors: list[Exception] = []

    async def carry_out(self, order: Order) -> None:
        """Where nothing looks after a node-client authority."""
        raise OperationRejected("there is no node-client authority yet")

    def _now(self) -> datetime:
        return self.world.state.now

    def _monotonic(self) -> float:
        return (self.world.state.now - State.now).total_seconds()

    @classmethod
    async def started(cls, world: FaultWorld, interfere: Interfere | None = None) -> Controller:
        """A process that has listed everything, and watches."""
        self = cls(world, interfere)
        quiet = MemoryClient(world.management, Interfere())
        await self.read_key()
        await self.caches.fill(cast("Any", quiet))
        paths = [call.path for call in quiet.calls if call.method == "LIST"]
        for path, cache in zip(paths, self.caches.watched(), strict=True):
            world.management.watches.append((split(path, is_object=False)[0], cache))
        return self

    async def read_key(self) -> None:
        """Read the controller key, as the process does every three minutes."""
        await self.caches.controller_key.refresh(cast("Any", MemoryClient(self.world.management, Interfere())))

    def stop(self) -> None:
        """The process ends: nothing is delivered to it."""
        own = set(map(id, self.caches.watched()))
        self.world.management.watches = [one for one in self.world.management.watches if id(one[1]) not in own]

    async def signers(self) -> IssuingSet:
        """The CAs that a decision uses now. Raises AuthorityUnavailable."""
        return await self._source.authority(not_before=self._monotonic())

    async def look(self) -> float:
        """One pass, with the errors that the reconciler's loop handles."""
        try:
            return await self.reconciler.look(cast("Client", self.kube))
        except (RotationChanged, ApiError, Deferred) as error:
            self.errors.append(error)
            return 1.0

    async def settle(self, most: int = 120) -> None:
        """Passes until the reconciler waits."""
        for _ in range(most):
            if await self.look() > 0:
                return
            self.world.require_everybody_is_accepted()
        raise AssertionError(f"{most} passes, and no end: {self.world.record()}")

    def condition(self, kind: str) -> str:
        """Reason and message of a condition; empty without it."""
        return next((f"{one.reason}: {one.message}" for one in self.reconciler.conditions if one.type == kind), "")


Done = Callable[[FaultWorld], bool]


def in_phase(*phases: Phase) -> Done:
    """Whether the rotation is in one of the phases."""
    return lambda world: (found := world.record()) is not None and found.phase in phases


def at_step(step: Step) -> Done:
    """Whether the rotation works on that step."""
    return lambda world: (found := world.record()) is not None and found.step is step


def is_held(world: FaultWorld) -> bool:
    """Whether only clients were rolled back, and no move is left."""
    found = world.record()
    return found is not None and isinstance(found.held_at, Step)


async def go_on(world: FaultWorld, controller: Controller, done: Done, *, rounds: int = 60) -> None:
    """Let controller and world act until ``done``."""
    for _ in range(rounds):
        for _ in range(150):
            if done(world) and not world.has_order():
                return
            pause = await controller.look()
            world.require_everybody_is_accepted()
            if pause:
                break
        await world.progress(controller)
        world.require_everybody_is_accepted()
    raise AssertionError(f"no end: {world.now_record}; {controller.reconciler.last and controller.reconciler.last[1]}")


def run(coroutine: Any) -> Any:
    """Run it in a loop of its own."""
    return asyncio.run(coroutine)
