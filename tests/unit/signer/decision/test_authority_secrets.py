"""The CAs of a cluster during a rotation and after it: the record says which Secret holds which CA."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from signer.authority import CertificateAuthority, IssuingSet, load_certificate_authority
from signer.decision.authority_secrets import LOADED_SECONDS, Answer, AuthoritySecrets, AuthorityUnavailable
from signer.kube.errors import Cause, Forbidden, NotFound, Unreachable
from signer.model.authority_suffixes import (
    ONE_AUTHORITY,
    AfterRotation,
    AuthorityChoice,
    ByExistence,
    ExpectedSecret,
    Published,
    RotatingAuthorities,
    SeparateNodeClients,
)
from signer.model.cluster import ClusterKey
from tests.unit.signer.controller.support import NOW, Clock
from tests.unit.signer.decision.test_authority_source import authority, encoded

OLD, NEW, THIRD = 11, 12, 13
OLD_SUFFIX, NEW_SUFFIX = "ca-abcdefgh-old", "ca-abcdefgh"


def loaded(number: int) -> CertificateAuthority:
    return load_certificate_authority(authority(number).secret_data, now=NOW)


def hash_of(number: int) -> str:
    return loaded(number).certificate.public_key_hash


def expected(number: int, suffix: str) -> ExpectedSecret:
    return ExpectedSecret(suffix, hashlib.sha256(loaded(number).certificate.der).hexdigest(), hash_of(number))


OLD_SECRET, NEW_SECRET = expected(OLD, OLD_SUFFIX), expected(NEW, NEW_SUFFIX)
BOTH = frozenset({hash_of(OLD), hash_of(NEW)})
ACCEPT = RotatingAuthorities(OLD_SECRET, OLD_SECRET, (NEW_SECRET,), BOTH)
SIGN_CLIENTS = RotatingAuthorities(NEW_SECRET, OLD_SECRET, (), BOTH)
RETIRED = RotatingAuthorities(NEW_SECRET, NEW_SECRET, (), BOTH)


class World:
    """Secrets, and how often each was read."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.asked: list[str] = []
        self.objects: dict[str, dict[str, Any] | Exception] = {}
        self.secrets = self.restarted()
        self.put(OLD, "ca")
        self.put(OLD, OLD_SUFFIX)
        self.put(NEW, NEW_SUFFIX)

    def restarted(self) -> AuthoritySecrets:
        return AuthoritySecrets(self, ClusterKey("team-a", "prod"), now=self.clock.now, monotonic=self.clock.monotonic)

    def put(self, number: int, suffix: str, *, cluster: str = "prod", **data: bytes) -> None:
        whole = {**authority(number).secret_data, **{name.replace("_", "."): value for name, value in data.items()}}
        version = f"{number}{cluster}{sorted(data)}"
        metadata = {"resourceVersion": version, "labels": {"cluster.x-k8s.io/cluster-name": cluster}}
        self.objects[suffix] = {"metadata": metadata, "data": encoded(whole)}

    async def get(self, path: str) -> dict[str, Any]:
        _, _, suffix = path.rpartition("/prod-")
        self.asked.append(suffix)
        found = self.objects.get(suffix, NotFound(path))
        if isinstance(found, Exception):
            raise found
        return found

    async def answer(self, choice: AuthorityChoice) -> Answer:
        return await self.secrets.read(choice, not_before=self.clock.monotonic())

    async def issuing(self, choice: AuthorityChoice) -> IssuingSet:
        answer = await self.answer(choice)
        assert isinstance(answer, IssuingSet), answer
        return answer

    async def unavailable(self, choice: AuthorityChoice) -> AuthorityUnavailable:
        answer = await self.answer(choice)
        assert isinstance(answer, AuthorityUnavailable), answer
        return answer


@pytest.fixture
def world() -> World:
    return World()


async def test_who_signs_and_whom_evidence_may_name(world: World) -> None:
    found = await world.issuing(ACCEPT)
    assert (found.client, found.serving) == (loaded(OLD), loaded(OLD))
    assert (found.accepted_hashes, found.waiting_hashes) == (BOTH, frozenset())
    found = await world.issuing(SIGN_CLIENTS)
    assert (found.client, found.serving) == (loaded(NEW), loaded(OLD))
    found = await world.issuing(RETIRED)
    assert found.accepted_hashes == {hash_of(NEW)}
    assert found.waiting_hashes == {hash_of(OLD)}


async def test_the_clusters_own_secret_is_not_read(world: World) -> None:
    """It changes hands in the middle, and a tenant may edit it."""
    world.put(THIRD, "ca")
    found = await world.issuing(ACCEPT)
    assert hash_of(THIRD) not in found.accepted_hashes
    assert set(world.asked) == {OLD_SUFFIX, NEW_SUFFIX}


@pytest.mark.parametrize(("suffix", "choice"), [(OLD_SUFFIX, SIGN_CLIENTS), (NEW_SUFFIX, SIGN_CLIENTS)])
async def test_another_ca_than_the_record_names_signs_nothing(
    world: World, suffix: str, choice: RotatingAuthorities
) -> None:
    """A tenant's own CA, and the two Secrets swapped."""
    for number in (THIRD, OLD if suffix == NEW_SUFFIX else NEW):
        world.put(number, suffix)
        refused = await world.unavailable(choice)
        assert refused.reason == "ForeignAuthority"
        assert f"Secret team-a/prod-{suffix} holds another CA" in str(refused)


async def test_the_digest_is_that_of_the_certificate_and_not_of_its_key(world: World) -> None:
    """A certificate of the same key, made by another, may have other names, times and constraints."""
    same_key = replace(OLD_SECRET, digest=NEW_SECRET.digest)
    assert (await world.unavailable(replace(ACCEPT, client=same_key))).reason == "ForeignAuthority"


@pytest.mark.parametrize("number", [OLD, THIRD])
async def test_another_ca_is_not_accepted_either(world: World, number: int) -> None:
    """Evidence that names the CA that should be there waits."""
    world.put(number, NEW_SUFFIX)
    found = await world.issuing(ACCEPT)
    assert found.also_accepted == ()
    assert found.accepted_hashes == {hash_of(OLD)}
    assert found.waiting_hashes == {hash_of(NEW)}


@pytest.mark.parametrize("part", ["missing", "unusable"])
async def test_an_accepted_ca_that_cannot_be_used_waits(world: World, part: str) -> None:
    if part == "missing":
        del world.objects[NEW_SUFFIX]
    else:
        world.put(NEW, NEW_SUFFIX, tls_key=b"garbage")
    choice = replace(ACCEPT, retired=frozenset())
    assert (await world.issuing(choice)).waiting_hashes == {hash_of(NEW)}


async def test_a_signing_ca_that_cannot_be_used_signs_nothing(world: World) -> None:
    world.put(NEW, NEW_SUFFIX, tls_key=b"garbage")
    assert (await world.unavailable(RETIRED)).reason.startswith("CertificateAuthorityKey")
    del world.objects[NEW_SUFFIX]
    assert (await world.unavailable(RETIRED)).reason == "CertificateAuthorityMissing"
    del world.objects[OLD_SUFFIX]
    assert (await world.unavailable(SIGN_CLIENTS)).reason == "CertificateAuthorityMissing"


async def test_the_secret_of_another_cluster(world: World) -> None:
    """Cluster ``prod-ca`` may exist, and its Secret would have this name."""
    for suffix in (OLD_SUFFIX, NEW_SUFFIX):
        world.put(OLD if suffix == OLD_SUFFIX else NEW, suffix, cluster="prod-ca")
        assert (await world.unavailable(SIGN_CLIENTS)).reason == "CertificateAuthorityNotAllowed"
        world.put(OLD if suffix == OLD_SUFFIX else NEW, suffix)


@pytest.mark.parametrize("failure", [Forbidden("no", status=403), Unreachable("away", cause=Cause.NETWORK)])
@pytest.mark.parametrize("suffix", [OLD_SUFFIX, NEW_SUFFIX])
async def test_a_secret_that_cannot_be_read_is_an_error(world: World, suffix: str, failure: Exception) -> None:
    world.objects[suffix] = failure
    with pytest.raises(type(failure)):
        await world.answer(ACCEPT)


@pytest.mark.parametrize("before", [ONE_AUTHORITY, ByExistence()])
async def test_after_a_rotation_the_former_ca_waits(world: World, before: Any) -> None:
    found = await world.issuing(AfterRotation(before, frozenset({hash_of(NEW)})))
    assert found.client == loaded(OLD)
    assert found.accepted_hashes == {hash_of(OLD)}
    assert found.waiting_hashes == {hash_of(NEW)}
    del world.objects["ca"]
    assert (await world.unavailable(AfterRotation(before, BOTH))).reason == "CertificateAuthorityMissing"


async def test_after_a_rotation_that_was_abandoned_both_cas_are_accepted(world: World) -> None:
    """While the Secrets with their keys are there. What Secret ``<cluster>-ca`` holds signs, whichever it is."""
    choice = AfterRotation(ONE_AUTHORITY, BOTH, (OLD_SECRET, NEW_SECRET))
    found = await world.issuing(choice)
    assert (found.client, found.also_accepted) == (loaded(OLD), (loaded(NEW),))
    assert (found.accepted_hashes, found.waiting_hashes) == (BOTH, frozenset())
    world.put(THIRD, NEW_SUFFIX)
    assert (await world.issuing(choice)).waiting_hashes == {hash_of(NEW)}
    del world.objects[NEW_SUFFIX]
    world.put(NEW, "ca")
    world.clock.pass_by(LOADED_SECONDS)
    found = await world.issuing(choice)
    assert (found.client, found.also_accepted) == (loaded(NEW), (loaded(OLD),))
    del world.objects[OLD_SUFFIX]
    assert (await world.issuing(choice)).waiting_hashes == {hash_of(OLD)}


WITHOUT_RECORD = AfterRotation(ONE_AUTHORITY, frozenset(), published=Published.READ)


async def test_nobody_is_denied_after_the_record_was_deleted_and_the_controller_restarted(world: World) -> None:
    """A node that joined with the CAs that are published may be the first that names the other one."""
    published = b"".join(authority(number).secret_data["tls.crt"] for number in (NEW, OLD))
    world.objects["trust"] = {
        "metadata": {"resourceVersion": "1"},
        "data": encoded({"server-ca.crt": published}),
    }
    world.secrets = world.restarted()
    found = await world.issuing(WITHOUT_RECORD)
    assert (found.accepted_hashes, found.waiting_hashes) == (frozenset({hash_of(OLD)}), frozenset({hash_of(NEW)}))
    assert await world.issuing(WITHOUT_RECORD) is found
    node_client = SeparateNodeClients(NEW_SECRET, published=Published.READ)
    assert hash_of(NEW) in (await world.issuing(node_client)).waiting_hashes
    assert (await world.issuing(AfterRotation(ONE_AUTHORITY, frozenset()))).waiting_hashes == frozenset()


@pytest.mark.parametrize("data", [None, "x", {"server-ca.crt": 5}, encoded({"server-ca.crt": b"garbage"}), {}])
async def test_published_cas_that_cannot_be_read_change_nothing(world: World, data: Any) -> None:
    assert (await world.issuing(WITHOUT_RECORD)).waiting_hashes == frozenset()
    world.objects["trust"] = {"metadata": {"resourceVersion": "1"}, "data": data}
    found = await world.issuing(WITHOUT_RECORD)
    assert (found.client, found.waiting_hashes) == (loaded(OLD), frozenset())
    world.objects["trust"] = Unreachable("away", cause=Cause.NETWORK)
    with pytest.raises(Unreachable):
        await world.answer(WITHOUT_RECORD)


async def test_an_unchanged_answer_is_the_same_object(world: World) -> None:
    for choice in (ACCEPT, AfterRotation(ONE_AUTHORITY, BOTH), ONE_AUTHORITY):
        assert await world.answer(choice) is await world.answer(choice)
    assert await world.answer(ACCEPT) is not await world.answer(ONE_AUTHORITY)


async def test_a_secret_that_was_put_back_is_used_again(world: World) -> None:
    world.put(THIRD, NEW_SUFFIX)
    await world.unavailable(RETIRED)
    world.put(NEW, NEW_SUFFIX)
    world.clock.pass_by(LOADED_SECONDS)
    assert (await world.issuing(RETIRED)).client == loaded(NEW)
