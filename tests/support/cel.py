"""Evaluates an admission policy's CEL on an AdmissionReview, with a stand-in for the API server's authorizer.

The library is the CEL project's own for Python, around its C++ implementation, and checks types. API servers use the
same project's Go implementation; tests/e2e/test_admission_policies.py compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.admission.policy import AdmissionPolicy, Validation
from tests.support.binaries import MissingPart

try:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_strings
except ImportError:  # pragma: no cover
    cel = ext_strings = None

_TYPE_NAMES: Final = "kubernetes.authorization."
# apiserver pkg/cel/library/authz.go: receiver, function, its arguments (0 or 1), result.
_AUTHORIZER_FUNCTIONS: Final = (
    ("Authorizer", "group", 1, "GroupCheck"),
    ("GroupCheck", "resource", 1, "ResourceCheck"),
    ("ResourceCheck", "subresource", 1, "ResourceCheck"),
    ("ResourceCheck", "namespace", 1, "ResourceCheck"),
    ("ResourceCheck", "name", 1, "ResourceCheck"),
    ("ResourceCheck", "check", 1, "Decision"),
    ("Decision", "allowed", 0, "bool"),
)


class ExpressionFailed(AssertionError):
    """An expression does not compile, or fails on a request; an API server would refuse the request."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one user may do, besides what the API server has checked already."""

    user: str
    group: str
    resource: str
    namespace: str
    name: str
    verb: str


@dataclass(frozen=True, slots=True)
class NotMatched:
    """A match condition is false: the policy does not look at the request."""


class Evaluator:
    """Compiles every expression of a policy. Raises ``MissingPart`` and ``ExpressionFailed``."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        _check_installed()
        self._policy = policy
        self._compiled: dict[str, Any] = {}
        # The library passes no values of abstract types to functions: types are checked with them, and texts evaluated.
        checker, evaluator = _environment(is_typed=True), _environment(is_typed=False)
        for expression in policy.expressions:
            try:
                checker.compile(expression)
                self._compiled[expression] = evaluator.compile(expression)
            except RuntimeError as error:
                raise ExpressionFailed(f"{expression}: {error}") from None

    def refusals(self, review: Mapping[str, Any], grants: Collection[Grant]) -> tuple[Validation, ...] | NotMatched:
        """The validations that refuse the request of an ``AdmissionReview``. Raises ``ExpressionFailed``."""
        request = review["request"]
        data: dict[str, Any] = {
            "request": request,
            "object": request["object"],
            "oldObject": request["oldObject"],
            "authorizer": json.dumps(
                {
                    "user": request["userInfo"]["username"],
                    "grants": [[g.user, g.group, g.resource, g.namespace, g.name, g.verb] for g in grants],
                }
            ),
        }
        if not all(
            _truth(condition.expression, self._result(condition.expression, data))
            for condition in self._policy.match_conditions
        ):
            return NotMatched()
        variables: dict[str, Any] = {}
        for variable in self._policy.variables:
            result = self._result(variable.expression, {**data, "variables": variables})
            variables[variable.name] = _plain(variable.expression, result)
        data["variables"] = variables
        return tuple(
            each
            for each in self._policy.validations
            if not _truth(each.expression, self._result(each.expression, data))
        )

    def _result(self, expression: str, data: Mapping[str, Any]) -> Any:
        return self._compiled[expression].eval(data=data)


class RuleEvaluator:
    """Evaluates rules of a CustomResourceDefinition (``x-kubernetes-validations``). Raises ``MissingPart``."""

    def __init__(self) -> None:
        _check_installed()
        self._environment = cel.NewEnv(
            variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN}, extensions=[ext_strings.ExtStrings()]
        )

    def holds(self, rule: str, value: object, old: object = None) -> bool:
        """Whether the rule holds for ``self``, and ``oldSelf`` before. Raises ``ExpressionFailed``."""
        try:
            return _truth(rule, self._environment.compile(rule).eval(data={"self": value, "oldSelf": old}))
        except RuntimeError as error:
            raise ExpressionFailed(f"{rule}: {error}") from None


class MapEvaluator:
    """Evaluates an expression of a mutating policy whose constructors were replaced by maps. Raises ``MissingPart``."""

    def __init__(self) -> None:
        _check_installed()
        names = ("object", "request", "variables")
        self._environment = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))

    def value(self, expression: str, request: Mapping[str, Any], variables: Mapping[str, Any]) -> Any:
        """Its value for the request of an ``AdmissionReview``. Raises ``ExpressionFailed``."""
        data = {"object": request["object"], "request": request, "variables": dict(variables)}
        try:
            return _plain(expression, self._environment.compile(expression).eval(data=data))
        except RuntimeError as error:
            raise ExpressionFailed(f"{expression}: {error}") from None


def _check_installed() -> None:
    if cel is None:
        raise MissingPart("cel-expr-python is not installed: pip install --group cel")


def _plain(expression: str, result: Any) -> Any:
    if result.type().name() in {"ERROR", "UNKNOWN"}:
        raise ExpressionFailed(f"{expression}: {result.value()}")
    return result.plain_value()


def _truth(expression: str, result: Any) -> bool:
    value = _plain(expression, result)
    if not isinstance(value, bool):
        raise ExpressionFailed(f"{expression}: not a boolean")
    return value


def _environment(*, is_typed: bool) -> Any:
    def type_of(name: str) -> Any:
        if name == "bool":
            return cel.Type.BOOL
        return cel.Type.AbstractType(_TYPE_NAMES + name) if is_typed else cel.Type.STRING

    overloads: dict[str, Any] = {}
    for receiver, function, arguments, result in _AUTHORIZER_FUNCTIONS:
        overload = cel.Overload(
            f"{receiver}_{function}",
            return_type=type_of(result),
            parameters=[type_of(receiver), *[cel.Type.STRING] * arguments],
            is_member=True,
            impl=_allowed if function == "allowed" else _with(function),
        )
        overloads[function] = cel.FunctionDecl(function, [overload])
    variables = dict.fromkeys(("object", "oldObject", "request", "variables"), cel.Type.DYN)
    return cel.NewEnv(variables={**variables, "authorizer": type_of("Authorizer")}, functions=list(overloads.values()))


def _with(function: str) -> Any:
    def call(receiver: str, argument: str) -> str:
        return json.dumps({**json.loads(receiver), function: argument})

    return call


def _allowed(decision: str) -> bool:
    asked = json.loads(decision)
    wanted = [asked["user"], *(asked.get(part, "") for part in ("group", "resource", "namespace", "name", "check"))]
    return wanted in asked["grants"]
