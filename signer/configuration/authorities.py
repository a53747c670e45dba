"""Section ``certificateAuthorities``: the Secrets that policies may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signer.configuration.document import InvalidConfiguration, object_of, require_namespace, unknown_fields
from signer.model.authority_suffixes import CLIENT_CA, CLUSTER_CA, SUFFIX, SUFFIX_FORM

_AUTHORITY_FIELDS: Final = frozenset({"suffixes", "suffixesByNamespace"})


@dataclass(frozen=True, slots=True)
class AllowedAuthorities:
    """The name suffixes of the Secrets that a policy may name as its cluster's CAs."""

    suffixes: frozenset[str] = frozenset({CLUSTER_CA, CLIENT_CA})
    """For policies of every namespace that ``by_namespace`` does not have."""
    by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allowed_in(self, namespace: str) -> frozenset[str]:
        """The suffixes that policies in that namespace may name."""
        return self.by_namespace.get(namespace, self.suffixes)


def read_authorities(where: str, entry: Any) -> AllowedAuthorities:
    """The suffixes that policies may name.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(where, entry)
    for unknown in unknown_fields(stated, _AUTHORITY_FIELDS):
        fields = ", ".join(sorted(_AUTHORITY_FIELDS))
        raise InvalidConfiguration(f"--config: {where} has the fields {fields}, and not {unknown}")
    by_namespace = object_of(f"{where}.suffixesByNamespace", stated.get("suffixesByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{where}.suffixesByNamespace", namespace, "; those of all others belong in suffixes")
    default = AllowedAuthorities()
    suffixes = stated.get("suffixes")
    return AllowedAuthorities(
        default.suffixes if suffixes is None else _suffixes(f"{where}.suffixes", suffixes),
        {
            namespace: _suffixes(f"{where}.suffixesByNamespace.{namespace}", of)
            for namespace, of in by_namespace.items()
        },
    )


def _suffixes(path: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and SUFFIX.fullmatch(one) for one in value):
        raise InvalidConfiguration(
            f"--config: {path} must be a list of suffixes of Secret names, such as [ca, cca]: each {SUFFIX_FORM}"
        )
    return frozenset(value)
