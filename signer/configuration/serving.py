"""Section ``servingAddresses``: the networks of serving certificates."""

from __future__ import annotations

from typing import Any, Final

from signer.configuration.document import InvalidConfiguration, object_of, require_namespace, unknown_fields
from signer.model.serving_networks import InvalidNetworks, IPNetwork, OperatorNetworks, parse_networks

_SERVING_FIELDS: Final = frozenset({"networks", "networksByNamespace"})


def read_serving_networks(path: str, entry: Any) -> OperatorNetworks:
    """The networks that policies may name.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    fields = object_of(path, entry)
    for unknown in unknown_fields(fields, _SERVING_FIELDS):
        raise InvalidConfiguration(
            f"--config: {path} has the fields networks and networksByNamespace, and not {unknown}"
        )
    by_namespace = object_of(f"{path}.networksByNamespace", fields.get("networksByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{path}.networksByNamespace", namespace, "; networks of all namespaces belong in networks")
    return OperatorNetworks(
        _networks(f"{path}.networks", fields.get("networks")),
        {namespace: _networks(f"{path}.networksByNamespace.{namespace}", of) for namespace, of in by_namespace.items()},
    )


def _networks(path: str, value: Any) -> tuple[IPNetwork, ...]:
    try:
        return parse_networks(value)
    except InvalidNetworks as error:
        raise InvalidConfiguration(f"--config: {path} {error}") from error
