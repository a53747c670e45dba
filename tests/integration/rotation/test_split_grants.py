"""``deploy/rbac/workload-rotation-split.yaml``: its user asks kube-controller-manager, and approves no other signer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from signer.kube.client import Client
from signer.rotation.controller_manager import SIGNER, ask_controller_manager
from signer.rotation.facts import CanarySigner, NotObserved
from signer.testing.api import EmbeddedAPI
from tests.support.grants import WORKLOAD_USER
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_CLIENT_SIGNER,
    COLLECTION,
    condition,
    request_pem,
    signing_request,
    with_conditions,
)
from tests.unit.signer.rotation.servers.support import AUTHORITIES

pytestmark = pytest.mark.slow
FILE: Final = Path(__file__).parents[3] / "deploy/rbac/workload-rotation-split.yaml"


def ask(api: EmbeddedAPI) -> CanarySigner | NotObserved:
    """As the restricted user. Nothing signs here."""

    async def asked() -> CanarySigner | NotObserved:
        async with Client(api.connection(WORKLOAD_USER, ())) as client:
            return await ask_controller_manager(
                client, AUTHORITIES, "abcdefgh", now=datetime.now(UTC), deadline_seconds=0.2
            )

    return asyncio.run(asked())


def test_the_grants_suffice_for_the_canary_and_for_no_other_signer() -> None:
    with EmbeddedAPI() as api:
        refused = ask(api)
        assert isinstance(refused, NotObserved)
        assert "forbidden" in refused.message.lower()
        api.apply_yaml(FILE.read_text())
        late = ask(api)
        assert isinstance(late, NotObserved)
        assert "has not signed" in late.message
        with RawClient(api.connection()) as administrator:
            assert administrator.get(COLLECTION).expect(200)["items"] == [], "it is deleted"
            for name, signer in (("own", SIGNER), ("kubelet", BUILTIN_CLIENT_SIGNER)):
                administrator.post(COLLECTION, signing_request(name, request_pem(), signer=signer)).expect(201)
        with RawClient(api.connection(WORKLOAD_USER, ())) as restricted:
            for name, status in (("own", 200), ("kubelet", 403)):
                found = restricted.get(f"{COLLECTION}/{name}").expect(200)
                approved = with_conditions(found, condition("Approved"))
                assert restricted.put(f"{COLLECTION}/{name}/approval", approved).status == status
            assert restricted.get(COLLECTION).status == 403
