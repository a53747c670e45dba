"""Where the CA comes from: read by name, kept for a minute, kept longer while the management cluster is away."""

from __future__ import annotations

import asyncio
import base64
from functools import cache
from typing import Any

import pytest

from signer.authority import load_certificate_authority
from signer.decision.authority_source import (
    FAILURE_KEPT_SECONDS,
    KEPT_SECONDS,
    AuthoritySource,
    AuthorityUnavailable,
    UnreadableSecret,
    decode_secret,
)
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, Unreachable
from signer.model.cluster import ClusterKey
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from tests.unit.signer.controller.support import NOW, Clock


@cache
def authority(number: int) -> ClusterCertificateAuthority:
    del number
    return new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=NOW)


def encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}


class World:
    """One Secret and who reads it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.reads = 0
        self.failure: ApiError | None = None
        self.secret: dict[str, Any] | None = None
        self.source = AuthoritySource(
            self, ClusterKey("team-a", "prod"), now=self.clock.now, monotonic=self.clock.monotonic
        )

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/team-a/secrets/prod-ca"
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if self.secret is None:
            raise NotFound(path)
        return self.secret

    def put(self, number: int, **data: bytes | None) -> None:
        """Write the Secret; ``data`` replaces what Cluster API puts there."""
        whole = {**authority(number).secret_data, **{key.replace("_", "."): value for key, value in data.items()}}
        kept = {key: value for key, value in whole.items() if value is not None}
        self.secret = {"metadata": {"resourceVersion": f"{number}{sorted(data)}"}, "data": encoded(kept)}

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

    monkeypatch.setattr("signer.decision.authority_source.load_certificate_authority", count)
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

    monkeypatch.setattr("signer.decision.authority_source.load_certificate_authority", count)
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
