"""An admission policy and its binding as immutable values; the parts that these packages use."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAXIMUM_MESSAGE_CHARACTERS: Final = 512
"""Of one message. The API server allows more, and people read less."""
MAXIMUM_MATCH_CONDITIONS: Final = 64
"""As the API server (``pkg/apis/admissionregistration/validation``)."""
MAXIMUM_POLICY_NAME_CHARACTERS: Final = 63
"""Refusals quote the name twice, and the client reads 256 characters of them."""

_POLICY_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CONDITION_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Operation(enum.Enum):
    """An operation that a policy may look at."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    """Also by patch."""
    DELETE = "DELETE"


class RefusalReason(enum.Enum):
    """``reason`` of a validation, which determines the HTTP status of a refusal."""

    FORBIDDEN = "Forbidden"
    """403: this user may not."""
    INVALID = "Invalid"
    """422: the object is not right."""


@dataclass(frozen=True, slots=True)
class MatchedResource:
    """Requests for one resource, in every version of its API group."""

    api_group: str
    plural: str
    """With a subresource: ``plural/subresource``."""
    operations: tuple[Operation, ...]
    namespaced: bool


@dataclass(frozen=True, slots=True)
class MatchCondition:
    """A CEL expression without ``variables``; where it is false, the policy does not look at the request."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Variable:
    """``variables.<name>`` in validations and in the variables after it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Validation:
    """A CEL expression that must be true; else the request is refused with the message."""

    expression: str
    message: str
    """For people: what to do. One line."""
    reason: RefusalReason


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """A policy that refuses requests, and its binding of the same name to all namespaces.

    A request is refused, too, if an expression fails (``failurePolicy: Fail``).

    Raises:
        ValueError: a part of it is empty, twice there, too long, or has a name that an API server refuses.
    """

    name: str
    resources: tuple[MatchedResource, ...]
    match_conditions: tuple[MatchCondition, ...]
    variables: tuple[Variable, ...]
    validations: tuple[Validation, ...]

    def __post_init__(self) -> None:
        if len(self.name) > MAXIMUM_POLICY_NAME_CHARACTERS:
            raise ValueError(f"a policy's name has at most {MAXIMUM_POLICY_NAME_CHARACTERS} characters")
        _check_names([self.name], _POLICY_NAME)
        _check_names([condition.name for condition in self.match_conditions], _CONDITION_NAME)
        _check_names([variable.name for variable in self.variables], _VARIABLE_NAME)
        if len(self.match_conditions) > MAXIMUM_MATCH_CONDITIONS:
            raise ValueError(f"a policy has at most {MAXIMUM_MATCH_CONDITIONS} match conditions")
        if not self.resources or not all(resource.operations for resource in self.resources):
            raise ValueError("a policy looks at some operation of some resource")
        if not self.validations:
            raise ValueError("a policy validates something")
        if not all(expression.strip() for expression in self.expressions):
            raise ValueError("an expression is empty")
        for message in self.messages:
            if not message or not message.isprintable() or len(message) > MAXIMUM_MESSAGE_CHARACTERS:
                raise ValueError(f"a message is one line of at most {MAXIMUM_MESSAGE_CHARACTERS} characters")
        _check_once("message", self.messages)

    @property
    def expressions(self) -> tuple[str, ...]:
        """All CEL expressions, in the order of evaluation."""
        return (
            *(condition.expression for condition in self.match_conditions),
            *(variable.expression for variable in self.variables),
            *(validation.expression for validation in self.validations),
        )

    @property
    def messages(self) -> tuple[str, ...]:
        """Of all validations, in order."""
        return tuple(validation.message for validation in self.validations)


class DryRunVerb(enum.Enum):
    """How a dry run asks; the controller needs that RBAC verb on the resource."""

    CREATE = "create"
    PATCH = "patch"
    """A merge patch of an object that exists."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Two dry runs that differ in what the policy looks at."""

    verb: DryRunVerb
    refused: Mapping[str, Any]
    """Object or merge patch that the policy refuses."""
    message: str
    """With which it does: one of the policy's messages."""
    accepted: Mapping[str, Any]
    """Object or merge patch that the policy passes."""


def _check_names(names: list[str], form: re.Pattern[str]) -> None:
    for name in names:
        if not form.fullmatch(name):
            raise ValueError(f"no name for a part of an admission policy: {name!r}")
    _check_once("name", names)


def _check_once(what: str, texts: Iterable[str]) -> None:
    found = list(texts)
    if len(set(found)) < len(found):
        raise ValueError(f"a {what} is there twice")
