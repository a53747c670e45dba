"""Section ``servingAddresses``: networks and reserved names of serving certificates."""

from __future__ import annotations

from typing import Any, Final

from signer.configuration.document import InvalidConfiguration, object_of, require_namespace, unknown_fields
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, InvalidReservedNames, ReservedNames
from signer.model.serving_networks import InvalidNetworks, IPNetwork, OperatorNetworks, parse_networks

_SERVING_FIELDS: Final = frozenset({"networks", "networksByNamespace", "reservedNames"})


def read_serving_networks(path: str, entry: Any) -> OperatorNetworks:
    """The networks that policies may name.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    fields = object_of(path, entry)
    for unknown in unknown_fields(fields, _SERVING_FIELDS):
        raise InvalidConfiguration(
            f"--config: {path} has the fields networks, networksByNamespace and reservedNames, and not {unknown}"
        )
    by_namespace = object_of(f"{path}.networksByNamespace", fields.get("networksByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{path}.networksByNamespace", namespace, "; networks of all namespaces belong in networks")
    return OperatorNetworks(
        _networks(f"{path}.networks", fields.get("networks")),
        {namespace: _networks(f"{path}.networksByNamespace.{namespace}", of) for namespace, of in by_namespace.items()},
    )


def read_reserved_names(path: str, entry: Any) -> ReservedNames:
    """The host labels that no serving certificate holds; the default ones where the file has none.

    Raises:
        InvalidConfiguration: the list is invalid.
    """
    fields = object_of(path, entry)
    if "reservedNames" not in fields:
        return DEFAULT_RESERVED_NAMES
    try:
        return ReservedNames.parse(fields["reservedNames"])
    except InvalidReservedNames as error:
        raise InvalidConfiguration(f"--config: {path}.reservedNames {error}") from error


def _networks(path: str, value: Any) -> tuple[IPNetwork, ...]:
    try:
        return parse_networks(value)
    except InvalidNetworks as error:
        raise InvalidConfiguration(f"--config: {path} {error}") from error
