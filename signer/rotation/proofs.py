"""One proof for each step: whether the world is as the step wants it. Pure.

A proof is about facts of one moment and is computed again at each pass. What could not be observed is
:class:`NotKnown`; what was observed and is not so is :class:`NotProven`. Both name the members that hold the step, and
what to do. Time alone never proves anything, except for the waits that no observation replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.desired import holds_old
from signer.rotation.facts import (
    Absent,
    Acceptance,
    CanarySigner,
    Facts,
    HeldCertificate,
    HeldPair,
    NotObserved,
    Publication,
    ServerFacts,
    ServersFacts,
    TrustFacts,
    Unusable,
)
from signer.rotation.operations import Gate
from signer.rotation.phases import SigningPairs, Step
from signer.rotation.record import Moment, NotYet, RotationRecord

AGAIN: Final = timedelta(seconds=65)
"""kube-apiserver reads its files again after at most 60 s (measured on 1.20.2). What is proven twice at this distance
was not read from a file that is about to be replaced."""
MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Proven:
    """The world is as the step wants it."""


@dataclass(frozen=True, slots=True)
class NotProven:
    """It is not, or not everywhere."""

    message: str
    """What is missing, and what to do."""
    members: tuple[str, ...] = ()
    """API servers, nodes, Machines or Secrets that lag; sorted."""


@dataclass(frozen=True, slots=True)
class NotKnown:
    """It could not be observed."""

    message: str
    members: tuple[str, ...] = ()


Proof: TypeAlias = Proven | NotProven | NotKnown
_PROVEN: Final = Proven()
_LINKED: Final = frozenset({Presented.OLD_LINKED, Presented.NEW, Presented.NEW_LINKED})
_OLD: Final = frozenset({Presented.OLD, Presented.OLD_LINKED})
_NEW: Final = frozenset({Presented.NEW, Presented.NEW_LINKED})


def all_of(*proofs: Proof) -> Proof:
    """The first that is not proven; those that were observed come before those that were not."""
    for wanted in (NotProven, NotKnown):
        for proof in proofs:
            if isinstance(proof, wanted):
                return proof
    return _PROVEN


def named(members: Iterable[str]) -> str:
    """Members for a message: the first ten, and how many more there are."""
    shown = sorted(members)
    more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
    return ", ".join(shown[:MOST_NAMED]) + more


def _lagging(members: Iterable[str], message: str) -> Proof:
    """``message`` has ``{}`` for the members' names."""
    found = tuple(sorted(members))
    return NotProven(message.format(named(found)), found) if found else _PROVEN


# Preparing


def new_authorities_exist(record: RotationRecord, facts: Facts) -> Proof:
    """Both pairs of each authority exist durably, and Secret ``<cluster>-<suffix>`` is as it was."""
    for authority in record.authorities:
        for role in Role:
            held = facts.authorities[authority.kind].pairs[role]
            if isinstance(held, Absent):
                return NotProven(f"the {role.value} pair of authority {authority.kind.value} is not kept yet")
            if not isinstance(held, HeldPair):
                return _unusable(authority.kind, held)
    return _PROVEN


def _unusable(kind: AuthorityKind, held: Unusable | HeldCertificate) -> Proof:
    why = held.message if isinstance(held, Unusable) else "it has no key any more"
    return NotProven(f"a pair that the rotation keeps for authority {kind.value} cannot be used: {why}")


def decided_by_record(record: RotationRecord, facts: Facts) -> Proof:
    """Steps that are the record alone: the leader decides by it."""
    return _PROVEN


def trust_is_published(record: RotationRecord, facts: Facts) -> Proof:
    """Everything that the controller publishes holds the step's trust. Missing writes come before proofs, so what is
    missing here could not be observed.
    """
    if record.goes_back and any(isinstance(authority.new, NotMade) for authority in record.authorities):
        return _PROVEN  # nothing was published
    if isinstance(facts.cluster_info, NotObserved):  # if there is none, nothing joins by it
        return NotKnown(f"ConfigMap kube-public/cluster-info of the workload cluster: {facts.cluster_info.message}")
    if not isinstance(facts.trust, TrustFacts):
        return NotProven("the Secret with the CAs that are trusted is not written yet")
    for authority in record.authorities:
        if not isinstance(facts.authorities[authority.kind].secret, HeldPair):
            return NotProven(f"the Secret of authority {authority.kind.value} has no usable pair")
    return _PROVEN


def servers_trust(record: RotationRecord, facts: Facts) -> Proof:
    """At every API server: the new CA's client certificates are accepted, and clients that know only the new CA accept
    what it presents. Every namespace's ``kube-root-ca.crt`` has the new CA, and every kube-controller-manager started
    after the trust was published. Every API server publishes the new service-account key.
    """
    return all_of(
        _each_server(
            facts.servers,
            lambda server: server.new is Acceptance.ACCEPTED,
            "API servers that refuse client certificates of the new CA: {}" + _until_rollout(facts),
        ),
        _each_server(
            facts.servers,
            lambda server: server.presents in _LINKED,
            "API servers that present the old CA's certificate without the link certificate, so that Machines that "
            "join after the switch would refuse them: {}; the control plane's template must append "
            "/etc/kubernetes/pki/rotation/link.crt to pki/apiserver.crt" + _until_rollout(facts),
        ),
        _controller_managers(
            record,
            facts,
            "kube-controller-managers that started before the new CA was published, and read their root CA file only "
            "at the start: {}",
        ),
        _root_ca(facts),
        _renewed(record, facts),
        service_account_key_is_published(record, facts),
    )


def service_account_key_is_published(record: RotationRecord, facts: Facts) -> Proof:
    """Every API server publishes the new service-account key, and so verifies tokens by it.

    A cluster whose API servers publish no keys at all has nobody who reads them there. For these, the age of the
    Machines alone shows which keys they have read.
    """
    if all(authority.kind is not AuthorityKind.SERVICE_ACCOUNT for authority in record.authorities):
        return _PROVEN
    found = facts.published_keys
    if isinstance(found, NotObserved):
        return NotKnown(f"whether the API servers publish the new service-account key: {found.message}")
    if not found:
        return NotKnown("the management cluster has no Machine of the control plane")
    if all(one is Publication.NOT_SERVED for one in found.values()):
        return _PROVEN
    return all_of(
        _lagging(
            (machine for machine, one in found.items() if one in (Publication.MISSING, Publication.NOT_SERVED)),
            "API servers that do not publish the new service-account key at /openid/v1/jwks, and refuse its tokens: "
            "{}; they read Secret <cluster>-sa when their Machines are made" + _until_rollout(facts),
        ),
        _unseen({machine: one.message for machine, one in found.items() if isinstance(one, NotObserved)}),
    )


def _renewed(record: RotationRecord, facts: Facts) -> Proof:
    """etcd's members, and API servers for etcd and for service accounts, read what they trust at their start alone. All
    API servers have the link certificate of the time at which their Machines were made.
    """
    return _machines_are_new(facts) if len(record.authorities) > 1 or record.link_was_renewed else _PROVEN


def _machines_are_new(facts: Facts) -> Proof:
    """Every Machine of the control plane was made after the last write, as the management cluster says."""
    if not facts.renewal.lagging:
        return _PROVEN
    lagging = facts.renewal.lagging
    return NotProven(f"{facts.renewal.cure}: {named(lagging)}{_until_rollout(facts)}", lagging)


def _until_rollout(facts: Facts) -> str:
    return f"; {facts.actuator}" if facts.actuator else ""


def _each_server(servers: ServersFacts | NotObserved, holds: Callable[[ServerFacts], bool], message: str) -> Proof:
    if isinstance(servers, NotObserved):
        return NotKnown(f"the API servers cannot be asked: {servers.message}")
    if not servers.seen and not servers.unseen:
        return NotKnown("the management cluster has no Machine of the control plane")
    lagging = _lagging((server.machine for server in servers.seen if not holds(server)), message)
    silent = {
        server.machine: observed.message
        for server in servers.seen
        for observed in (server.old, server.new)
        if isinstance(observed, NotObserved)
    }
    return all_of(lagging, _unseen({**servers.unseen, **silent}))


def _unseen(members: Mapping[str, str]) -> Proof:
    if not members:
        return _PROVEN
    shown = "; ".join(f"{name}: {members[name]}" for name in sorted(members)[:MOST_NAMED])
    return NotKnown(f"API servers that cannot be asked hold the rotation: {shown}", tuple(sorted(members)))


def _controller_managers(record: RotationRecord, facts: Facts, message: str) -> Proof:
    """Every kube-controller-manager started after the last write; ``message`` has ``{}`` for those that did not."""
    written = record.at(Moment.TRUST_WRITTEN)
    if isinstance(written, NotYet):
        return NotProven("the trust is not published yet")
    unknown = {
        machine.name: machine.controller_manager_started.message
        for machine in facts.control_plane
        if isinstance(machine.controller_manager_started, NotObserved)
    }
    earlier = (
        machine.name
        for machine in facts.control_plane
        if not isinstance(machine.controller_manager_started, NotObserved)
        and machine.controller_manager_started <= written
    )
    lagging = _lagging(earlier, message + _until_rollout(facts))
    if unknown:
        shown = "; ".join(f"{name}: {unknown[name]}" for name in sorted(unknown)[:MOST_NAMED])
        return all_of(lagging, NotKnown(f"when kube-controller-manager started: {shown}", tuple(sorted(unknown))))
    return lagging


def _root_ca(facts: Facts) -> Proof:
    if isinstance(facts.root_ca, NotObserved):
        return NotKnown(f"ConfigMaps kube-root-ca.crt of the workload cluster: {facts.root_ca.message}")
    if not facts.root_ca.namespaces:
        return NotKnown("the workload cluster has no ConfigMap kube-root-ca.crt")
    return _lagging(facts.root_ca.without_new, "namespaces whose ConfigMap kube-root-ca.crt lacks the new CA: {}")


def controller_managers_sign(record: RotationRecord, facts: Facts) -> Proof:
    """Every kube-controller-manager has the new pair for client certificates, and the one that leads signs with it.

    Kubernetes defines certificates of these signers as those that API servers accept ("Certificate Signing Requests",
    signer ``kubernetes.io/kube-apiserver-client``), and every API server accepts the new CA by now. Only the leader can
    be asked; the others are known by the age of their Machines, and by their flags.
    """
    return all_of(
        _machines_are_new(facts),
        _controller_managers(
            record, facts, "kube-controller-managers that started before they could read the new CA's pair: {}"
        ),
        _canary(facts),
    )


def _canary(facts: Facts) -> Proof:
    match facts.canary:
        case NotObserved(message):
            return NotKnown(f"with which CA kube-controller-manager signs: {message}")
        case CanarySigner.NEW:
            return _PROVEN
        case CanarySigner.OLD:
            return NotProven(
                "kube-controller-manager still signs client certificates with the old CA: the one that leads has not "
                "read Secret <cluster>-signing"
            )
        case CanarySigner.OTHER:
            return NotProven(
                "kube-controller-manager signs client certificates with a CA that is none of this rotation: see its "
                "flags cluster-signing-kube-apiserver-client-cert-file and -key-file"
            )


def nodes_trust(record: RotationRecord, facts: Facts) -> Proof:
    """Every node's newest evidence names the new CA, and its newest client certificate is by the new CA."""
    new = record.authority(AuthorityKind.CLUSTER).made.public_key_hash
    skips = record.skips(Gate.UNREACHABLE_NODES)
    return all_of(
        _lagging(
            (node.node for node in facts.nodes if node.evidence != new and not skips),
            "nodes whose kubelet has not attested with the new CA as the first one that it trusts: {}; their agents "
            "restart them, or replace their Machines",
        ),
        _lagging(
            (node.node for node in facts.nodes if node.evidence == new and node.client != new and not skips),
            "nodes whose newest client certificate is by the old CA: {}; they renew with their next request",
        ),
        _lagging(
            () if skips else facts.unattested,
            "Machines whose node never attested: {}; replace them, or let their agents attest",
        ),
        _journals_are_known(facts),
    )


def _journals_are_known(facts: Facts) -> Proof:
    unknown = tuple(sorted(node.node for node in facts.nodes if not node.is_all))
    if not unknown:
        return _PROVEN
    text = f"nodes with certificates of kinds that this version does not know: {named(unknown)}; upgrade the controller"
    return NotKnown(text, unknown)


def old_trust_is_old_enough(record: RotationRecord, facts: Facts) -> Proof:
    """Clients had the time to read the new CA from files."""
    if record.skips(Gate.TRUST_AGE) or record.has_passed(Moment.TRUST_WRITTEN, record.waits.trust_age, facts.now):
        return _PROVEN
    return NotProven(f"clients have {_minutes(record.waits.trust_age)} to read the new CA before a server presents it")


def _minutes(wait: timedelta) -> str:
    return f"{wait.total_seconds() / 60:g} minutes"


def control_plane_has_joined(record: RotationRecord, facts: Facts) -> Proof:
    """No Machine of the control plane is about to join with the old CA's files."""
    return _lagging(
        (machine.name for machine in facts.control_plane if not machine.joined),
        "Machines of the control plane that have not joined yet: {}",
    )


# Completing


def authority_is_switched(record: RotationRecord, facts: Facts) -> Proof:
    """Every Secret of an authority holds the new one, and the API servers accept the new kubeconfig's client."""
    for authority in record.authorities:
        held = facts.authorities[authority.kind].secret
        if not isinstance(held, HeldPair) or held.signs.digest != authority.made.digest:
            return NotProven(f"the Secret of authority {authority.kind.value} does not hold the new authority yet")
    return _each_server(
        facts.servers,
        lambda server: server.new is Acceptance.ACCEPTED,
        "API servers that refuse client certificates of the new CA: {}",
    )


def servers_present(record: RotationRecord, facts: Facts) -> Proof:
    """Every API server presents a certificate of the new CA; the link does not count."""
    return all_of(
        _each_server(
            facts.servers,
            lambda server: server.presents in _NEW,
            "API servers that do not present a certificate of the new CA: {}" + _until_rollout(facts),
        ),
        _renewed(record, facts),
        control_plane_has_joined(record, facts),
    )


def nodes_serve(record: RotationRecord, facts: Facts) -> Proof:
    """Every node that has a serving certificate of ours has one of the new CA."""
    new = record.authority(AuthorityKind.CLUSTER).made.public_key_hash
    skips = record.skips(Gate.UNREACHABLE_NODES)
    return _lagging(
        (node.node for node in facts.nodes if node.serving not in ("", new) and not skips),
        "nodes whose newest serving certificate is by the old CA: {}; they renew with their next request",
    )


def old_may_be_retired(record: RotationRecord, facts: Facts) -> Proof:
    """What comes before the first write that cannot be taken back."""
    overlap = record.waits.overlap
    waited = record.skips(Gate.OVERLAP) or record.has_passed(Moment.SWITCHED, overlap, facts.now)
    switched = record.at(Moment.SWITCHED)
    early = (
        ()
        if isinstance(switched, NotYet) or record.skips(Gate.MACHINES)
        else (name for name, created in facts.workers_joining.items() if created <= switched)
    )
    return all_of(
        _PROVEN
        if waited
        else NotProven(
            f"both CAs stay trusted for {overlap.total_seconds() / 3600:g} hours after the switch, so that other "
            "clients can exchange their credentials"
        ),
        _lagging(early, "Machines that were made before the switch and have not joined yet: {}"),
        nodes_trust(record, facts),
        servers_present(record, facts),
        nodes_serve(record, facts),
    )


def old_is_dropped(record: RotationRecord, facts: Facts) -> Proof:
    """Twice, at every API server: the old CA's client certificates are refused and the new CA's accepted. No watch that
    the old CA authenticated can still be open.
    """
    refused = all_of(_refuses_old(facts), _renewed(record, facts))
    since = facts.old_refused_since
    if isinstance(since, NotObserved) or facts.now - since < AGAIN:
        return all_of(refused, NotProven("the API servers are asked a second time after 65 seconds"))
    return all_of(refused, _watches_have_ended(record, facts, since))


def _refuses_old(facts: Facts) -> Proof:
    return all_of(
        _each_server(
            facts.servers,
            lambda server: server.old is Acceptance.REFUSED,
            "API servers that still accept client certificates of the old CA: {}" + _until_rollout(facts),
        ),
        _each_server(
            facts.servers,
            lambda server: server.new is Acceptance.ACCEPTED,
            "API servers that refuse client certificates of the new CA: {}",
        ),
    )


def _watches_have_ended(record: RotationRecord, facts: Facts, refused_since: datetime) -> Proof:
    """A watch goes on with the credential that began it. It ends with its API server's process, or by itself."""
    if facts.now - refused_since >= record.waits.open_watches:
        return _PROVEN
    written = record.at(Moment.TRUST_WRITTEN)
    return _lagging(
        (machine.name for machine in facts.control_plane if isinstance(written, NotYet) or machine.created <= written),
        "API servers that may still serve watches which the old CA authenticated: {}; those end within "
        f"{_minutes(record.waits.open_watches)}",
    )


def authentication_is_pruned(record: RotationRecord, facts: Facts) -> Proof:
    """Aggregated API servers are not told to trust an old CA, and API servers did not add it again."""
    if isinstance(facts.authentication, NotObserved):
        return NotKnown(f"ConfigMap extension-apiserver-authentication: {facts.authentication.message}")
    if holds_old(record, facts.authentication):
        return NotProven("ConfigMap extension-apiserver-authentication still names the old CA")
    if not record.has_passed(Moment.STEP, AGAIN, facts.now):
        return NotProven("the ConfigMap is read again after 65 seconds: an API server may add the old CA again")
    return _PROVEN


def old_keys_are_gone(record: RotationRecord, facts: Facts) -> Proof:
    """The old authorities' keys are deleted."""
    return _keys_are_gone(record, facts, Role.OLD)


# Going back


def nodes_have_returned(record: RotationRecord, facts: Facts) -> Proof:
    """No node's newest certificates are by the new CA, and none names the new CA as the first that it trusts. No API
    server presents the new CA, and no kube-controller-manager signs with it.
    """
    made = record.authority(AuthorityKind.CLUSTER).new
    if isinstance(made, NotMade):
        return _PROVEN
    new, skips = made.public_key_hash, record.skips(Gate.UNREACHABLE_NODES)
    return all_of(
        _machines_are_new(facts) if signed_by_new(record) or record.link_was_renewed else _PROVEN,
        _lagging(
            (node.node for node in facts.nodes if new in (node.client, node.serving) and not skips),
            "nodes whose newest certificate is by the new CA: {}; they renew with their next request",
        ),
        _unrecorded(record, facts),
        _lagging(
            (node.node for node in facts.nodes if node.evidence == new and not skips),
            "nodes whose kubelet has not attested with the old CA as the first one that it trusts: {}",
        ),
        _journals_are_known(facts),
        _each_server(
            facts.servers,
            lambda server: server.presents in _OLD,
            "API servers that present a certificate of the new CA: {}" + _until_rollout(facts),
        ),
        control_plane_has_joined(record, facts),
    )


def _unrecorded(record: RotationRecord, facts: Facts) -> Proof:
    """A node without a record that counts may have certificates of the new CA: its record was lost, or its seal."""
    if not signed_clients(record) or record.skips(Gate.UNREACHABLE_NODES):
        return _PROVEN
    return _lagging(
        facts.unattested,
        "Machines whose node has no record, and may use the new CA: {}; replace them, or let their agents attest",
    )


def signed_clients(record: RotationRecord) -> bool:
    """Whether the new CA may have signed a client certificate of a node: the trust of the rotation was published."""
    return not isinstance(record.at(Moment.TRUST_WRITTEN), NotYet)


def signed_by_new(record: RotationRecord) -> bool:
    """Whether a kube-controller-manager may have got the new CA's pair in the first phase.

    A record that was restored may be older than the step that gave it, so with split pairs all are replaced.
    """
    split = record.signing_pairs is SigningPairs.SPLIT and signed_clients(record)
    return split or not isinstance(record.at(Moment.CONTROLLER_MANAGERS), NotYet)


def clients_have_returned(record: RotationRecord, facts: Facts) -> Proof:
    """Every node's newest client certificate is by the old CA again."""
    new, skips = record.authority(AuthorityKind.CLUSTER).made.public_key_hash, record.skips(Gate.UNREACHABLE_NODES)
    return all_of(
        _lagging(
            (node.node for node in facts.nodes if node.client == new and not skips),
            "nodes whose newest client certificate is by the new CA: {}; they renew with their next request",
        ),
        _unrecorded(record, facts),
    )


def old_is_restored(record: RotationRecord, facts: Facts) -> Proof:
    """Every Secret of an authority holds the old one."""
    for authority in record.authorities:
        held = facts.authorities[authority.kind].secret
        if not isinstance(held, HeldPair) or held.signs.digest != authority.old.digest:
            return NotProven(f"the Secret of authority {authority.kind.value} does not hold the old authority yet")
    return _PROVEN


def new_keys_are_gone(record: RotationRecord, facts: Facts) -> Proof:
    """The new authorities' keys are deleted."""
    return _keys_are_gone(record, facts, Role.NEW)


def _keys_are_gone(record: RotationRecord, facts: Facts, role: Role) -> Proof:
    left = (
        authority.kind.value
        for authority in record.authorities
        if not (role is Role.OLD and authority.kind is AuthorityKind.SERVICE_ACCOUNT)
        and isinstance(facts.authorities[authority.kind].pairs[role], HeldPair)
    )
    return _lagging(left, f"authorities whose {role.value} key is not deleted yet: " + "{}")


def forbidden(record: RotationRecord, facts: Facts) -> Proof:
    """A person decides; nothing proves it."""
    return NotProven("exchange other clients' credentials, then order complete-ca-rotation")


PROOF_OF: Final[Mapping[Step, Callable[[RotationRecord, Facts], Proof]]] = MappingProxyType(
    {
        Step.NEW_AUTHORITY: new_authorities_exist,
        Step.ACCEPT: decided_by_record,
        Step.PUBLISH_TRUST: trust_is_published,
        Step.SERVERS_TRUST: servers_trust,
        Step.SIGN_CLIENTS: decided_by_record,
        Step.CONTROLLER_MANAGERS_SIGN: controller_managers_sign,
        Step.NODES_TRUST: nodes_trust,
        Step.PREPARED: forbidden,
        Step.SWITCH: authority_is_switched,
        Step.SERVERS_PRESENT: servers_present,
        Step.SIGN_SERVING: old_may_be_retired,
        Step.RETIRE_OLD: decided_by_record,
        Step.DROP_OLD: old_is_dropped,
        Step.PRUNE: authentication_is_pruned,
        Step.FORGET: old_keys_are_gone,
        Step.SIGN_BY_OLD: decided_by_record,
        Step.RESTORE_OLD: old_is_restored,
        Step.NODES_RETURN: nodes_have_returned,
        Step.WITHDRAW_TRUST: trust_is_published,
        Step.DISCARD_NEW: new_keys_are_gone,
    }
)


def switch_is_safe(record: RotationRecord, facts: Facts) -> Proof:
    """What must hold at the moment at which the switch begins, and was proven before."""
    return all_of(
        servers_trust(record, facts),
        nodes_trust(record, facts),
        old_trust_is_old_enough(record, facts),
        link_lasts(record, facts),
        control_plane_has_joined(record, facts),
    )


LINK_LEFT_AT_SWITCH: Final = timedelta(days=10)
"""The link must outlast the rollout after the switch, also if a person has to help it."""


def link_lasts(record: RotationRecord, facts: Facts) -> Proof:
    """Machines that join after the switch accept the API servers before them until their rollout has ended."""
    ends = facts.trust.link_not_after if isinstance(facts.trust, TrustFacts) else Absent()
    if isinstance(ends, Absent):
        return NotKnown("when the published link certificate ends")
    authority = record.authority(AuthorityKind.CLUSTER).old.not_after
    if ends - facts.now >= LINK_LEFT_AT_SWITCH or ends >= authority - timedelta(days=1):  # no longer one can be made
        return _PROVEN
    return NotProven(
        f"the link certificate ends at {ends:%Y-%m-%d}, before a slow rollout would: the controller replaces it, and "
        "the control plane's Machines, shortly"
    )
