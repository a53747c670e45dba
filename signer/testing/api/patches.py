"""The three patch formats: JSON merge (RFC 7386), JSON patch (RFC 6902), and strategic merge of built-in kinds.

Server-side apply is a merge here, without field managers: fields that a manager stops sending stay, and no two managers
conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .status import APIError, bad_request

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_MERGE_KEYS = {
    "conditions": "type",
    "ownerReferences": "uid",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "secrets": "name",
    "ports": "port",
}
_WHOLE_LISTS = {"CertificateSigningRequest": frozenset({"conditions"})}
"""Lists without a merge key in the types of a kind, although lists of that name have one in others."""
_SETS = frozenset({"finalizers"})
_DIRECTIVES = ("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch")


def merge(target: Any, patch: Any) -> Any:
    """A new value; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, item in patch.items():
        if item is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), item)
    return result


def strategic_merge(target: Any, patch: Any, keys: Mapping[str, str] = _MERGE_KEYS) -> Any:
    """As ``merge``, but lists that have a merge key in the Kubernetes types are merged item by item.

    ``keys``: names of such lists, and their merge keys.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: item for name, item in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for name, item in patch.items():
        if name.startswith("$deleteFromPrimitiveList/") and isinstance(item, list):
            field = name.partition("/")[2]
            result[field] = [found for found in result.get(field) or [] if found not in item]
        elif name.startswith(_DIRECTIVES):
            continue
        elif item is None:
            result.pop(name, None)
        elif isinstance(item, list) and name in _SETS:
            found = result.get(name) or []
            result[name] = [*found, *(entry for entry in item if entry not in found)]
        elif isinstance(item, list) and name in keys and all(isinstance(entry, dict) for entry in item):
            result[name] = _merge_list(result.get(name) or [], item, keys[name], keys)
        else:
            result[name] = strategic_merge(result.get(name), item, keys)
    return result


def _merge_list(target: list[Any], patch: list[dict[str, Any]], key: str, keys: Mapping[str, str]) -> list[Any]:
    result = list(target)
    for item in patch:
        directive = item.get("$patch")
        if directive == "replace":
            return [entry for entry in patch if "$patch" not in entry]
        place = next((i for i, found in enumerate(result) if found.get(key) == item.get(key)), None)
        if directive == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic_merge({}, item, keys))
        else:
            result[place] = strategic_merge(result[place], item, keys)
    return result


def _merge_keys(target: dict[str, Any]) -> Mapping[str, str]:
    whole = _WHOLE_LISTS.get(str(target.get("kind")), frozenset())
    return {name: key for name, key in _MERGE_KEYS.items() if name not in whole}


def _invalid(text: str) -> APIError:
    return APIError(422, "Invalid", f"the server rejected our request due to an error in our request: {text}", {})


def _tokens(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request("json patch: a pointer must start with '/'")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _child(parent: Any, token: str) -> Any:
    try:
        return parent[int(token)] if isinstance(parent, list) else parent[token]
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise _invalid(f"path {token!r} does not exist") from error


def _walk(document: Any, tokens: list[str]) -> Any:
    for token in tokens:
        document = _child(document, token)
    return document


def _add(parent: Any, token: str, value: Any) -> None:
    if isinstance(parent, list):
        try:
            index = len(parent) if token == "-" else int(token)
        except ValueError as error:
            raise _invalid(f"{token!r} is no index") from error
        if not 0 <= index <= len(parent):
            raise _invalid(f"index {index} is out of bounds")
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[token] = value
    else:
        raise _invalid(f"path {token!r} does not exist")


def json_patch(document: dict[str, Any], operations: Any) -> Any:
    """Apply to ``document`` in place. Raises APIError 400 for a malformed patch, 422 where it does not apply."""
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("json patch: must be a list of operations")
    for operation in operations:
        tokens = _tokens(operation.get("path"))
        if not tokens:
            raise bad_request("json patch: operations on the whole document are not supported")
        name, parent, last = operation.get("op"), _walk(document, tokens[:-1]), tokens[-1]
        match name:
            case "add":
                _add(parent, last, operation.get("value"))
            case "replace":
                _child(parent, last)
                parent[int(last) if isinstance(parent, list) else last] = operation.get("value")
            case "remove":
                _child(parent, last)
                del parent[int(last) if isinstance(parent, list) else last]
            case "test":
                if _child(parent, last) != operation.get("value"):
                    raise _invalid(f"testing path {operation.get('path')} failed")
            case "copy" | "move":
                source = _tokens(operation.get("from"))
                moved = msgspec.json.decode(msgspec.json.encode(_walk(document, source)))
                if name == "move":
                    holder = _walk(document, source[:-1])
                    del holder[int(source[-1]) if isinstance(holder, list) else source[-1]]
                _add(_walk(document, tokens[:-1]), last, moved)
            case _:
                raise bad_request(f"json patch: unknown operation {name!r}")
    return document


def check_applied(patch: Any, name: str, api_version: str, *, present: bool) -> None:
    """What must stand in a configuration for server-side apply; its name, too, where no object is present.

    Raises APIError 400.
    """
    if not isinstance(patch, dict):
        raise bad_request("a patch must be a JSON object")
    metadata = patch.get("metadata") or {}
    if patch.get("apiVersion") != api_version:
        version = patch.get("apiVersion", "")
        text = f"Specified patch version: {version}, expected: {api_version}"
        raise bad_request(f"Incorrect version specified in apply patch. {text}")
    if not patch.get("kind"):
        raise bad_request("Object 'Kind' is missing in the apply patch")
    if metadata.get("name", name if present else "") != name:
        given = metadata.get("name", "")
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")


def apply_patch(content_type: str, target: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The patched object. ``target`` must be the caller's own copy. Raises APIError."""
    if content_type == JSON:
        result = json_patch(target, patch)
    elif not isinstance(patch, dict):
        raise bad_request("a patch must be a JSON object")
    else:
        result = (
            strategic_merge(target, patch, _merge_keys(target)) if content_type == STRATEGIC else merge(target, patch)
        )
    if not isinstance(result, dict):
        raise bad_request("the patched value is no object")
    return result
