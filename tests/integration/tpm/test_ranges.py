"""What a TPM cannot be asked to prove: from which range the template of its endorsement key is."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Final

import pytest

from attestors.contract import Denied, GatherRequest, VerifiedIdentity
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES, EndorsementKey
from attestors.tpm.endorsement_key_sources import fingerprint
from attestors.tpm.presented_keys import AcceptedKeys
from attestors.tpm.structures import decode_public
from attestors.tpm.wire import ENDORSEMENT_PUBLIC_FIELD
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose
from tests.support.software_tpm import LIBRARY_MISSING, SoftwareTPM
from tests.unit.attestors.tpm.fixtures import BINDING, NO_SETTINGS, PluginHarness, machine_of

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from tests.integration.tpm.node_tpm import CLUSTER, agent_plugin, field

pytestmark = pytest.mark.slow

TEMPLATES: Final = {template.name: template for template in ENDORSEMENT_TEMPLATES}


def shown_as(template: str, evidence: Evidence) -> dict[str, str]:
    """The evidence, with the public area of another template for the same key."""
    area, other = decode_public(field(evidence, ENDORSEMENT_PUBLIC_FIELD)), TEMPLATES[template]
    changed = replace(area, attributes=other.attributes, authorization_policy=other.authorization_policy)
    return {**evidence.fields, ENDORSEMENT_PUBLIC_FIELD: base64.b64encode(changed.encode()).decode("ascii")}


@pytest.mark.parametrize(("own", "shown"), [("high-rsa-2048", "rsa-2048"), ("high-ecc-p256", "ecc-p256")])
def test_a_key_of_the_high_range_passes_for_one_of_the_low_range(
    software_tpm: SoftwareTPM, own: str, shown: str
) -> None:
    """So a chip has two identities under one accepted template, if its maker certified both keys.

    A TPM opens what is encrypted to the key, and compares no template. Only a statement of the TPM about the key's
    creation could prove it.
    """
    node = agent_plugin(software_tpm, ek=own)
    asked = GatherRequest(BINDING, CLUSTER, "v1", Purpose.CLIENT, "")
    first = node.gather(asked)
    key = EndorsementKey.decode(field(first, ENDORSEMENT_PUBLIC_FIELD))
    settings = replace(NO_SETTINGS, accepted=AcceptedKeys(frozenset({shown})))
    harness = PluginHarness(settings, machine_of(fingerprint(key)))
    honest = harness.ask(first.fields)
    assert isinstance(honest, Denied)
    assert (key.template.name, honest.reason) == (own, "EndorsementKeyTemplateNotAllowed")
    challenged = harness.ask(shown_as(shown, first))
    challenge = getattr(challenged, "challenge", "")
    answer = node.gather(replace(asked, challenge=challenge))
    outcome = harness.ask(shown_as(shown, answer), csr_uid="second")
    assert isinstance(outcome, VerifiedIdentity), outcome
    assert outcome.identity == f"tpm:{fingerprint(key)}"
