"""What a schema cannot say of a NodeAttestationPolicy, as CEL for API servers from 1.25.

An overlay of its own: kubectl and API servers before 1.25 refuse or drop ``x-kubernetes-validations``. Where it is not
installed, a duration out of range is a policy that cannot be followed (condition AttestorsConfigured, reason
PolicyInvalid), and the others show in the conditions of what they ask for in vain. See Kubernetes, "Validation rules"
of CustomResourceDefinitions; only what 1.25 knows is used.

``python -m signer.crds.expressions`` prints the definition with its rules; ``deploy/crds-cel`` holds a copy.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import yaml

from signer.crds import CRD_FILES

POLICY_FILE: Final = CRD_FILES[0]
FIRST_VERSION: Final = (1, 25)
"""The first Kubernetes version whose API server evaluates these rules."""
_HEADING: Final = """\
# Made by `make generate` from the definition in ../crds, with validation rules in CEL: for API servers from 1.25.
# Apply it over ../crds; otherwise it is the same definition.
"""


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One rule at one place of ``spec``."""

    path: tuple[str, ...]
    """Properties below ``spec``; empty for ``spec`` itself."""
    rule: str
    message: str
    """What is allowed; the API server puts the path in front."""


_IN_RANGE: Final = "duration(self) >= duration('1h') && duration(self) <= duration('8784h')"
_RANGE: Final = "must be from 1h to 8784h (366 days)"

POLICY_RULES: Final = (
    ValidationRule(
        (),
        "!has(self.mode) || self.mode != 'Enforce' || self.authorizedAttestors.exists(one, one.name != 'insecure')",
        "mode Enforce needs an attestor that renews in authorizedAttestors: with insecure alone, every node would lose "
        "its certificate",
    ),
    ValidationRule(("certificates", "clientDuration"), _IN_RANGE, _RANGE),
    ValidationRule(("certificates", "servingDuration"), _IN_RANGE, _RANGE),
    ValidationRule(("certificates", "insecureDuration"), _IN_RANGE, _RANGE),
)


def policy_definition_with_rules() -> dict[str, Any]:
    """The NodeAttestationPolicy's definition with its rules in every version.

    Raises:
        KeyError: a rule is for a field that the schema does not have.
    """
    definition: dict[str, Any] = yaml.safe_load(files("signer.crds").joinpath(POLICY_FILE).read_text(encoding="utf-8"))
    for version in definition["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for rule in POLICY_RULES:
            schema = spec
            for name in rule.path:
                schema = schema["properties"][name]
            rules = schema.setdefault("x-kubernetes-validations", [])
            rules.append({"rule": rule.rule, "message": rule.message})
    return definition


def policy_definition_text() -> str:
    """The same as YAML, with a heading that says what it is."""
    return _HEADING + yaml.dump(policy_definition_with_rules(), Dumper=_NoAliases, sort_keys=False, width=120)


class _NoAliases(yaml.SafeDumper):
    """Anchors are good YAML, and nobody expects them in a manifest."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    sys.stdout.write(policy_definition_text())
