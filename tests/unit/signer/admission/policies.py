"""A small admission policy."""

from __future__ import annotations

from typing import Final

from signer.admission.policy import (
    AdmissionPolicy,
    DryRunVerb,
    MatchCondition,
    MatchedResource,
    Operation,
    Proof,
    RefusalReason,
    Validation,
    Variable,
)

RESOURCE: Final = MatchedResource("example.org", "things", (Operation.CREATE, Operation.UPDATE), namespaced=True)
MESSAGE: Final = "no thing may be blue: paint it"
POLICY: Final = AdmissionPolicy(
    name="colours",
    resources=(RESOURCE,),
    match_conditions=(MatchCondition("has-colour", "has(object.colour)"),),
    variables=(Variable("isBlue", "object.colour == 'blue'"),),
    validations=(
        Validation("!variables.isBlue", MESSAGE, RefusalReason.INVALID),
        Validation("object.colour != ''", "name a colour", RefusalReason.FORBIDDEN),
    ),
)
PROOF: Final = Proof(DryRunVerb.CREATE, {"colour": "blue"}, MESSAGE, {"colour": "red"})
