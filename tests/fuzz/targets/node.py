"""What the node's program reads: its store, its configuration, kubeconfigs, and answers of servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from attestors.aws.node.credentials import RoleCredentials, _parse
from attestors.contract import EvidenceUnavailable
from attestors.wire.names import Purpose
from attestors.wire.statement import PinnedController
from authenticator.api.errors import PerhapsDone
from authenticator.api.server import _message, _object
from authenticator.configuration import Configuration, Given, configure
from authenticator.model.answer import Answer, read_answer
from authenticator.model.attempt import Attempt, UnreadableAttempt, decode_attempt, encode_attempt
from authenticator.model.certificate import UnusableCertificate, accept, load_key
from authenticator.model.cluster import Bootstrap, Cluster
from authenticator.model.exec_credential import UnusableExecInfo, parse_info
from authenticator.model.failures import InvalidConfiguration, StoreUnusable
from authenticator.model.kubeconfig import UnusableKubeconfig, cluster_of_kubeconfig, parse_bootstrap
from authenticator.model.pair import Pair, UnreadablePair, parse_pair
from authenticator.model.ssh_state import SSHState, UnreadableSSHState, decode_ssh_state, encode_ssh_state
from authenticator.model.trust_state import (
    TrustState,
    UnreadableTrust,
    decode_pin,
    decode_state,
    encode_pin,
    encode_state,
)
from authenticator.store.store import KnownCluster, Store
from authenticator.stored_credential import BOOTSTRAP_FILE, CLUSTER_FILE
from tests.fuzz.target import (
    MAXIMUM_MESSAGE_CHARACTERS,
    NotAnInput,
    Shape,
    Target,
    object_of,
    require,
    scratch,
    text_of,
    unicode_of,
)

_NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
_NODE_NAME: Final = "worker-1"
_CLUSTER_SERVER: Final = "https://192.0.2.1:6443"


def _pair(data: bytes) -> str:
    text = text_of(data)
    pair = parse_pair(text)
    require(pair.encode() == text, "what is written is not what was read")
    return _shown(pair)


def _shown(pair: Pair) -> str:
    """It has no representation of its own."""
    return f"{pair.encode()} {pair.not_before} {pair.not_after}"


def _issued(data: bytes) -> str:
    """The certificate and the key, divided by a zero byte: the server says the former, the latter is ours."""
    certificate, _, key = data.partition(b"\0")
    try:
        load_key(unicode_of(key))
    except ValueError as error:
        raise NotAnInput from error
    pair = accept(
        certificate,
        unicode_of(key),
        node_name=_NODE_NAME,
        purpose=Purpose.CLIENT,
        dns_names=(),
        ip_addresses=(),
        now=_NOW,
    )
    require(parse_pair(pair.encode()).encode() == pair.encode(), "a pair that the store does not read")
    return _shown(pair)


def _attempt(data: bytes) -> Attempt:
    attempt = decode_attempt(text_of(data))
    require(decode_attempt(encode_attempt(attempt)) == attempt, "what is written is not what was read")
    return attempt


def _ssh_state(data: bytes) -> SSHState:
    state = decode_ssh_state(text_of(data))
    require(decode_ssh_state(encode_ssh_state(state)) == state, "what is written is not what was read")
    return state


def _pin(data: bytes) -> PinnedController:
    pin = decode_pin(text_of(data))
    require(decode_pin(encode_pin(pin)) == pin, "what is written is not what was read")
    return pin


def _trust_state(data: bytes) -> TrustState:
    state = decode_state(text_of(data))
    require(decode_state(encode_state(state)) == state, "what is written is not what was read")
    return state


def _stored_cluster(data: bytes) -> KnownCluster | None:
    (scratch() / CLUSTER_FILE).write_bytes(data)
    return Store(scratch()).known_cluster()


def _stored_bootstrap(data: bytes) -> Bootstrap | None:
    (scratch() / BOOTSTRAP_FILE).write_bytes(data)
    return Store(scratch()).bootstrap()


def _configuration(data: bytes) -> Configuration:
    file = scratch() / "kubelet-authenticator.json"
    file.write_bytes(data)
    return configure(Given(config=str(file)), {})


def _exec_info(data: bytes) -> tuple[str, object]:
    info = parse_info(text_of(data))
    return info.api_version, info.cluster


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def _bootstrap_kubeconfig(data: bytes) -> Bootstrap:
    return parse_bootstrap(data, _no_file)


def _kubelet_kubeconfig(data: bytes) -> Cluster:
    return cluster_of_kubeconfig(data, _no_file)


def _answer(data: bytes) -> Answer:
    return read_answer(object_of(data))


class _AnyCluster:
    """Only its address is told."""

    server = _CLUSTER_SERVER


def _body(data: bytes) -> dict[str, Any]:
    message = _message(data)
    require(message.isprintable() and len(message) <= MAXIMUM_MESSAGE_CHARACTERS, "a message without bound")
    return _object(_AnyCluster(), data)  # type: ignore[arg-type]  # see there


def _role_credentials(data: bytes) -> RoleCredentials:
    return _parse(data, "nodes.example")


TARGETS: Final = (
    Target("node-pair", _pair, (UnreadablePair,)),
    Target("node-issued-certificate", _issued, (UnusableCertificate,)),
    Target("node-attempt", _attempt, (UnreadableAttempt,), Shape.JSON),
    Target("node-pin", _pin, (UnreadableTrust,), Shape.JSON),
    Target("node-ssh-state", _ssh_state, (UnreadableSSHState,), Shape.JSON),
    Target("node-trust-state", _trust_state, (UnreadableTrust,), Shape.JSON),
    Target("node-stored-cluster", _stored_cluster, (StoreUnusable,), Shape.JSON),
    Target("node-stored-bootstrap", _stored_bootstrap, (StoreUnusable,), Shape.JSON),
    Target("node-configuration", _configuration, (InvalidConfiguration,), Shape.JSON),
    Target("node-exec-info", _exec_info, (UnusableExecInfo,), Shape.JSON),
    Target("node-bootstrap-kubeconfig", _bootstrap_kubeconfig, (UnusableKubeconfig,)),
    Target("node-kubelet-kubeconfig", _kubelet_kubeconfig, (UnusableKubeconfig,)),
    Target("node-answer", _answer, shape=Shape.JSON),
    Target("node-server-body", _body, (PerhapsDone,), Shape.JSON),
    Target("node-role-credentials", _role_credentials, (EvidenceUnavailable,), Shape.JSON),
)
