"""The server plugin: verifies evidence, in the management cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from attestors.contract import AttestationRequest, AttestorSettings, InvalidSettings, Plausible, VerifiedIdentity
from keyed_mac.keys import MAC_BYTES, MAC_FIELD, compute_mac, derive_machine_key, identity_of, key_from_setting

MASTER_KEY_SETTING: Final = "masterKey"


def master_key_from(settings: AttestorSettings) -> bytes:
    """The master key, from the operator's settings alone.

    A policy is written by a tenant: a key from there would let the tenant vouch for any machine.

    Raises:
        InvalidSettings: the master key is missing or wrong, or there is another setting.
    """
    if settings.policy:
        raise InvalidSettings("a policy cannot configure the keyed-mac attestor; the controller's configuration does")
    if set(settings.operator) != {MASTER_KEY_SETTING}:
        raise InvalidSettings(f"the keyed-mac attestor needs {MASTER_KEY_SETTING} and no other setting")
    return key_from_setting(MASTER_KEY_SETTING, settings.operator[MASTER_KEY_SETTING])


@dataclass(frozen=True, slots=True)
class KeyedMACServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin`; no state, no network, so nothing is ever "not yet"."""

    master_key: bytes = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> Plausible:
        """Verify the MAC, without a call; raises like :meth:`verify_client`."""
        self._verify(request)
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> VerifiedIdentity:
        """Verify the MAC of a request for a client certificate.

        Raises:
            MalformedEvidence: the evidence holds anything but a MAC; the core denies.
            BindingMismatch: the MAC is not of this machine's key over this request's binding; the core denies.
        """
        return self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> VerifiedIdentity:
        """Verify the MAC of a request for a serving certificate; raises like :meth:`verify_client`.

        A key says nothing about names and addresses: those are left empty, and the Machine decides.
        """
        return self._verify(request)

    def _verify(self, request: AttestationRequest) -> VerifiedIdentity:
        request.evidence.expect_fields(MAC_FIELD)
        mac = request.evidence.binary(MAC_FIELD, maximum_bytes=MAC_BYTES)
        # The provider ID is still a claim here. It only chooses the key. Only a holder of that key can make the MAC, so
        # the comparison that proves the binding also proves the claim.
        machine_key = derive_machine_key(self.master_key, request.provider_id)
        proven = request.binding.prove(mac, through=lambda value: compute_mac(machine_key, value))
        return VerifiedIdentity(
            provider_id=request.provider_id,
            identity=identity_of(machine_key),
            binding=proven,
        )
