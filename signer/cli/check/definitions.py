"""Whether the management cluster has the product's CustomResourceDefinitions, and of this version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from signer.cli.check.findings import Finding, fine, needs_attention, not_checked
from signer.crds import access_definitions, custom_resource_definitions
from signer.kube.calls import Get
from signer.kube.discovery import served_plurals
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from signer.model.fields import items_of, mapping_of, text_of

_SHOWN: Final = 3
_SCHEMA: Final = ("schema", "openAPIV3Schema")


async def definitions_findings(client: Get, *, access: bool) -> tuple[Finding, ...]:
    """Check every definition that a controller needs.

    Raises:
        ApiError: the API server fails.
    """
    texts = (*custom_resource_definitions(), *(access_definitions() if access else ()))
    return tuple([await _finding(client, yaml.safe_load(text), access=access) for text in texts])


async def _finding(client: Get, ours: Mapping[str, Any], *, access: bool) -> Finding:
    name, spec = text_of(mapping_of(ours, "metadata"), "name"), mapping_of(ours, "spec")
    check = f"definition {name}"
    remedy = f"node-attestation-controller crds{' --access' if access else ''} | kubectl apply -f -"
    (version,) = items_of(spec, "versions")
    group, plural = text_of(spec, "group"), text_of(mapping_of(spec, "names"), "plural")
    try:
        if plural not in await served_plurals(client, group, text_of(version, "name")):
            return needs_attention(check, f"{plural} of {group} are not served", remedy)
    except (ResourceNotServed, NotFound):
        return needs_attention(check, f"{plural} of {group} are not served", remedy)
    try:
        theirs = await client.get(CUSTOM_RESOURCE_DEFINITIONS.object(name))
    except Forbidden:
        return not_checked(check, "installed; its version is not readable here: get on customresourcedefinitions")
    except ApiError as error:
        return not_checked(check, f"installed; its version cannot be read: {error}")
    installed: Any = next(
        (one for one in items_of(mapping_of(theirs, "spec"), "versions") if _named(one) == _named(version)), {}
    )
    wanted, found = set(_fields(_schema(version))), set(_fields(_schema(installed)))
    if lacking := sorted(wanted - found):
        return needs_attention(check, f"older than this program: it has no {_listed(lacking)}", remedy)
    if more := sorted(found - wanted):
        return needs_attention(
            check,
            f"newer than this program: it also has {_listed(more)}",
            "run the version of this program that the controller has",
        )
    return fine(check, "installed, of this version")


def _named(version: Any) -> str:
    return text_of(version, "name") if isinstance(version, Mapping) else ""


def _schema(version: Any) -> Any:
    for field in _SCHEMA:
        version = version.get(field) if isinstance(version, Mapping) else None
    return version


def _fields(schema: Any, path: str = "") -> Iterator[str]:
    """The path of every field that a structural schema declares."""
    if not isinstance(schema, Mapping):
        return
    for name, of in mapping_of(schema, "properties").items():
        yield f"{path}.{name}"
        yield from _fields(of, f"{path}.{name}")
    yield from _fields(schema.get("items"), f"{path}[]")
    yield from _fields(schema.get("additionalProperties"), f"{path}.*")


def _listed(paths: list[str]) -> str:
    more = len(paths) - _SHOWN
    return ", ".join(path.removeprefix(".") for path in paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
