"""A Pod's clients: they read the CA and their token from files, which the kubelet keeps up to date."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from signer.kube.connection import ClusterConnection
from signer.kube.resources import CONFIG_MAPS
from tests.e2e.rotation.load import Outcomes, is_refusal
from tests.e2e.rotation.world import RotationWorld
from tests.support.api_servers import replace_file
from tests.support.kubectl import find_kubectl
from tests.support.processes import Programs, free_port, wait_until
from tests.support.raw_client import RawClient, UnexpectedAnswer

_TOKENS: Final = "/api/v1/namespaces/default/serviceaccounts/default/token"
_DAY_SECONDS: Final = 24 * 3600


class Volume:
    """The projected volume of a Pod: ``kube-root-ca.crt`` and a service-account token; written anew in the load."""

    pause = 30.0
    """Seconds. The kubelet looks once a minute."""

    def __init__(self, world: RotationWorld, folder: Path) -> None:
        self._world = world
        self.certificate_authority = folder / "ca.crt"
        self.token = folder / "token"
        self.write()
        self.first_token = self.token.read_text("ascii")

    def write(self) -> None:
        """Raises OSError: no API server answers."""
        with RawClient(self._world.admin_connection()) as client:
            found = client.get(CONFIG_MAPS.object("kube-root-ca.crt", "default")).expect(200)
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _DAY_SECONDS},
            }
            issued = client.post(_TOKENS, body).expect(201)
        replace_file(self.certificate_authority, found["data"]["ca.crt"].encode())
        replace_file(self.token, issued["status"]["token"].encode())

    def ask(self, outcomes: Outcomes) -> None:
        """Write it anew; in the load this is no request that counts."""
        with contextlib.suppress(OSError, UnexpectedAnswer):  # an API server is being replaced
            self.write()

    def connection(self) -> ClusterConnection:
        """By what the files hold now."""
        return self._by(self.token.read_text("ascii"))

    def first_connection(self) -> ClusterConnection:
        """The same with the first token: it lives longer than the rotation, and its key is not dropped."""
        return self._by(self.first_token)

    def _by(self, token: str) -> ClusterConnection:
        server = self._world.control_plane.balancer.server
        return ClusterConnection(server, self.certificate_authority.read_bytes(), bearer_token=token)


class KubectlProxy:
    """A current client-go that runs all the time and reads CA and token from files: ``kubectl proxy``."""

    pause = 0.5

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, outcomes: Outcomes) -> None:
        """One request through it, over the connections that client-go keeps."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            connection.request("GET", "/version")
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            outcomes.miss("kubectl proxy")
            return
        finally:
            connection.close()
        if answer.status == 200:
            outcomes.answer("kubectl proxy")
        elif answer.status == 401 or is_refusal(text):
            outcomes.fail(f"kubectl proxy: {answer.status} {text.strip()}")
        else:
            outcomes.miss("kubectl proxy")


@contextlib.contextmanager
def kubectl_proxy(world: RotationWorld, volume: Volume) -> Iterator[KubectlProxy]:
    """Run one. Raises ``MissingPart`` without kubectl."""
    programs = Programs("node-attestation-kubectl-proxy-")
    try:
        kubeconfig = programs.folder / "kubeconfig"
        cluster = {
            "server": world.control_plane.balancer.server,
            "certificate-authority": str(volume.certificate_authority),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "pod", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"tokenFile": str(volume.token)}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
            "current-context": "pod",
        }
        replace_file(kubeconfig, yaml.safe_dump(document).encode())
        port = free_port()
        programs.start("kubectl", [find_kubectl(), f"--kubeconfig={kubeconfig}", "proxy", f"--port={port}"])
        proxy, first = KubectlProxy(port), Outcomes()

        def answers() -> bool:
            proxy.ask(first)
            return bool(first.answered)

        wait_until(answers, "kubectl proxy answers")
        assert first.failures == []
        yield proxy
    finally:
        programs.close()
