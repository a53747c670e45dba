"""The server plugin: verifies evidence, in the management cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestors.contract import (
    AttestationRequest,
    AttestorSettings,
    Denied,
    InvalidSettings,
    NotProvableYet,
    Plausible,
    PreFiltered,
    VerifiedIdentity,
)
from attestors.wire.names import EVIDENCE_EXPIRED
from keyed_mac.keys import (
    MAC_BYTES,
    MAC_FIELD,
    TIME_FIELD,
    compute_mac,
    derive_machine_key,
    identity_of,
    key_from_setting,
    time_of,
)

MASTER_KEY_SETTING: Final = "masterKey"
UNDATED_SETTING: Final = "acceptUndatedEvidence"
"""Also accept evidence without a time, which earlier agent plugins made. Such evidence can be presented again."""

MAXIMUM_AGE: Final = timedelta(minutes=15)
CLOCK_DIFFERENCE: Final = timedelta(minutes=2)
"""How far the clock of a node may be ahead of the controller's."""


def server_plugin_from(settings: AttestorSettings) -> KeyedMACServerPlugin:
    """The server plugin, from the operator's settings alone.

    A policy is written by a tenant: a key from there would let the tenant vouch for any machine.

    Raises:
        InvalidSettings: the master key is missing, or a setting is wrong or unknown.
    """
    if settings.policy:
        raise InvalidSettings("a policy cannot configure the keyed-mac attestor; the controller's configuration does")
    given = dict(settings.operator)
    master_key, undated = given.pop(MASTER_KEY_SETTING, None), given.pop(UNDATED_SETTING, False)
    if master_key is None:
        raise InvalidSettings(f"the keyed-mac attestor needs {MASTER_KEY_SETTING}")
    if given:
        raise InvalidSettings(f"the keyed-mac attestor knows {MASTER_KEY_SETTING} and {UNDATED_SETTING} only")
    if not isinstance(undated, bool):
        raise InvalidSettings(f"{UNDATED_SETTING} must be true or false")
    return KeyedMACServerPlugin(key_from_setting(MASTER_KEY_SETTING, master_key), undated)


@dataclass(frozen=True, slots=True)
class KeyedMACServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin`; no state, no network."""

    master_key: bytes = field(repr=False)
    accepts_undated: bool = False

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Verify the MAC and the time, without a call; raises like :meth:`verify_client`."""
        outcome = self._verify(request)
        return outcome if isinstance(outcome, Denied) else Plausible()

    async def verify_client(self, request: AttestationRequest) -> VerifiedIdentity | Denied | NotProvableYet:
        """Verify the MAC of a request for a client certificate.

        Raises:
            MalformedEvidence: the evidence holds anything but a MAC and a time; the core denies.
            BindingMismatch: the MAC is not of this machine's key over this request's binding; the core denies.
        """
        return self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> VerifiedIdentity | Denied | NotProvableYet:
        """Verify the MAC of a request for a serving certificate; raises like :meth:`verify_client`.

        A key says nothing about names and addresses: those are left empty, and the Machine decides.
        """
        return self._verify(request)

    def _verify(self, request: AttestationRequest) -> VerifiedIdentity | Denied | NotProvableYet:
        evidence = request.evidence
        undated = self.accepts_undated and TIME_FIELD not in evidence.fields
        evidence.expect_fields(MAC_FIELD, *([] if undated else [TIME_FIELD]))
        made_at = "" if undated else evidence.fields[TIME_FIELD]
        moment = request.now if undated else time_of(made_at)
        mac = evidence.binary(MAC_FIELD, maximum_bytes=MAC_BYTES)
        # The provider ID is still a claim here. It only chooses the key. Only a holder of that key can make the MAC, so
        # the comparison that proves the binding also proves the claim, and the time.
        machine_key = derive_machine_key(self.master_key, request.provider_id)
        proven = request.binding.prove(mac, through=lambda value: compute_mac(machine_key, value, made_at))
        verified = VerifiedIdentity(
            provider_id=request.provider_id,
            identity=identity_of(machine_key),
            binding=proven,
        )
        return _if_fresh(verified, moment, request.now)


def _if_fresh(
    verified: VerifiedIdentity, made_at: datetime, now: datetime
) -> VerifiedIdentity | Denied | NotProvableYet:
    """``verified``, unless the evidence is too old or was made in the future."""
    seconds = int((now - made_at).total_seconds())
    if now - made_at > MAXIMUM_AGE:
        return Denied(EVIDENCE_EXPIRED, f"the evidence was made {seconds} seconds ago: the node must make new evidence")
    if made_at - now > CLOCK_DIFFERENCE:
        # Perhaps the controller's own clock is wrong, and that is not the node's fault: the request waits.
        message = f"the evidence was made {-seconds} seconds from now: compare the node's clock with the controller's"
        return NotProvableYet("EvidenceNotYetValid", message)
    return verified
