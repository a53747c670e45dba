"""CEL validation rules of AccessGrant, AccessApproval and Bastion, for API servers from 1.25.

Most of them say what never changes. The webhook and the admission policies check that, too, for API servers without
these rules; the controller seals what it has seen first, and so needs none of them.

``python -m signer.crds.access_expressions FOLDER`` writes the definitions with the rules; ``deploy/crds-access-cel``
holds copies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from signer.crds import ACCESS_CRD_FILES
from signer.crds.expressions import ITEMS, ValidationRule, definition_with_rules, text_of_definition

GRANTS, APPROVALS, BASTIONS = ACCESS_CRD_FILES


def never_changes(field: str) -> ValidationRule:
    """A field of ``spec`` that nobody changes, adds or removes."""
    return ValidationRule(
        (),
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} never changes: make a new object",
    )


_POWERS: Final = "[" + ", ".join(str(2**exponent) for exponent in range(25)) + "]"
_OCTET: Final = "int(self.split('/')[0].split('.')[{}])"
_ADDRESS: Final = " + ".join(f"{_OCTET.format(index)} * {256 ** (3 - index)}" for index in range(4))
_HOST_BITS: Final = ValidationRule(
    ("ingress", ITEMS, "ipBlock", "cidr"),
    f"self.contains(':') || ({_ADDRESS}) % {_POWERS}[32 - int(self.split('/')[1])] == 0",
    "must have no host bits: write the first address of the network",
)
"""Of IPv4. From 1.31 on, CEL could say it of IPv6, too; the controller does."""
_NO_NETWORK_TWICE: Final = ValidationRule(
    ("ingress",),
    "self.all(one, self.exists_one(other, other.ipBlock.cidr == one.ipBlock.cidr))",
    "must name each network once",
)

GRANT_RULES: Final = (
    *(
        never_changes(field)
        for field in (
            "clusterRef",
            "target",
            "logins",
            "sshPublicKey",
            "bastion",
            "duration",
            "permissions",
            "reason",
            "ticket",
            "createdBy",
        )
    ),
    ValidationRule(
        (),
        "has(self.target.container) ? !has(self.logins) || size(self.logins) == 0 "
        ": !has(self.logins) || size(self.logins) > 0",
        "logins must name 1 to 8 logins of nodes, and none of a container",
    ),
    ValidationRule(
        (),
        "!has(self.bastion) || self.bastion == 'None' || (has(self.ingress) && size(self.ingress) > 0)",
        "ingress must name the networks from which you reach the bastion",
    ),
    ValidationRule(
        ("target",),
        "(has(self.nodes) ? 1 : 0) + (has(self.allNodes) ? 1 : 0) + (has(self.container) ? 1 : 0) == 1",
        "must have exactly one of nodes, allNodes and container",
    ),
    ValidationRule(
        ("duration",),
        "duration(self) >= duration('1m') && duration(self) <= duration('168h')",
        "must be from 1m to 168h (7 days)",
    ),
    _NO_NETWORK_TWICE,
    _HOST_BITS,
)
APPROVAL_RULES: Final = (ValidationRule((), "self == oldSelf", "an approval never changes: make a new one"),)
BASTION_RULES: Final = (
    *(never_changes(field) for field in ("grantRef", "clusterRef", "provider", "principal", "targets")),
    ValidationRule((), "self.principal == 'bastion@' + self.grantRef.uid", "principal must be bastion@ and the UID"),
    _NO_NETWORK_TWICE,
    _HOST_BITS,
)
RULES: Final[Mapping[str, tuple[ValidationRule, ...]]] = {
    GRANTS: GRANT_RULES,
    APPROVALS: APPROVAL_RULES,
    BASTIONS: BASTION_RULES,
}


def access_definition_texts() -> Mapping[str, str]:
    """The definitions with their rules as YAML, by file name."""
    return {file: text_of_definition(definition_with_rules(file, rules)) for file, rules in RULES.items()}


if __name__ == "__main__":
    for name, text in access_definition_texts().items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
