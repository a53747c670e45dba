"""kube-controller-manager on the Machines of the control plane, as a rotation's template has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from signer.kube.client import JsonObject
from signer.rotation.control_plane.mirror_pods import PROGRAMS
from signer.rotation.control_plane.readiness import ROTATION_DIRECTORY, required_flags
from signer.rotation.control_plane.template import Component, FromSecret, control_plane_template
from signer.rotation.phases import SigningPairs
from tests.support.api_servers import ApiServer, ControllerManager, ReplicatedControlPlane, replace_file
from tests.support.certificates import CertificateAuthority

CONTROLLERS: Final = ("root-ca-cert-publisher", "bootstrapsigner", "tokencleaner", "serviceaccount", "namespace")
_SHORT_LEASE: Final = {
    "leader-elect": "true",
    "leader-elect-lease-duration": "8s",
    "leader-elect-renew-deadline": "6s",
    "leader-elect-retry-period": "1s",
}
"""One that ends keeps its lease until that is over; kubeadm leaves the default of 15 s."""


class SecretData(Protocol):
    """Reads a Secret of the Cluster."""

    def __call__(self, suffix: str) -> dict[str, bytes]:
        """The decoded data of ``<cluster>-<suffix>``. Raises NotFound."""
        ...


@dataclass(frozen=True)
class Template:
    """What a KubeadmControlPlane says of kube-controller-manager, and where Cluster API takes its files from."""

    manifest: JsonObject
    cluster: str
    pairs: SigningPairs

    @property
    def flags(self) -> Mapping[str, str]:
        """The flags that a rotation requires, with the template's values."""
        arguments = control_plane_template(self.manifest).arguments[Component.CONTROLLER_MANAGER]
        return {one.name: arguments[one.name] for one in required_flags(Component.CONTROLLER_MANAGER, self.pairs)}

    def render(self, secret: SecretData) -> Mapping[str, bytes]:
        """The files below the rotation's folder, by name, from what the Secrets hold now."""
        found = {}
        for one in control_plane_template(self.manifest).files:
            folder, _, name = one.path.rpartition("/")
            if folder == ROTATION_DIRECTORY and isinstance(one.content, FromSecret):
                found[name] = secret(one.content.name.removeprefix(f"{self.cluster}-"))[one.content.key]
        return found

    @property
    def command(self) -> list[str]:
        """As kubeadm writes it into the static Pod's manifest."""
        return [PROGRAMS[Component.CONTROLLER_MANAGER], *(f"--{name}={value}" for name, value in self.flags.items())]


class ControllerManagers(Protocol):
    """Those of all Machines."""

    def stop(self, server: ApiServer) -> None:
        """That of one Machine, whose API server is about to be replaced."""
        ...

    def start(self, server: ApiServer, authority: CertificateAuthority, secret: SecretData) -> None:
        """That of a new Machine, from what the Secrets hold now. ``authority`` is the CA of Secret ``<cluster>-ca``."""
        ...

    def follow(self) -> None:
        """Do what kubelets do meanwhile."""
        ...


class SharedControllerManager:
    """One process for all Machines, which talks through the balancer, and signs by kubeadm's pair."""

    def __init__(self, control_plane: ReplicatedControlPlane) -> None:
        self._manager = control_plane.start_controllers(CONTROLLERS)

    def stop(self, server: ApiServer) -> None:
        """It talks to the other ones."""

    def start(self, server: ApiServer, authority: CertificateAuthority, secret: SecretData) -> None:
        """Start it again with the files of the new Machine."""
        trust = secret("trust")
        self._manager.sign_by(authority)
        self._manager.publish_pem(trust["server-ca.crt"])
        self._manager.connect_by(authority, trust["server-ca.crt"])
        self._manager.restart()

    def follow(self) -> None:
        """It ends by itself only if something is wrong."""


class ControllerManagerOfEachMachine:
    """One process on each Machine, with the template's flags and files; it talks to its own API server.

    One of them leads. A kube-controller-manager that loses its lease ends, and the kubelet starts it again.
    """

    def __init__(self, control_plane: ReplicatedControlPlane, template: Callable[[], Template]) -> None:
        self._control_plane = control_plane
        self._template = template
        self._managers: dict[str, ControllerManager] = {}

    def stop(self, server: ApiServer) -> None:
        """Its lease stays until it is over."""
        if server.name in self._managers:
            self._managers[server.name].stop()

    def start(self, server: ApiServer, authority: CertificateAuthority, secret: SecretData) -> None:
        """See ControllerManagers."""
        template = self._template()
        folder = server.folder / "rotation"
        folder.mkdir(exist_ok=True)
        for name, content in template.render(secret).items():
            replace_file(folder / name, content)
        manager = self._managers.get(server.name)
        if manager is None:
            flags = {name: value.replace(ROTATION_DIRECTORY, str(folder)) for name, value in template.flags.items()}
            self._managers[server.name] = self._control_plane.start_controllers(
                [*CONTROLLERS, "csrsigning"],
                {**_SHORT_LEASE, **flags},
                server.server,
                f"controller-manager-{server.name}",
            )
            return
        manager.connect_by(authority, authority.certificate_pem, server.server)
        manager.start()

    def follow(self) -> None:
        """Start one that has ended."""
        for manager in self._managers.values():
            if manager.has_ended:
                manager.restart()


__all__ = [
    "CONTROLLERS",
    "ControllerManagerOfEachMachine",
    "ControllerManagers",
    "SecretData",
    "SharedControllerManager",
    "Template",
]
