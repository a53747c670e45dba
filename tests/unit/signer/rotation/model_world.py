"""A cluster as a model of certificates alone: Secrets, API servers, nodes, and clients that trust and are trusted.

It is what the plan acts on in the property test: events come in any order, and after each one every member must accept
every peer that it may meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from signer.authority.presented import Presented
from signer.model.cluster import ClusterKey
from signer.rotation.authorities import AuthorityKind, AuthorityReference, NotMade, Role, RotatedAuthority
from signer.rotation.desired import (
    LINK_LIFETIME,
    AsBefore,
    DeleteKey,
    KeepPair,
    PruneAuthentication,
    Roles,
    Signing,
    SplitPairs,
    Write,
    WriteAuthority,
    WriteClusterInfo,
    WriteKubeconfig,
    WritePins,
    WriteSigning,
    WriteTrust,
    signing,
)
from signer.rotation.facts import (
    Absent,
    Acceptance,
    AuthenticationFacts,
    AuthorityFacts,
    CanarySigner,
    ControlPlaneMachine,
    Facts,
    Held,
    HeldCertificate,
    HeldPair,
    KubeconfigFacts,
    Link,
    NodeFacts,
    NotObserved,
    Publication,
    RenewalFacts,
    RootCAFacts,
    ServerFacts,
    ServersFacts,
    SignedByKnown,
    SigningFacts,
    TrustFacts,
)
from signer.rotation.management import RENEWED_BEFORE_END
from signer.rotation.operations import Operation, Order
from signer.rotation.phases import Phase, SigningPairs, Step, TakesBack
from signer.rotation.plan import Advance, Make, Move, next_move
from signer.rotation.reconciler import SERVER_STEPS
from signer.rotation.record import Moment, RotationRecord, WorkersRollout

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ClusterKey("tenant", "blue")


def reference(role: Role, kind: AuthorityKind = AuthorityKind.CLUSTER) -> AuthorityReference:
    """The authority in that role: digests that a reader recognises."""
    digit = {"old": "0", "new": "1"}[role.value]
    end = format(list(AuthorityKind).index(kind), "x")
    return AuthorityReference(f"{digit * 63}{end}", f"sha256:{digit * 63}{end}", START + timedelta(days=3650))


def first_record(
    kinds: tuple[AuthorityKind, ...] = tuple(AuthorityKind),
    takes_back: TakesBack = TakesBack.NOT_LINKED,
    signing_pairs: SigningPairs = SigningPairs.ONE_PAIR,
) -> RotationRecord:
    """A rotation that has just been started."""
    return RotationRecord(
        cluster=KEY,
        rotation_id="abcdefgh",
        sequence=1,
        phase=Phase.PREPARING,
        step=Step.NEW_AUTHORITY,
        authorities=tuple(RotatedAuthority(kind, reference(Role.OLD, kind), NotMade()) for kind in kinds),
        workers_rollout=WorkersRollout.BY_CONTROLLER,
        takes_back=takes_back,
        operation="uid/1",
        times={Moment.STARTED: START, Moment.STEP: START},
        signing_pairs=signing_pairs,
    )


@dataclass
class Server:
    """One control-plane Machine: what it was given when it was made."""

    name: str
    created: datetime
    leaf: Role
    linked: bool
    client_trust: tuple[Role, ...]
    root_ca: tuple[Role, ...]
    admin_trust: Role
    signs: SplitPairs
    """What its kube-controller-manager signs with."""
    signs_tokens: Role
    verifies: tuple[Role, ...]
    """The service-account key by which it signs tokens, and those by which it verifies them."""
    joined: bool = False

    @property
    def presents(self) -> Presented:
        """By leaf and link."""
        if self.leaf is Role.OLD:
            return Presented.OLD_LINKED if self.linked else Presented.OLD
        return Presented.NEW_LINKED if self.linked else Presented.NEW

    def is_accepted_by(self, trusted: tuple[Role, ...]) -> bool:
        """Whether a client that trusts these CAs accepts it."""
        return self.leaf in trusted or self.linked


@dataclass
class Node:
    """One worker."""

    name: str
    trust: tuple[Role, ...]
    client: Role
    serving: Role
    joined: bool = True
    made: datetime = START


class Broken(AssertionError):
    """A member meets a peer that it does not accept."""


class ModelWorld:
    """The cluster, its rotation, and the events that happen to it."""

    def __init__(
        self,
        servers: int = 3,
        nodes: int = 2,
        takes_back: TakesBack = TakesBack.NOT_LINKED,
        signing_pairs: SigningPairs = SigningPairs.ONE_PAIR,
    ) -> None:
        self.now = START
        self.record: RotationRecord = first_record(takes_back=takes_back, signing_pairs=signing_pairs)
        self.signing = SplitPairs(Role.OLD, Role.OLD)
        kinds = tuple(AuthorityKind)
        self.secrets: dict[AuthorityKind, HeldPair] = {
            kind: HeldPair((reference(Role.OLD, kind),), reference(Role.OLD, kind)) for kind in kinds
        }
        self.pairs: dict[AuthorityKind, dict[Role, Held]] = {
            kind: {Role.OLD: Absent(), Role.NEW: Absent()} for kind in kinds
        }
        self.trust: tuple[Roles, Roles, Link] = ((Role.OLD,), (Role.OLD,), Link.NONE)
        self.kubeconfig: tuple[tuple[Role, ...], Role] = ((Role.OLD,), Role.OLD)
        self.cluster_info: tuple[Role, ...] = (Role.OLD,)
        self.authentication = {Role.OLD}
        self.pins: tuple[Role, ...] = (Role.OLD,)
        self.servers: list[Server] = []
        self._made = 0
        for _ in range(servers):
            self.make_server()
            self.servers[-1].joined = True
        self.nodes = [Node(f"node-{n}", (Role.OLD,), Role.OLD, Role.OLD) for n in range(nodes)]
        self.joining: list[Node] = []
        self.refused_since: datetime | None = None
        self.moves: list[Move] = []

    # Roles and digests

    @staticmethod
    def bundle(roles: tuple[Role, ...]) -> tuple[str, ...]:
        """The digests of the cluster's CAs."""
        return tuple(reference(role).digest for role in roles)

    def token_roles(self) -> tuple[Role, ...]:
        """The service-account keys that Secret ``<cluster>-sa`` holds; the first one signs."""
        kind = AuthorityKind.SERVICE_ACCOUNT
        found = self.secrets[kind].certificates
        return tuple(role for one in found for role in Role if reference(role, kind) == one)

    def ca_role(self) -> Role:
        """The CA that Secret ``<cluster>-ca`` holds."""
        return Role.OLD if self.secrets[AuthorityKind.CLUSTER].signs == reference(Role.OLD) else Role.NEW

    # Events

    def make_server(self) -> None:
        """KCP makes a Machine: it renders all Secrets at once, and kubeadm makes leaves by ``<cluster>-ca``."""
        self._made += 1
        client, server, link = self.trust
        leaf = self.ca_role()
        linked = (link is Link.OLD_WITH_NEW and leaf is Role.OLD) or (link is Link.NEW_WITH_OLD and leaf is Role.NEW)
        tokens = self.token_roles()
        self.servers.append(
            Server(
                f"control-plane-{self._made}", self.now, leaf, linked, client, server, admin_trust=leaf,
                signs_tokens=tokens[0], verifies=tokens,
                signs=self.signing if self.record.signing_pairs is SigningPairs.SPLIT else SplitPairs(leaf, leaf),
            )
        )  # fmt: skip
        self.authentication |= set(client)

    def join_servers(self) -> None:
        """Machines of the control plane join: with ``admin.conf``, which holds one CA, through the balancer."""
        for server in self.servers:
            if server.joined:
                continue
            for other in self.servers:
                if other.joined and not other.is_accepted_by((server.admin_trust,)):
                    raise Broken(f"{server.name} joins with CA {server.admin_trust} and meets {other.presents}")
                if other.joined and server.leaf not in other.client_trust:
                    raise Broken(f"{server.name} joins with a client certificate that {other.name} refuses")
            server.joined = True

    def roll_one(self) -> None:
        """KCP replaces the oldest Machine whose files are not those of the Secrets."""
        self.wait(1)
        self.join_servers()
        stale = [server for server in self.servers if not self._is_current(server) or server.created <= self._after()]
        if not stale:
            return
        self.make_server()
        self.join_servers()
        self.servers.remove(stale[0])

    def _after(self) -> datetime:
        """``rollout.after`` as the controller sets it."""
        moment = Moment.SWITCHED if self.record.step is Step.SERVERS_PRESENT else Moment.TRUST_WRITTEN
        after = self.record.at(moment)
        rolls = self.record.step in SERVER_STEPS
        return after if rolls and isinstance(after, datetime) else START - timedelta(days=1)

    def _is_current(self, server: Server) -> bool:
        client, roots, link = self.trust
        wanted = (link is Link.OLD_WITH_NEW and server.leaf is Role.OLD) or (
            link is Link.NEW_WITH_OLD and server.leaf is Role.NEW
        )
        return (server.client_trust, server.root_ca, server.leaf) == (client, roots, self.ca_role()) and (
            server.linked == wanted or not wanted
        )

    def renew(self, number: int) -> None:
        """One node attests, and gets both certificates; its agent first takes what is published."""
        node = self.nodes[number % len(self.nodes)]
        self.agent(node)
        decides = signing(self.record)
        signs = decides if isinstance(decides, Signing) else Signing(self.ca_role(), self.ca_role(), frozenset(Role))
        if not isinstance(decides, AsBefore) and node.trust[0] not in signs.accepted:
            raise Broken(f"{node.name} names CA {node.trust[0]}, which is not accepted")
        node.client, node.serving = signs.client, signs.serving

    def agent(self, node: Node) -> None:
        """The agent takes the trust that the controller publishes."""
        if set(self.trust[1]) & set(node.trust):
            node.trust = self.trust[1]

    def make_worker(self) -> None:
        """A Machine of a MachineDeployment: its user data pins what ``<cluster>-ca`` holds."""
        self.joining.append(
            Node(f"worker-{self._made}-{len(self.joining)}", (self.ca_role(),), Role.OLD, Role.OLD, False, self.now)
        )

    def join_worker(self) -> None:
        """It joins: one pin in ``cluster-info`` suffices, and then all of its CAs are trusted."""
        if not self.joining:
            return
        worker = self.joining.pop(0)
        if worker.trust[0] not in self.cluster_info:
            raise Broken(f"{worker.name} pins CA {worker.trust[0]}, which cluster-info lacks")
        worker.trust, worker.joined = self.cluster_info, True
        decides = signing(self.record)
        signs = decides if isinstance(decides, Signing) else Signing(self.ca_role(), self.ca_role(), frozenset(Role))
        if worker.trust[0] not in signs.accepted:
            raise Broken(f"{worker.name} names CA {worker.trust[0]}, which is not accepted")
        worker.client = worker.serving = signs.client
        worker.serving = signs.serving
        self.nodes.append(worker)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    # The controller

    def _link_end(self) -> datetime:
        """Of a link that is renewed before its end."""
        written = self.record.at(Moment.TRUST_WRITTEN)
        made = written if isinstance(written, datetime) else self.now
        if self.now - made > LINK_LIFETIME - RENEWED_BEFORE_END:
            made = self.now
        return made + LINK_LIFETIME if made.year < 9999 else made

    def facts(self) -> Facts:
        """What the controller observes."""
        seen = tuple(
            ServerFacts(
                server.name,
                server.presents,
                Acceptance.ACCEPTED if Role.OLD in server.client_trust else Acceptance.REFUSED,
                Acceptance.ACCEPTED if Role.NEW in server.client_trust else Acceptance.REFUSED,
            )
            for server in self.servers
            if server.joined
        )
        unseen = {server.name: "it has not joined" for server in self.servers if not server.joined}
        refuses = all(server.old is Acceptance.REFUSED for server in seen) and not unseen
        self.refused_since = (self.refused_since or self.now) if refuses else None
        return Facts(
            now=self.now,
            paused=False,
            authorities={kind: AuthorityFacts(self.secrets[kind], dict(self.pairs[kind])) for kind in self.secrets},
            trust=TrustFacts(self.bundle(self.trust[0]), self.bundle(self.trust[1]), self.trust[2], self._link_end()),
            kubeconfig=KubeconfigFacts(
                self.bundle(self.kubeconfig[0]), SignedByKnown(*self.bundle((self.kubeconfig[1],)))
            ),
            cluster_info=self.bundle(self.cluster_info),
            authentication=AuthenticationFacts(self.bundle(tuple(sorted(self.authentication, key=str))), ()),
            root_ca=RootCAFacts(
                4,
                () if any(Role.NEW in server.root_ca for server in self.servers[-1:]) else ("default",),
                ("default",) if any(Role.OLD in server.root_ca for server in self.servers[-1:]) else (),
            ),
            servers=ServersFacts(seen, unseen, self.now),
            old_refused_since=self.refused_since or NotObserved("not refused yet"),
            control_plane=tuple(
                ControlPlaneMachine(server.name, server.created, server.joined, server.created)
                for server in self.servers
            ),
            workers_joining={worker.name: worker.made for worker in self.joining},
            nodes=tuple(
                NodeFacts(
                    node.name,
                    node.name,
                    reference(node.trust[0]).public_key_hash,
                    reference(node.client).public_key_hash,
                    reference(node.serving).public_key_hash,
                    is_all=True,
                )
                for node in self.nodes
            ),
            unattested=(),
            renewal=RenewalFacts(
                tuple(server.name for server in self.servers if server.created <= self._after()), "older Machines"
            ),
            pins={"pool": frozenset(reference(role).public_key_hash for role in self.pins)},
            signing=SigningFacts(reference(self.signing.client).digest, reference(self.signing.serving).digest),
            # Any of them may lead; the one that was made first does.
            canary=CanarySigner(self.servers[0].signs.client.value),
            published_keys={
                server.name: Publication.PUBLISHED if Role.NEW in server.verifies else Publication.MISSING
                for server in self.servers
            },
        )

    def step(self) -> Move:
        """One pass of the controller."""
        self.wait(1)
        move = next_move(self.record, self.facts())
        self.moves.append(move)
        match move:
            case Make(write):
                self.make(write)
            case Advance(record):
                assert record.sequence == self.record.sequence + 1
                self.record = record
            case _:
                pass
        return move

    def make(self, write: Write) -> None:
        """The world takes one write."""
        match write:
            case KeepPair(kind, role):
                kept = reference(role, kind)
                self.pairs[kind][role] = HeldPair((kept,), kept)
            case WriteAuthority(kind, contents):
                held = tuple(reference(role, kind) for role in contents.certificates)
                self.secrets[kind] = HeldPair(held, reference(contents.key, kind))
            case WriteTrust(client, server, link):
                self.trust = (client, server, link)
            case WriteSigning(pairs):
                self.signing = pairs
            case WriteKubeconfig(authorities, client):
                self.kubeconfig = (authorities, client)
            case WriteClusterInfo(authorities):
                self.cluster_info = authorities
            case WritePins(_, authorities):
                self.pins = authorities
            case PruneAuthentication():
                self.authentication -= {Role.OLD}
            case DeleteKey(kind, role):
                self.pairs[kind][role] = HeldCertificate(reference(role, kind))

    def run(self, most: int = 200) -> Move:
        """Passes until the controller waits or is finished."""
        for _ in range(most):
            move = self.step()
            if not isinstance(move, Make | Advance):
                return move
        raise AssertionError(f"{most} passes, and no end: {self.moves[-4:]}")

    def order(self, operation: Operation, number: int, *, gates: tuple[str, ...] = ()) -> Order:
        """An order of a person."""
        return Order(operation, f"uid/{number}", gates)

    # The property

    def require_everybody_is_accepted(self) -> None:
        """Every member accepts every peer that it may meet now."""
        joined = [server for server in self.servers if server.joined]
        for server in joined:
            for node in self.nodes:
                if not server.is_accepted_by(node.trust):
                    raise Broken(f"{node.name} trusts {node.trust} and meets {server.name}: {server.presents}")
                if node.client not in server.client_trust:
                    raise Broken(f"{server.name} refuses the client certificate of {node.name} by {node.client}")
                # The API server's kubelet client certificate is by the CA that made its leaf.
                if server.leaf not in node.trust:
                    raise Broken(f"{node.name} refuses the kubelet client certificate of {server.name}")
            # Whichever kube-controller-manager leads signs for a client of any API server.
            for other in self.servers:
                if other.signs.client not in server.client_trust:
                    raise Broken(f"{server.name} refuses what the controller manager of {other.name} signs")
                if other.signs_tokens not in server.verifies:
                    raise Broken(f"{server.name} refuses the tokens that {other.name} signs")
            authorities, client = self.kubeconfig
            if not server.is_accepted_by(authorities):
                raise Broken(f"the kubeconfig trusts {authorities} and meets {server.name}: {server.presents}")
            if client not in server.client_trust:
                raise Broken(f"{server.name} refuses the kubeconfig's client certificate")
        for held in self.secrets.values():
            if held.certificates[0] != held.signs:
                raise Broken("a Secret whose first certificate is not that of its key")
        if len(self.secrets[AuthorityKind.CLUSTER].certificates) != 1:
            raise Broken("a bundle in the Secret of the cluster's CA")


__all__ = ["Broken", "ModelWorld", "first_record", "reference", "replace"]
