"""Where the CA comes from: read by name, kept for a minute, kept longer while the management cluster is away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from signer.authority import load_certificate_authority
from signer.configuration import AllowedAuthorities
from signer.decision.authority_secrets import ABSENT_SECONDS, AuthorityUnavailable, UnreadableSecret, decode_secret
from signer.decision.authority_source import (
    FAILURE_KEPT_SECONDS,
    KEPT_SECONDS,
    AuthoritySource,
    ChosenSecrets,
    no_rotation,
)
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, Unreachable
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.authority_suffixes import (
    CLIENT_AND_SERVER,
    ONE_AUTHORITY,
    AfterRotation,
    AuthorityChoice,
    AuthoritySuffixes,
    ByExistence,
    ExpectedSecret,
    FormerAuthorities,
    NoRecord,
    NotRotated,
    Published,
    RotatingAuthorities,
    RotationOfAuthorities,
    SeparateNodeClients,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from tests.unit.signer.builders import CLUSTER
from tests.unit.signer.controller.support import NOW, Clock


@cache
def authority(number: int) -> ClusterCertificateAuthority:
    del number
    return new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=NOW)


def encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}


class World:
    """The Secrets and who reads them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[str] = []
        self.failure: ApiError | None = None
        self.secrets: dict[str, dict[str, Any]] = {}
        self.choice: AuthorityChoice = ONE_AUTHORITY
        self.changes = 0
        self.source = AuthoritySource(
            self,
            ClusterKey("team-a", "prod"),
            choose=lambda: self.choice,
            now=self.clock.now,
            monotonic=self.clock.monotonic,
        )
        self.source.on_change(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def reads(self) -> int:
        return len(self.asked)

    @property
    def secret(self) -> dict[str, Any] | None:
        return self.secrets.get("ca")

    @secret.setter
    def secret(self, secret: dict[str, Any] | None) -> None:
        self.secrets.pop("ca", None)
        if secret is not None:
            self.secrets["ca"] = secret

    async def get(self, path: str) -> dict[str, Any]:
        before, _, suffix = path.rpartition("/prod-")
        assert before == "/api/v1/namespaces/team-a/secrets"
        self.asked.append(suffix)
        if self.failure is not None:
            raise self.failure
        if suffix not in self.secrets:
            raise NotFound(path)
        return self.secrets[suffix]

    def put(self, number: int, suffix: str = "ca", /, **data: bytes | None) -> None:
        """Write a Secret; ``data`` replaces what Cluster API puts there."""
        whole = {**authority(number).secret_data, **{key.replace("_", "."): value for key, value in data.items()}}
        kept = {key: value for key, value in whole.items() if value is not None}
        metadata = {"resourceVersion": f"{number}{sorted(data)}", "labels": {"cluster.x-k8s.io/cluster-name": "prod"}}
        self.secrets[suffix] = {"metadata": metadata, "data": encoded(kept)}

    async def signing_certificate(self) -> bytes:
        return (await self.source.authority()).client.certificate.der

    async def unavailable(self) -> AuthorityUnavailable:
        with pytest.raises(AuthorityUnavailable) as raised:
            await self.source.authority()
        return raised.value


@pytest.fixture
def world() -> World:
    made = World()
    made.put(1)
    return made


async def test_it_is_read_once_a_minute(world: World) -> None:
    first = await world.source.authority()
    world.clock.pass_by(KEPT_SECONDS - 1)
    assert await world.source.authority() is first
    assert world.reads == 1
    world.clock.pass_by(2)
    assert await world.source.authority() is first, "the same Secret: nothing is parsed anew"
    assert world.reads == 2


async def test_rotation(world: World) -> None:
    before = await world.signing_certificate()
    world.put(2)
    assert await world.signing_certificate() == before
    world.clock.pass_by(KEPT_SECONDS + 1)
    assert await world.signing_certificate() != before


async def test_an_answer_that_must_be_new_shows_a_rotation_at_once(world: World) -> None:
    before = await world.signing_certificate()
    world.put(2)
    world.clock.pass_by(0.001)
    after = (await world.source.authority(not_before=world.clock.monotonic())).client.certificate.der
    assert after != before
    assert await world.signing_certificate() == after
    assert world.reads == 2


@pytest.mark.parametrize("failure", [Unreachable("gone", cause=Cause.NETWORK), Forbidden("no", status=403)])
async def test_what_must_be_new_and_cannot_be_read_is_unavailable(world: World, failure: ApiError) -> None:
    """Else a CA that was replaced would be held against honest nodes."""
    await world.signing_certificate()
    world.failure = failure
    world.clock.pass_by(1)
    with pytest.raises(AuthorityUnavailable):
        await world.source.authority(not_before=world.clock.monotonic())


async def test_a_management_cluster_that_says_no_ends_signing(world: World) -> None:
    await world.signing_certificate()
    world.failure = Forbidden("no", status=403)
    world.clock.pass_by(KEPT_SECONDS + 1)
    await world.unavailable()


async def test_of_many_that_need_it_one_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = 0

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal loads
        loads += 1
        return load_certificate_authority(*arguments, **options)

    monkeypatch.setattr("signer.decision.authority_secrets.load_certificate_authority", count)
    answers = await asyncio.gather(*(world.source.authority() for _ in range(20)))
    assert (len(set(map(id, answers))), world.reads, loads) == (1, 1, 1)


async def test_what_cannot_be_used_is_not_loaded_again_while_it_stays_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's key may take long to refuse."""
    world.put(1, tls_key=b"garbage")
    loads = 0

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal loads
        loads += 1
        return load_certificate_authority(*arguments, **options)

    monkeypatch.setattr("signer.decision.authority_secrets.load_certificate_authority", count)
    for _ in range(3):
        await world.unavailable()
        world.clock.pass_by(FAILURE_KEPT_SECONDS + 1)
    assert (world.reads, loads) == (3, 1)
    world.put(2)
    await world.signing_certificate()
    assert loads == 2


async def test_missing(world: World) -> None:
    world.secret = None
    error = await world.unavailable()
    assert (error.reason, str(error)) == ("CertificateAuthorityMissing", "Secret team-a/prod-ca does not exist")


async def test_failure_is_looked_at_again_soon(world: World) -> None:
    world.secret = None
    await world.unavailable()
    world.put(1)
    await world.unavailable()
    assert world.reads == 1
    world.clock.pass_by(FAILURE_KEPT_SECONDS + 1)
    assert await world.signing_certificate()


async def test_deleted_secret_ends_signing(world: World) -> None:
    await world.source.authority()
    world.secret = None
    world.clock.pass_by(KEPT_SECONDS + 1)
    assert (await world.unavailable()).reason == "CertificateAuthorityMissing"


@pytest.mark.parametrize(
    "data",
    [
        {"tls_key": None},
        {"tls_crt": None},
        {"tls_key": b"garbage"},
        {"tls_crt": b"garbage"},
        {"tls_key": b""},
        {"tls_key": authority(2).private_key},
    ],
    ids=["no key", "no certificate", "garbage key", "garbage certificate", "empty key", "another's key"],
)
async def test_unusable(world: World, data: dict[str, bytes | None]) -> None:
    world.put(1, **data)
    error = await world.unavailable()
    assert error.reason.isalpha()
    assert str(error).startswith("Secret team-a/prod-ca: ")
    assert "BEGIN" not in str(error)
    assert "garbage" not in str(error)


async def test_unusable_after_a_good_one_ends_signing(world: World) -> None:
    """What the operator wrote last holds: an older CA may be the one that had to go."""
    await world.source.authority()
    world.put(2, tls_key=b"garbage")
    world.clock.pass_by(KEPT_SECONDS + 1)
    await world.unavailable()


@pytest.mark.parametrize("data", [{"tls.crt": "!"}, {"tls.crt": 5}, ["tls.crt"], "text"])
async def test_secret_of_another_form(world: World, data: Any) -> None:
    world.secret = {"metadata": {"resourceVersion": "9"}, "data": data}
    assert (await world.unavailable()).reason == "CertificateAuthorityInvalid"
    with pytest.raises(UnreadableSecret):
        decode_secret(world.secret)


async def test_expired(world: World) -> None:
    world.clock.pass_by(3651 * 86400)
    assert (await world.unavailable()).reason.isalpha()


@pytest.mark.parametrize("failure", [Unreachable("away", cause=Cause.REFUSED), Forbidden("no", status=403)])
async def test_management_cluster_away(world: World, failure: ApiError) -> None:
    world.failure = failure
    error = await world.unavailable()
    assert error.reason == "ManagementClusterUnreachable"


async def test_management_cluster_goes_away_and_the_known_one_is_kept(world: World) -> None:
    before = await world.signing_certificate()
    world.failure = Unreachable("away", cause=Cause.REFUSED)
    for _ in range(3):
        world.clock.pass_by(KEPT_SECONDS + 1)
        assert await world.signing_certificate() == before
    world.failure = None
    world.put(2)
    world.clock.pass_by(KEPT_SECONDS + 1)
    assert await world.signing_certificate() != before


async def test_failures_are_raised_anew(world: World) -> None:
    """One exception object raised to many tasks would grow a traceback without end."""
    world.secret = None
    assert await world.unavailable() is not await world.unavailable()


def hash_of(number: int) -> str:
    loaded = load_certificate_authority(authority(number).secret_data, now=NOW)
    return loaded.certificate.public_key_hash


async def purposes(world: World) -> tuple[str, str]:
    """The CAs that sign client and serving certificates."""
    issuing = await world.source.authority()
    return issuing.client.certificate.public_key_hash, issuing.serving.certificate.public_key_hash


async def test_client_and_server(world: World) -> None:
    world.choice = CLIENT_AND_SERVER
    world.put(2, "cca")
    assert await purposes(world) == (hash_of(2), hash_of(1))
    assert (await world.source.authority()).accepted_hashes == {hash_of(1), hash_of(2)}
    assert sorted(world.asked) == ["ca", "cca"]


async def test_one_of_two_that_is_missing(world: World) -> None:
    world.choice = CLIENT_AND_SERVER
    error = await world.unavailable()
    assert (error.reason, str(error)) == ("CertificateAuthorityMissing", "Secret team-a/prod-cca does not exist")


async def test_one_of_two_that_is_unusable(world: World) -> None:
    world.choice = CLIENT_AND_SERVER
    world.put(2, "cca")
    world.put(1, tls_key=b"garbage")
    assert str(await world.unavailable()).startswith("Secret team-a/prod-ca: ")


async def test_secrets_that_the_policy_names(world: World) -> None:
    world.choice = AuthoritySuffixes("kubelet-client-ca", "kubelet-serving-ca")
    world.put(2, "kubelet-client-ca")
    world.put(3, "kubelet-serving-ca")
    assert await purposes(world) == (hash_of(2), hash_of(3))
    assert "ca" not in world.asked


async def test_a_changed_choice_counts_at_once(world: World) -> None:
    await world.signing_certificate()
    world.put(2, "cca")
    world.choice = CLIENT_AND_SERVER
    assert await purposes(world) == (hash_of(2), hash_of(1))


async def test_an_outage_does_not_keep_the_authority_of_another_choice(world: World) -> None:
    await world.signing_certificate()
    world.choice = CLIENT_AND_SERVER
    world.failure = Unreachable("away", cause=Cause.REFUSED)
    assert (await world.unavailable()).reason == "ManagementClusterUnreachable"


class TestByExistence:
    """A control plane of unknown kind: has it a CA for clients?"""

    @pytest.fixture(autouse=True)
    def _unknown(self, world: World) -> None:
        world.choice = ByExistence()

    async def test_there_is_one(self, world: World) -> None:
        world.put(2, "cca")
        assert await purposes(world) == (hash_of(2), hash_of(1))

    async def test_there_is_none_and_it_is_rarely_asked_for(self, world: World) -> None:
        for _ in range(5):
            assert await purposes(world) == (hash_of(1), hash_of(1))
            world.clock.pass_by(KEPT_SECONDS + 1)
        assert world.asked.count("cca") == 1
        world.put(2, "cca")
        world.clock.pass_by(ABSENT_SECONDS)
        assert await purposes(world) == (hash_of(2), hash_of(1))

    async def test_it_is_asked_for_when_the_other_changes(self, world: World) -> None:
        await purposes(world)
        world.put(3)
        world.put(2, "cca")
        world.clock.pass_by(KEPT_SECONDS + 1)
        assert await purposes(world) == (hash_of(2), hash_of(3))

    async def test_an_answer_that_must_be_new_asks_for_it(self, world: World) -> None:
        """As when the API server has refused the CA."""
        await purposes(world)
        world.put(2, "cca")
        world.clock.pass_by(1)
        await world.source.authority(not_before=world.clock.monotonic())
        assert await purposes(world) == (hash_of(2), hash_of(1))

    async def test_what_may_not_be_read_is_not_absent(self, world: World) -> None:
        world.failure = Forbidden("no", status=403)
        assert (await world.unavailable()).reason == "ManagementClusterUnreachable"


async def test_changes_are_told_once(world: World) -> None:
    for _ in range(3):
        await world.signing_certificate()
        world.clock.pass_by(KEPT_SECONDS + 1)
    assert world.changes == 1
    world.put(2)
    await world.signing_certificate()
    assert world.changes == 2


def filled_caches(policy_spec: dict[str, Any], cluster_spec: dict[str, Any]) -> Caches:
    caches = Caches(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS)
    metadata = {"namespace": CLUSTER.namespace, "name": CLUSTER.name, "uid": "u"}
    caches.policies.applied({"metadata": metadata, "spec": policy_spec})
    caches.clusters.applied({"metadata": metadata, "spec": cluster_spec})
    return caches


async def test_a_ca_that_becomes_valid(world: World) -> None:
    """Its Secret does not change."""
    early = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=NOW + timedelta(hours=1))
    world.put(2, **{key.replace(".", "_"): value for key, value in early.secret_data.items()})
    assert (await world.unavailable()).reason == "CertificateAuthorityNotYetValid"
    world.clock.pass_by(3600)
    assert await world.signing_certificate()


@pytest.mark.parametrize("suffixes", [AuthoritySuffixes("b-ca", "ca"), AuthoritySuffixes("ca", "b-ca")])
async def test_the_secret_of_another_cluster(world: World, suffixes: AuthoritySuffixes) -> None:
    """Suffix b-ca of Cluster prod names the CA of Cluster prod-b, whose nodes the policy of prod must not certify."""
    world.put(2, "b-ca")
    world.choice = suffixes
    assert len(set(await purposes(world))) == 2
    for labels in ({"cluster.x-k8s.io/cluster-name": "prod-b"}, {"cluster.x-k8s.io/cluster-name": ""}, {}):
        world.clock.pass_by(KEPT_SECONDS + 1)
        world.secrets["b-ca"]["metadata"]["labels"] = labels
        refused = await world.unavailable()
        assert refused.reason == "CertificateAuthorityNotAllowed"
        assert "team-a/prod-b-ca has no label cluster.x-k8s.io/cluster-name: prod" in str(refused)


class TestChosenSecrets:
    """The policy's choice, within the operator's bounds."""

    def chosen(
        self, spec: dict[str, str] | None, kind: str = "", allowed: AllowedAuthorities | None = None
    ) -> AuthorityChoice:
        caches = filled_caches(
            policy_spec={} if spec is None else {"certificateAuthorities": spec},
            cluster_spec={"controlPlaneRef": {"kind": kind}} if kind else {},
        )
        return ChosenSecrets(CLUSTER, caches, allowed or AllowedAuthorities())()

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("KubeadmControlPlane", ONE_AUTHORITY),
            ("RKE2ControlPlane", CLIENT_AND_SERVER),
            ("KThreesControlPlane", CLIENT_AND_SERVER),
            ("CK8sControlPlane", CLIENT_AND_SERVER),
            ("KamajiControlPlane", ByExistence()),
            ("", ByExistence()),
        ],
    )
    def test_by_the_kind_of_control_plane(self, kind: str, expected: AuthoritySuffixes | ByExistence) -> None:
        assert self.chosen(None, kind) == expected

    def test_by_the_policy(self) -> None:
        assert self.chosen({"client": "ca", "serving": "cca"}, "RKE2ControlPlane") == AuthoritySuffixes("ca", "cca")

    def test_by_the_policy_and_the_cluster_as_they_are_now(self) -> None:
        """A suffix that the policy no longer names must not sign."""
        caches = filled_caches(policy_spec={}, cluster_spec={})
        choose = ChosenSecrets(CLUSTER, caches, AllowedAuthorities())
        metadata = {"namespace": CLUSTER.namespace, "name": CLUSTER.name, "uid": "u"}
        assert choose() == ByExistence()
        named = {"certificateAuthorities": {"client": "cca", "serving": "cca"}}
        caches.policies.applied({"metadata": metadata, "spec": named})
        assert choose() == AuthoritySuffixes("cca", "cca")
        caches.policies.applied({"metadata": metadata, "spec": {}})
        assert choose() == ByExistence()
        caches.clusters.applied({"metadata": metadata, "spec": {"controlPlaneRef": {"kind": "KubeadmControlPlane"}}})
        assert choose() == ONE_AUTHORITY

    @pytest.mark.parametrize("spec", [{"client": "x", "serving": "ca"}, {"client": "ca", "serving": "x"}])
    def test_beyond_the_operators_bounds(self, spec: dict[str, str]) -> None:
        with pytest.raises(AuthorityUnavailable, match="suffix x") as raised:
            self.chosen(spec)
        assert raised.value.reason == "CertificateAuthorityNotAllowed"
        elsewhere = AllowedAuthorities(by_namespace={"other": frozenset({"ca", "x"})})
        with pytest.raises(AuthorityUnavailable):
            self.chosen(spec, allowed=elsewhere)
        here = AllowedAuthorities(by_namespace={CLUSTER.namespace: frozenset({"ca", "x"})})
        assert self.chosen(spec, allowed=here) == AuthoritySuffixes(**spec)


class TestRotation:
    """What a rotation says comes before the Secret ``<cluster>-ca``, and before no other choice."""

    ROTATING = RotatingAuthorities(ExpectedSecret("x", "d", "h"), ExpectedSecret("y", "d", "h"), (), frozenset({"h"}))

    SEPARATE = SeparateNodeClients(ExpectedSecret("node-client-ca", "d", "h"), frozenset({"h"}))

    def chosen(
        self, rotation: RotationOfAuthorities | Deferred, kind: str = "KubeadmControlPlane", **policy: Any
    ) -> AuthorityChoice:
        def knows(key: ClusterKey) -> RotationOfAuthorities:
            assert key == CLUSTER
            if isinstance(rotation, Deferred):
                raise rotation
            return rotation

        caches = filled_caches(policy_spec=policy, cluster_spec={"controlPlaneRef": {"kind": kind}})
        return ChosenSecrets(CLUSTER, caches, AllowedAuthorities(), knows)()

    def test_a_node_client_authority_that_is_proven(self) -> None:
        assert self.chosen(self.SEPARATE, nodeClientAuthority="Separate") is self.SEPARATE

    @pytest.mark.parametrize("policy", [{}, {"nodeClientAuthority": "Shared"}, {"nodeClientAuthority": "?"}])
    def test_one_that_the_policy_does_not_choose_any_more(self, policy: dict[str, str]) -> None:
        """The policy counts at once, before the authority's own part has looked at it."""
        assert self.chosen(self.SEPARATE, **policy) == AfterRotation(ONE_AUTHORITY, frozenset({"h"}))

    def test_one_of_a_cluster_whose_cas_are_elsewhere(self) -> None:
        chosen = self.chosen(self.SEPARATE, "RKE2ControlPlane", nodeClientAuthority="Separate")
        assert chosen == CLIENT_AND_SERVER

    def test_none(self) -> None:
        assert self.chosen(NotRotated()) == ONE_AUTHORITY
        assert no_rotation(CLUSTER) == NotRotated()

    def test_no_record(self) -> None:
        """It may have been deleted in the middle of a rotation."""
        chosen = self.chosen(NoRecord())
        assert chosen == AfterRotation(ONE_AUTHORITY, frozenset(), published=Published.READ)
        assert self.chosen(NoRecord(), "RKE2ControlPlane") == CLIENT_AND_SERVER

    def test_under_way(self) -> None:
        assert self.chosen(self.ROTATING) is self.ROTATING

    def test_over(self) -> None:
        assert self.chosen(FormerAuthorities(frozenset({"h"}))) == AfterRotation(ONE_AUTHORITY, frozenset({"h"}))

    @pytest.mark.parametrize(
        ("kind", "expected"), [("RKE2ControlPlane", CLIENT_AND_SERVER), ("KamajiControlPlane", ByExistence())]
    )
    def test_of_a_cluster_whose_cas_are_elsewhere(self, kind: str, expected: AuthorityChoice) -> None:
        for said in (self.ROTATING, FormerAuthorities(frozenset({"h"}))):
            assert self.chosen(said, kind) == expected

    def test_without_the_controller_key_nobody_signs(self) -> None:
        """Else the old CA would sign in the middle of a rotation."""
        with pytest.raises(AuthorityUnavailable, match="no key") as raised:
            self.chosen(Deferred("ControllerKeyUnavailable", "no key"))
        assert raised.value.reason == "ControllerKeyUnavailable"


class TestNodeClientAuthority:
    """Secret ``<cluster>-node-client-ca``, by the digest that every API server has been proven to accept."""

    @pytest.fixture
    def separate(self, world: World) -> World:
        world.put(2, "node-client-ca")
        digest = load_certificate_authority(authority(2).secret_data, now=NOW).certificate.der
        expected = ExpectedSecret("node-client-ca", hashlib.sha256(digest).hexdigest(), hash_of(2))
        world.choice = SeparateNodeClients(expected, frozenset({"former"}))
        return world

    async def test_it_signs_client_certificates_alone(self, separate: World) -> None:
        assert await purposes(separate) == (hash_of(2), hash_of(1))
        issuing = await separate.source.authority()
        assert issuing.accepted_hashes == {hash_of(1)}
        assert issuing.waiting_hashes == {"former"}

    async def test_another_ca_in_its_secret_signs_nothing(self, separate: World) -> None:
        """Neither does the cluster's in its place: nothing is signed by a CA that was not chosen."""
        separate.put(3, "node-client-ca")
        error = await separate.unavailable()
        assert error.reason == "ForeignAuthority"
        assert "team-a/prod-node-client-ca holds another CA" in str(error)

    async def test_without_its_secret_or_the_clusters_nothing_is_signed(self, separate: World) -> None:
        kept = separate.secrets.pop("node-client-ca")
        assert "prod-node-client-ca does not exist" in str(await separate.unavailable())
        separate.clock.pass_by(FAILURE_KEPT_SECONDS + 1)
        separate.secrets["node-client-ca"] = kept
        separate.secret = None
        assert "prod-ca does not exist" in str(await separate.unavailable())

    async def test_a_secret_of_another_cluster(self, separate: World) -> None:
        separate.secrets["node-client-ca"]["metadata"]["labels"] = {"cluster.x-k8s.io/cluster-name": "prod-node-client"}
        assert (await separate.unavailable()).reason == "CertificateAuthorityNotAllowed"
