"""The gateway at an embedded API: what it says of itself while it knows what is open, and while it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from signer.crds import access_definitions
from signer.gateway.run import GatewayHealth, GatewayOptions, run_gateway
from signer.gateway.ssh.host_keys import read_host_keys
from signer.kube.client import Client
from signer.testing.api import EmbeddedAPI
from tests.support.gateway_grants import GATEWAY_NAMESPACE
from tests.support.openssh import ssh_keygen
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow
IN_TOUCH: Final = "node_access_gateway_in_touch"


def has_asked(api: EmbeddedAPI) -> bool:
    return any("accessgrants" in one.path for one in api.requests.matching("* *"))


@pytest.mark.parametrize("has_definitions", [True, False])
async def test_it_is_in_touch_once_it_has_listed_grants_and_secrets(tmp_path: Path, has_definitions: bool) -> None:
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key").check_returncode()
    options, health, stop, started = GatewayOptions(), GatewayHealth(), asyncio.Event(), asyncio.Event()

    def in_touch() -> float | None:
        return options.metrics.registry.get_sample_value(IN_TOUCH)

    with EmbeddedAPI() as api:
        for text in access_definitions() if has_definitions else ():
            api.install_crd(safe_load(text))
        async with Client(api.connection()) as client:
            running = asyncio.create_task(
                run_gateway(
                    client,
                    GATEWAY_NAMESPACE,
                    ("127.0.0.1", 0),
                    read_host_keys([tmp_path / "key"]),
                    stop=stop,
                    options=options,
                    health=health,
                    started=lambda address: started.set(),
                )
            )
            await asyncio.wait_for(started.wait(), 20)
            if has_definitions:
                await asyncio.to_thread(wait_until, lambda: in_touch() == 1.0, "both are listed")
            else:
                await asyncio.to_thread(wait_until, lambda: has_asked(api), "the list of grants is refused")
                assert in_touch() == 0.0
            assert health.ready().passed is has_definitions
            stop.set()
            await running
