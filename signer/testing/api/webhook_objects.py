"""Configurations of admission webhooks (Kubernetes ``pkg/apis/admissionregistration``, v1)."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from . import metadata
from .status import FieldError, invalid_value, required, unsupported
from .strategy import Context, Strategy

_POLICIES: Final = ("Fail", "Ignore")
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_OPERATIONS: Final = frozenset({"*", "CREATE", "UPDATE", "DELETE", "CONNECT"})
_MAXIMUM_SECONDS: Final = 30


class WebhookConfigurations(Strategy):
    """Defaults and the checks of what each webhook must say."""

    generation = True

    def __init__(self, *, mutating: bool) -> None:
        self._defaults: dict[str, Any] = {
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
            **({"reinvocationPolicy": "Never"} if mutating else {}),
        }

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        value["webhooks"] = [self._with_defaults(one) for one in value.get("webhooks") or ()]

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        self.prepare_create(value, context)

    def _with_defaults(self, webhook: dict[str, Any]) -> dict[str, Any]:
        rules = [{"scope": "*", **rule} for rule in webhook.get("rules") or ()]
        config = dict(webhook.get("clientConfig") or {})
        if config.get("service"):
            config["service"] = {"port": 443, **config["service"]}
        return {**self._defaults, **webhook, "clientConfig": config, "rules": rules}

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, webhook in enumerate(value["webhooks"]):
            errors += _check(webhook, f"webhooks[{index}]")
        return errors

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return self.validate_create(value, context)


def _check(webhook: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = webhook.get("name", "")
    if not name:
        errors.append(required(f"{path}.name"))
    elif reason := metadata.subdomain(name):
        errors.append(invalid_value(f"{path}.name", name, reason))
    elif name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        errors.append(invalid_value(f"{path}.name", name, text))
    if webhook["failurePolicy"] not in _POLICIES:
        errors.append(unsupported(f"{path}.failurePolicy", webhook["failurePolicy"], _POLICIES))
    if webhook.get("sideEffects") not in _SIDE_EFFECTS:
        text = "must specify one of " + ", ".join(_SIDE_EFFECTS)
        errors.append(required(f"{path}.sideEffects", text))
    if not webhook.get("admissionReviewVersions"):
        errors.append(required(f"{path}.admissionReviewVersions"))
    if not 0 < webhook["timeoutSeconds"] <= _MAXIMUM_SECONDS:
        text = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid_value(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], text))
    return errors + _check_client(webhook["clientConfig"], f"{path}.clientConfig") + _check_rules(webhook, path)


def _check_client(config: dict[str, Any], path: str) -> list[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if url is not None and urlsplit(url).scheme != "https":
        return [invalid_value(f"{path}.url", url, "'https' is the only allowed URL scheme")]
    if service is not None:
        return [required(f"{path}.service.{field}") for field in ("name", "namespace") if not service.get(field)]
    return []


def _check_rules(webhook: dict[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(webhook["rules"]):
        place = f"{path}.rules[{index}]"
        errors += [
            required(f"{place}.{field}")
            for field in ("apiGroups", "apiVersions", "resources", "operations")
            if not rule.get(field)
        ]
        for number, operation in enumerate(rule.get("operations") or ()):
            if operation not in _OPERATIONS:
                errors.append(unsupported(f"{place}.operations[{number}]", operation, sorted(_OPERATIONS - {"*"})))
    return errors
