"""Whether the operator still allows a TPM that was attested before: its key and its chip are on no deny list."""

from __future__ import annotations

from attestors.contract import AttestedBefore, Standing, StillAllowed
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint_of_identity
from attestors.tpm.operator_files import OperatorFileUnusable
from attestors.tpm.presented_keys import chip_denied, endorsement_key_denied
from attestors.tpm.recorded_calls import CHIP_QUESTION, FLAG, KEY_QUESTION
from attestors.tpm.trust import OperatorTrust
from attestors.verdict import not_yet


def standing_of(attested: AttestedBefore, operator: OperatorTrust) -> Standing:
    """See :class:`attestors.contract.DeniesIdentities`.

    Raises:
        NoFingerprint: the identity is not one that this attestor proves.
    """
    shown, chip, recorded_calls = fingerprint_of_identity(attested.identity), attested.hardware, attested.recorded_calls
    try:
        if recorded_calls.look(KEY_QUESTION, lambda: shown in operator.current().denied, FLAG):
            return endorsement_key_denied(shown).outcome
        if chip and recorded_calls.look(CHIP_QUESTION, lambda: chip in operator.current().denied, FLAG):
            return chip_denied(chip).outcome
    except OperatorFileUnusable as error:
        return not_yet("OperatorFileUnusable", str(error)).outcome
    return StillAllowed()
