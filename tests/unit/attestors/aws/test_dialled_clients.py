"""botocore's clients that dial: with what botocore has today, and with one that has it no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from attestors.aws.dialled_clients import dial_for
from attestors.aws.node.web_identity import isolated_session


def sender_of(client: Any) -> Any:
    return client._endpoint.http_session


def client_of(session: Any) -> Any:
    return session.create_client(
        "sts", region_name="eu-west-1", aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="example"
    )


def test_a_client_has_pools_of_ours() -> None:
    pools = sender_of(client_of(isolated_session()))._pool_classes_by_scheme
    assert {scheme: pool.__name__ for scheme, pool in pools.items()} == {
        "http": "DialledAWSHTTPConnectionPool",
        "https": "DialledAWSHTTPSConnectionPool",
    }


@pytest.mark.parametrize("endpoint", [None, SimpleNamespace(), SimpleNamespace(http_session=SimpleNamespace())])
def test_a_botocore_that_keeps_its_pools_elsewhere_still_makes_clients(endpoint: object) -> None:
    registered: list[Any] = []
    dial_for(SimpleNamespace(register=lambda event, handler: registered.append(handler)))

    class Client:
        def __init__(self) -> None:
            self._endpoint = endpoint

    bases: list[type] = [Client]
    registered[0](base_classes=bases)
    made: Any = type("Made", tuple(bases), {})()
    assert made._endpoint is endpoint
