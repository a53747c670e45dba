"""What the controller reads from API servers, Secrets and its operator."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.authority import der
from signer.authority.certificate_authority import load_certificate_authority
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.authority.lenient_certificate import CACertificate, CertificateUnreadable, parse_ca_certificate
from signer.authority.private_key import read_private_key
from signer.configuration import InvalidConfiguration, OperatorAttestor, read_attestors
from signer.kube.connection import ClusterConnection
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.model.auto_approval import (
    ClusterRole,
    ClusterRoleBinding,
    UnreadableGrant,
    binding_body,
    parse_cluster_role,
    parse_cluster_role_binding,
)
from signer.model.bootstrap_token import (
    BootstrapConfigView,
    InvalidBootstrapConfig,
    InvalidRequester,
    InvalidTokenSecret,
    TokenSecret,
    bootstrap_config_view,
    requester_of,
    token_secret,
)
from signer.model.cluster import ClusterKey, ClusterView, MachineView, cluster_view, machine_view
from signer.model.fields import format_time, parse_time
from signer.model.floors import NO_FLOOR
from signer.model.gateway_connection import (
    GatewayConnection,
    InvalidGatewayConnection,
    parse_gateway_connection,
    render_gateway_connection,
)
from signer.model.kubeadm_names import (
    MAXIMUM_STATED_NAMES,
    StatedNames,
    UnreadableConfiguration,
    names_in_config_map,
)
from signer.model.machine_pool import MachinePoolView, machine_pool_view
from signer.model.policy import InvalidPolicy, Policy, parse_policy
from signer.model.record import AttestedNode
from signer.model.record_object import InvalidRecord, parse_record, record_spec
from signer.model.reservation import InvalidReservation, Reservation, ReservationSeals, parse_reservation
from signer.model.saved_bindings import SavedBindings, parse_saved
from signer.model.seal import KEY_BYTES, ControllerKeys, RecordSeals
from signer.store.controller_key import MalformedControllerKey, parse_controller_keys
from signer.store.published_authorities import (
    FIELD,
    MAXIMUM_HASHES,
    NOTHING_PUBLISHED,
    PublishedAuthorities,
    authorities_to_publish,
    read_published_authorities,
)
from tests.fuzz.target import Shape, Target, object_of, require, scratch, text_of

_NOW: Final = datetime(2026, 2, 1, tzinfo=UTC)
_MAXIMUM_BYTES: Final = 64 * 1024
_KEYS: Final = ControllerKeys(b"k" * KEY_BYTES)
_SEALS: Final = RecordSeals(_KEYS)
_RESERVATION_SEALS: Final = ReservationSeals(_KEYS)
_CLUSTER: Final = ClusterKey("team-a", "prod")
_OTHER_CLUSTER: Final = ClusterKey("team-b", "prod")


def _policy(data: bytes) -> Policy:
    return parse_policy(object_of(data), NO_FLOOR)


def _record(data: bytes) -> AttestedNode:
    manifest = object_of(data)
    record = parse_record(manifest)
    again = parse_record({**manifest, "spec": {**record_spec(record), "seal": record.seal}})
    require(record_spec(again) == record_spec(record), "what is written is not what was read")
    require(_SEALS.seal(again) == _SEALS.seal(record), "what is written is sealed as something else")
    return record


def _reservation(data: bytes) -> Reservation:
    manifest = object_of(data)
    reservation = parse_reservation(manifest)
    spec = _RESERVATION_SEALS.spec(reservation.side, reservation.pair, reservation.basis)
    again = parse_reservation({**manifest, "spec": spec})
    require(again == reservation, "what is written is not what was read")
    return reservation


def _published_authorities(data: bytes) -> PublishedAuthorities:
    """The status of a policy, which its tenant may write."""
    manifest = _stored(data)
    published = read_published_authorities(manifest)
    hashes = published.hashes
    require(max(len(hashes.keys), len(hashes.issuers)) <= MAXIMUM_HASHES, "more hashes than allowed")
    require(not hashes.keys & hashes.issuers, "one hash is a key's and an issuer's")
    if published == NOTHING_PUBLISHED:
        return published
    field = authorities_to_publish(_CLUSTER, published.policy_uid, hashes, _KEYS)
    again = read_published_authorities({**manifest, "status": {FIELD: field}})
    require(again.hashes == hashes, "what is written is not what was read")
    require(again.is_sealed(_CLUSTER, _KEYS), "what is written is not sealed")
    require(not again.is_sealed(_OTHER_CLUSTER, _KEYS), "the seal counts for another Cluster")
    require(published.seal == again.seal or not published.is_sealed(_CLUSTER, _KEYS), "another seal counts")
    return published


def _cluster(data: bytes) -> ClusterView:
    return cluster_view(_stored(data))


def _kubeadm_config(data: bytes) -> StatedNames:
    found = names_in_config_map({"data": {"ClusterConfiguration": data.decode("utf-8", "surrogateescape")}})
    require(len(found.names) <= MAXIMUM_STATED_NAMES + 1, "more names than allowed")
    return found


def _machine(data: bytes) -> MachineView:
    return machine_view(_stored(data))


def _machine_pool(data: bytes) -> MachinePoolView:
    return machine_pool_view(_stored(data))


def _stored(data: bytes) -> Mapping[str, object]:
    """An object with a name and a namespace, which every API server sees to."""
    manifest = object_of(data)
    metadata = manifest.get("metadata")
    named = {**(metadata if isinstance(metadata, dict) else {}), "name": "one", "namespace": "default", "uid": "u"}
    return {**manifest, "metadata": named}


def _bootstrap_config(data: bytes) -> BootstrapConfigView:
    return bootstrap_config_view(object_of(data))


def _token_secret(data: bytes) -> TokenSecret:
    return token_secret(object_of(data))


def _requester(data: bytes) -> object:
    return requester_of(text_of(data))


def _kept_grants(data: bytes) -> SavedBindings:
    return parse_saved(object_of(data))


def _cluster_role(data: bytes) -> ClusterRole:
    return parse_cluster_role(object_of(data))


def _binding(data: bytes) -> ClusterRoleBinding:
    binding = parse_cluster_role_binding(object_of(data))
    require(isinstance(binding_body(binding), dict), "a binding that cannot be written again")
    return binding


def _kubeconfig(data: bytes) -> ClusterConnection:
    return parse_kubeconfig(data)


def _strict_yaml(data: bytes) -> object:
    return load_strict_yaml(data)


def _configuration(data: bytes) -> Mapping[str, OperatorAttestor]:
    file = scratch() / "attestors.yaml"
    file.write_bytes(data)
    return read_attestors(file)


def _gateway_connection(data: bytes) -> GatewayConnection:
    manifest = object_of(data)
    connection = parse_gateway_connection(manifest)
    written = render_gateway_connection(connection, "gateways")
    require(written["data"] == manifest["data"], "a connection has a second form")
    return connection


def _controller_key(data: bytes) -> ControllerKeys:
    return parse_controller_keys(object_of(data))


def _authority_pem(data: bytes) -> tuple[der.PemBlock, ...]:
    return der.read_blocks(data, maximum_bytes=_MAXIMUM_BYTES, maximum_blocks=16)


def _ca_certificate(data: bytes) -> CACertificate:
    return parse_ca_certificate(data)


def _certificate_authority(data: bytes) -> list[str]:
    """The certificates and the key, divided by a zero byte."""
    certificate, _, key = data.partition(b"\0")
    authority = load_certificate_authority({"tls.crt": certificate, "tls.key": key}, now=_NOW)
    return sorted(authority.ca_certificate_hashes)


def _private_key(data: bytes) -> str:
    return type(read_private_key(data)).__name__


def _time(data: bytes) -> datetime:
    moment = parse_time(text_of(data))
    require(parse_time(format_time(moment)) == moment, "what is written is not what was read")
    return moment


TARGETS: Final = (
    Target("policy", _policy, (InvalidPolicy,), Shape.JSON),
    Target("record", _record, (InvalidRecord,), Shape.JSON),
    Target("reservation", _reservation, (InvalidReservation,), Shape.JSON),
    Target("published-authorities", _published_authorities, shape=Shape.JSON),
    Target("cluster", _cluster, shape=Shape.JSON),
    Target("machine", _machine, shape=Shape.JSON),
    Target("machine-pool", _machine_pool, shape=Shape.JSON),
    Target("bootstrap-config", _bootstrap_config, (InvalidBootstrapConfig,), Shape.JSON),
    Target("bootstrap-token", _token_secret, (InvalidTokenSecret,), Shape.JSON),
    Target("requester", _requester, (InvalidRequester,)),
    Target("kept-grants", _kept_grants, (ValueError,), Shape.JSON),
    Target("cluster-role", _cluster_role, (UnreadableGrant,), Shape.JSON),
    Target("cluster-role-binding", _binding, (UnreadableGrant,), Shape.JSON),
    Target("kubeconfig", _kubeconfig, (KubeconfigRefused,)),
    Target("strict-yaml", _strict_yaml, (YamlRefused,)),
    Target("controller-configuration", _configuration, (InvalidConfiguration,)),
    Target("controller-key", _controller_key, (MalformedControllerKey,), Shape.JSON),
    Target("kubeadm-config", _kubeadm_config, (UnreadableConfiguration,)),
    Target("gateway-connection", _gateway_connection, (InvalidGatewayConnection,), Shape.JSON),
    Target("authority-pem", _authority_pem, (der.PemError,)),
    Target("ca-certificate", _ca_certificate, (CertificateUnreadable,)),
    Target("certificate-authority", _certificate_authority, (CertificateAuthorityUnavailable,)),
    Target("private-key", _private_key, (CertificateAuthorityUnavailable,)),
    Target("kubernetes-time", _time, (ValueError,)),
)
