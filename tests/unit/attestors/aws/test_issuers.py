"""Keys of token issuers: kept, fetched again now and then, and never because of somebody's random names."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from attestors.aws.issuers import (
    DISCOVERY_PATH,
    LIFETIME_SECONDS,
    PAUSE_SECONDS,
    STALE_SECONDS,
    IssuerKeys,
    KeyNotPublishedYet,
    UnknownKey,
    is_issuer,
)
from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.https import HTTPSAnswer
from attestors.clouds.json_web_token import PublicKey
from tests.support.fake_aws.accounts import Issuer

ISSUER = "https://issuer.example"


@dataclass
class FakeHTTPS:
    """An issuer without a network."""

    issuer: Issuer = field(default_factory=lambda: Issuer("issuer.example"))
    down: bool = False
    says: dict[str, str] = field(default_factory=dict)
    """In its configuration, in place of what is right."""
    asked: list[str] = field(default_factory=list)

    async def get(
        self,
        service: str,
        operation: str,
        host: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        maximum_bytes: int,
    ) -> HTTPSAnswer:
        assert operation == ("configuration" if target == DISCOVERY_PATH else "keys")
        assert host == "issuer.example"
        assert not headers
        self.asked.append(target)
        if self.down:
            raise CloudUnavailable(service, "down")
        right = self.issuer.discovery() if target == DISCOVERY_PATH else self.issuer.key_set()
        document = {**right, **self.says} if target == DISCOVERY_PATH else right
        return HTTPSAnswer(200, "application/json", json.dumps(document).encode())

    @property
    def fetches(self) -> int:
        return self.asked.count(DISCOVERY_PATH)


@dataclass
class IssuerKeysHarness:
    """The keys, and a clock that stands still."""

    https: FakeHTTPS = field(default_factory=FakeHTTPS)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.keys = IssuerKeys(self.https, clock=lambda: self.now)

    async def key(self, issuer: str, key_id: str, *, made_seconds_ago: float = math.inf) -> PublicKey:
        """That of a token which is older than all that is known, where it does not say."""
        return await self.keys.key(issuer, key_id, made_seconds_ago=made_seconds_ago)


async def test_keys_are_kept_for_an_hour() -> None:
    harness = IssuerKeysHarness()
    for _ in range(3):
        await harness.key(ISSUER, "RSA_0")
        await harness.key(ISSUER, "EC384_0")
    assert harness.https.fetches == 1
    harness.now += LIFETIME_SECONDS
    await harness.key(ISSUER, "RSA_0")
    assert harness.https.fetches == 2


async def test_random_names_cause_one_fetch_in_a_while() -> None:
    harness = IssuerKeysHarness()
    for number in range(100):
        with pytest.raises(UnknownKey):
            await harness.key(ISSUER, f"RSA_{number + 100}")
    assert harness.https.fetches == 1
    harness.now += PAUSE_SECONDS
    with pytest.raises(UnknownKey):
        await harness.key(ISSUER, "RSA_100")
    assert harness.https.fetches == 2


async def test_a_new_key_is_waited_for_and_found_after_the_pause() -> None:
    """Whoever has the first token by it is not denied because the keys were fetched a moment before."""
    harness = IssuerKeysHarness()
    await harness.key(ISSUER, "RSA_0")
    harness.https.issuer.keys["RSA_1"] = Issuer(generation=1).keys["RSA_0"]
    harness.now += 5
    with pytest.raises(KeyNotPublishedYet) as waits:
        await harness.key(ISSUER, "RSA_1", made_seconds_ago=5)
    assert waits.value.retry_after_seconds == PAUSE_SECONDS - 5
    harness.now += waits.value.retry_after_seconds
    await harness.key(ISSUER, "RSA_1", made_seconds_ago=PAUSE_SECONDS)


async def test_a_token_that_is_older_than_the_keys_is_refused_at_once() -> None:
    harness = IssuerKeysHarness()
    await harness.key(ISSUER, "RSA_0")
    harness.now += 5
    with pytest.raises(UnknownKey):
        await harness.key(ISSUER, "RSA_9", made_seconds_ago=6)


async def test_a_key_missing_after_a_fetch_is_refused_whatever_the_token_claims() -> None:
    """Times that nobody has signed yet, and a clock that may be wrong, decide nothing."""
    harness = IssuerKeysHarness()
    with pytest.raises(UnknownKey):
        await harness.key(ISSUER, "RSA_9", made_seconds_ago=-math.inf)


async def test_a_withdrawn_key_is_good_no_longer_than_an_hour() -> None:
    harness = IssuerKeysHarness()
    await harness.key(ISSUER, "RSA_0")
    del harness.https.issuer.keys["RSA_0"]
    await harness.key(ISSUER, "RSA_0")
    harness.now += LIFETIME_SECONDS
    with pytest.raises(UnknownKey):
        await harness.key(ISSUER, "RSA_0")


async def test_old_keys_serve_for_some_hours_of_an_outage() -> None:
    harness = IssuerKeysHarness()
    await harness.key(ISSUER, "RSA_0")
    harness.https.down = True
    harness.now += STALE_SECONDS - 1
    await harness.key(ISSUER, "RSA_0")
    with pytest.raises(CloudUnavailable):
        await harness.key(ISSUER, "RSA_9")
    harness.now += 1
    with pytest.raises(CloudUnavailable):
        await harness.key(ISSUER, "RSA_0")


async def test_an_outage_does_not_cause_a_call_per_request() -> None:
    harness = IssuerKeysHarness()
    harness.https.down = True
    for _ in range(10):
        with pytest.raises(CloudUnavailable):
            await harness.key(ISSUER, "RSA_0")
    assert harness.https.fetches == 1
    harness.https.down = False
    harness.now += PAUSE_SECONDS
    await harness.key(ISSUER, "RSA_0")


@pytest.mark.parametrize(
    "text",
    ["http://a.example", "https://a.example/", "https://a.example:443", "https://u@a.example", "https://", "a", "https://A.example"],
)  # fmt: skip
def test_an_issuer_is_a_host_and_nothing_else(text: str) -> None:
    assert not is_issuer(text)
    assert is_issuer(ISSUER)


KEYS = f"{ISSUER}/.well-known/jwks.json"


@pytest.mark.parametrize(
    "says",
    [
        {"issuer": "https://another.example"},
        {"issuer": f"{ISSUER}/"},
        {"jwks_uri": "https://another.example/.well-known/jwks.json"},
        {"jwks_uri": KEYS.replace("https:", "http:")},
        {"jwks_uri": KEYS.replace(".example", ".example:444")},
        {"jwks_uri": KEYS.replace("//", "//user@")},
        {"jwks_uri": f"{KEYS}?of=another"},
        {"jwks_uri": f"{KEYS}#of-another"},
        {"jwks_uri": f"{KEYS}\u00e9"},
        {"jwks_uri": ""},
    ],
    ids=range(10),
)
async def test_an_issuer_with_its_keys_elsewhere_is_not_believed(says: dict[str, str]) -> None:
    harness = IssuerKeysHarness()
    harness.https.says = says
    with pytest.raises(CloudUnavailable):
        await harness.key(ISSUER, "RSA_0")
    assert harness.https.asked == [DISCOVERY_PATH]
