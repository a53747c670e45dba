"""Which networks of Services a workload cluster reports, and what is asked."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import Any

import pytest

from signer.decision.reported_services import read_reported_services, try_to_read_reported_services
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, ResourceNotServed, Unreachable
from signer.model.service_networks import NOT_REPORTED

V1 = "/apis/networking.k8s.io/v1/servicecidrs"
V1BETA1 = "/apis/networking.k8s.io/v1beta1/servicecidrs"
SERVICE = "/api/v1/namespaces/default/services/kubernetes"
CIDRS: Any = [{"spec": {"cidrs": ["10.43.0.0/16"]}}]
KUBERNETES: Any = {"spec": {"clusterIP": "10.43.0.1"}}


class API:
    """Answers of a workload cluster, by path: objects, or an error."""

    def __init__(self, **answers: Any) -> None:
        names = {"v1": V1, "v1beta1": V1BETA1, "service": SERVICE}
        self.answers = {names[name]: answer for name, answer in answers.items()}
        self.asked: list[str] = []

    def _answer(self, path: str, missing: ApiError) -> Any:
        self.asked.append(path)
        answer = self.answers.get(path, missing)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def get(self, path: str) -> Any:
        if path == SERVICE:
            return self._answer(path, NotFound(path))
        items = self._answer(path, ResourceNotServed(path))
        return {"items": items}


def read(api: API) -> list[str]:
    return [str(network) for network in asyncio.run(read_reported_services(api)).networks]


@pytest.mark.parametrize(
    ("api", "networks", "asked"),
    [
        (API(v1=CIDRS, service=KUBERNETES), ["10.43.0.0/16"], [V1]),
        (API(v1beta1=CIDRS, service=KUBERNETES), ["10.43.0.0/16"], [V1, V1BETA1]),
        (API(service=KUBERNETES), ["10.32.0.0/12"], [V1, V1BETA1, SERVICE]),
        (API(v1=[], service=KUBERNETES), ["10.32.0.0/12"], [V1, V1BETA1, SERVICE]),
        (
            API(v1=Forbidden("no"), v1beta1=Forbidden("no"), service=KUBERNETES),
            ["10.32.0.0/12"],
            [V1, V1BETA1, SERVICE],
        ),
        (API(service=Forbidden("no")), [], [V1, V1BETA1, SERVICE]),
        (API(), [], [V1, V1BETA1, SERVICE]),
    ],
)
def test_whatever_can_be_read(api: API, networks: list[str], asked: list[str]) -> None:
    assert read(api) == networks
    assert api.asked == asked


def test_too_many_are_not_all() -> None:
    api = API(v1=[{"spec": {"cidrs": [f"10.{number % 256}.{number // 256}.0/24"]}} for number in range(300)])
    found = asyncio.run(read_reported_services(api))
    assert ip_network("10.5.0.0/24") in found.networks
    assert (len(found.networks), found.known_versions) == (64, frozenset())


def test_any_other_error_is_no_report() -> None:
    for api in (
        API(v1=Unreachable("gone", cause=Cause.REFUSED)),
        API(service=Unreachable("gone", cause=Cause.REFUSED)),
    ):
        with pytest.raises(Unreachable):
            read(api)
        assert asyncio.run(try_to_read_reported_services(api)) == NOT_REPORTED
