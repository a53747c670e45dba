"""Records of rotations that the test seals with the controller's own key, as the controller would have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, SECRETS
from signer.model.cluster import ClusterKey
from signer.rotation.authorities import AuthorityKind, AuthorityReference, RotatedAuthority
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.record import Moment, RotationRecord, RotationSeals, WorkersRollout, record_spec
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness

BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def record(cluster: WorldCluster, phase: Phase, step: Step, **changes: Any) -> RotationRecord:
    """A rotation of the cluster CA from the cluster's own one to another."""
    old = AuthorityReference("0" * 64, cluster.ca_cert_hash, BEGAN + timedelta(days=3650))
    new = AuthorityReference("1" * 64, f"sha256:{'1' * 64}", BEGAN + timedelta(days=3650))
    values = {
        "cluster": ClusterKey(cluster.namespace, cluster.name),
        "rotation_id": "abcdefgh",
        "sequence": 1,
        "phase": phase,
        "step": step,
        "authorities": (RotatedAuthority(AuthorityKind.CLUSTER, old, new),),
        "workers_rollout": WorkersRollout.BY_CONTROLLER,
        "takes_back": TakesBack.NOT_LINKED,
        "operation": "uid/1",
        "times": MappingProxyType({Moment.STARTED: BEGAN, Moment.STEP: BEGAN + timedelta(hours=1)}),
    }
    return RotationRecord(**{**values, **changes})


def store(harness: Harness, rotation: RotationRecord) -> None:
    """Create or replace the object, sealed with the key of the controller that runs."""
    client = harness.management.client
    keys = parse_controller_keys(client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)))
    namespace, name = rotation.cluster.namespace, rotation.cluster.name
    manifest = {
        "apiVersion": CERTIFICATE_AUTHORITY_ROTATIONS.api_version,
        "kind": "CertificateAuthorityRotation",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**record_spec(rotation), "seal": RotationSeals(keys).seal(rotation)},
    }
    if rotation.sequence == 1:
        client.create(CERTIFICATE_AUTHORITY_ROTATIONS.collection(namespace), manifest)
    else:
        client.patch(CERTIFICATE_AUTHORITY_ROTATIONS.object(name, namespace), {"spec": manifest["spec"]})
