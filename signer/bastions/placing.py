"""Sees that a provider is asked only under settings that look where the resources of a Bastion are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from node_access.bastions.contract import Deadline, InvalidSettings, OwnedResources, ProviderUnavailable, Scope
from signer.bastions.configuration import BastionConfiguration
from signer.bastions.places import NotRecorded, PlaceDigests, changed_settings, place_patch, recorded_place
from signer.bastions.providers import NotAllowed, ProviderFailed, Providers
from signer.kube.calls import Patch
from signer.kube.client import JsonObject
from signer.kube.resources import BASTIONS
from signer.model.access.bastion import FINALIZER, BastionReason
from signer.model.fields import items_of, mapping_of, text_of

_LOG = logging.getLogger(__name__)


class Elsewhere(Exception):
    """The resources are not, or perhaps not, where the present settings look: what the provider would say of them means
    nothing.
    """

    def __init__(self, reason: BastionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Placing:
    """Records places in the status of Bastions, and compares them."""

    def __init__(self, client: Patch, configuration: BastionConfiguration, providers: Providers) -> None:
        self._client = client
        self._configuration = configuration
        self._providers = providers

    async def record(self, manifest: JsonObject) -> JsonObject:
        """Record the present place before the first resource is made. The object as it is then.

        Raises:
            NotAllowed, InvalidSettings, ProviderUnavailable: see :meth:`Providers.operators`.
            ApiError: the API server did not take it.
        """
        return await self._write(manifest, self._present(manifest))

    async def recovered(self, manifest: JsonObject) -> JsonObject:
        """The object, with a record of the place again if that can be had.

        A status may be lost, as by a restored backup. If the provider finds resources of the Bastion under the present
        settings, these are the place. So they are if the operator gave up what is elsewhere.

        Raises:
            ApiError: the API server did not take it.
        """
        if FINALIZER not in items_of(mapping_of(manifest, "metadata"), "finalizers"):
            return manifest  # nothing was made
        is_given_up = self._uid(manifest) in self._configuration.forgotten
        if not is_given_up and isinstance(recorded_place(manifest), PlaceDigests):
            return manifest
        try:
            if is_given_up or await self._is_found(manifest):
                return await self._write(manifest, self._present(manifest))
        except (NotAllowed, InvalidSettings, ProviderUnavailable, ProviderFailed) as error:
            _LOG.warning("cannot look for the resources of a bastion", extra={"detail": str(error)})
        return manifest

    def require(self, manifest: Mapping[str, Any]) -> None:
        """Require that the present settings look where the resources are.

        Raises:
            Elsewhere: they do not, or it is not known.
            NotAllowed, InvalidSettings, ProviderUnavailable: see :meth:`Providers.operators`.
        """
        recorded, present = recorded_place(manifest), self._present(manifest)
        give_up = f"or add {self._uid(manifest)} to forget, and delete by hand what was made"
        if isinstance(recorded, NotRecorded):
            raise Elsewhere(
                BastionReason.PLACE_UNKNOWN,
                "status.place is lost, and the provider finds nothing of the bastion under the present settings: bring "
                f"back those under which it was made in the configuration of the bastion controller, {give_up}",
            )
        changed = changed_settings(recorded, present)
        if changed:
            raise Elsewhere(
                BastionReason.PLACE_CHANGED,
                f"the bastion was made under another value of {', '.join(changed)}: bring it back in the configuration "
                f"of the bastion controller until the bastion is gone, {give_up}",
            )

    def _present(self, manifest: Mapping[str, Any]) -> PlaceDigests:
        namespace = text_of(mapping_of(manifest, "metadata"), "namespace")
        return self._providers.place_of(text_of(mapping_of(manifest, "spec"), "provider"), namespace)

    async def _is_found(self, manifest: Mapping[str, Any]) -> bool:
        provider = text_of(mapping_of(manifest, "spec"), "provider")
        resources = self._providers.operators(provider, text_of(mapping_of(manifest, "metadata"), "namespace"))
        scope: Scope = self._configuration.scope

        def listed(deadline: Deadline) -> tuple[OwnedResources, ...]:
            return resources.list(scope, deadline)

        found = await self._providers.call(provider, "list", listed)
        return any(one.reference.uid == self._uid(manifest) for one in found)

    async def _write(self, manifest: JsonObject, place: PlaceDigests) -> JsonObject:
        if recorded_place(manifest) == place:
            return manifest
        metadata = mapping_of(manifest, "metadata")
        path = BASTIONS.object(text_of(metadata, "name"), text_of(metadata, "namespace"), "status")
        return await self._client.patch(path, place_patch(manifest, place))

    def _uid(self, manifest: Mapping[str, Any]) -> str:
        return text_of(mapping_of(manifest, "metadata"), "uid")
