"""Rules of the house that no linter states: broad excepts are few and explained, imports in functions are listed."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("signer", "attestors", "authenticator", "node_access")
BROAD: Final = frozenset({"Exception", "BaseException"})
MOST_BROAD: Final = 4
"""In 10,000 lines."""

LAZY: Final = "loaded where it is used: "
IMPORTS_INSIDE: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "signer/entry.py": (
        LAZY + "without the extra, the program says which one is missing; offline commands need no extra",
        frozenset({"signer.cli", "signer.offline.main"}),
    ),
    "signer/cli/commands.py": (
        LAZY + "only the command that is named needs its parser, and only when it runs the rest",
        frozenset(
            {
                "signer.cli.audit",
                "signer.cli.check.command",
                "signer.cli.completion",
                "signer.cli.crds",
                "signer.cli.explain",
                "signer.cli.node_access",
                "signer.cli.node_access_preflight",
                "signer.cli.parsers.audit",
                "signer.cli.parsers.check",
                "signer.cli.parsers.completion",
                "signer.cli.parsers.crds",
                "signer.cli.parsers.explain",
                "signer.cli.parsers.node_access",
                "signer.cli.parsers.preflight",
                "signer.cli.parsers.rotate",
                "signer.cli.parsers.run",
                "signer.cli.parsers.status",
                "signer.cli.parsers.version",
                "signer.cli.parsers.workload_kubeconfig",
                "signer.cli.preflight",
                "signer.cli.rotate",
                "signer.cli.rotate_preflight_command",
                "signer.cli.rotate_ssh",
                "signer.cli.rotate_status",
                "signer.cli.run",
                "signer.cli.status",
                "signer.cli.version",
                "signer.cli.workload_kubeconfig.command",
                "signer.offline.krl",
                "signer.offline.ssh_sign",
            }
        ),
    ),
    "signer/kube/management.py": (
        LAZY + "only a configuration of the management cluster that comes from a file needs PyYAML",
        frozenset({"attestors.net.strict_yaml", "signer.kube.kubeconfig"}),
    ),
    "authenticator/cli.py": (
        LAZY + "a stored certificate is printed although nothing else can be imported",
        frozenset({"authenticator.commands", "authenticator.commands.output"}),
    ),
    "attestors/aws/__init__.py": (
        LAZY + "a node loads the agent plugin only, a controller the server plugin; boto3 is an extra",
        frozenset(
            {
                "attestors.aws.controller",
                "attestors.aws.node.plugin",
                "attestors.aws.reasons",
                "attestors.aws.redaction",
                "attestors.aws.services",
                "attestors.aws.settings",
            }
        ),
    ),
    "attestors/aws/node/web_identity.py": (LAZY + "boto3 is an extra", frozenset({"attestors.aws.dialled_clients"})),
    "attestors/aws/services.py": (LAZY + "boto3 is an extra", frozenset({"attestors.aws.ec2.api"})),
    "attestors/clouds/google/compute.py": (LAZY + "requests is an extra", frozenset({"attestors.clouds.exchange"})),
    "attestors/gcp/certificate_service.py": (LAZY + "requests is an extra", frozenset({"attestors.clouds.exchange"})),
    "attestors/composite/__init__.py": (
        LAZY + "a node loads the agent plugin only, a controller the server plugin",
        frozenset(
            {
                "attestors.composite.controller",
                "attestors.composite.node.plugin",
                "attestors.composite.parts",
                "attestors.composite.reasons",
                "attestors.composite.wire",
            }
        ),
    ),
    "attestors/gcp/__init__.py": (
        LAZY + "a node loads the agent plugin only, a controller the server plugin; google-auth is an extra",
        frozenset(
            {
                "attestors.clouds.google",
                "attestors.clouds.recorded_calls",
                "attestors.clouds.urls",
                "attestors.contract",
                "attestors.gcp.certificate_service",
                "attestors.gcp.certificate_source",
                "attestors.gcp.certificates",
                "attestors.gcp.controller",
                "attestors.gcp.instances",
                "attestors.gcp.node.plugin",
                "attestors.gcp.reasons",
                "attestors.gcp.settings",
                "attestors.gcp.wire",
            }
        ),
    ),
    "attestors/tpm/node/plugin.py": (
        LAZY + "a request of a node needs no parser of certificates",
        frozenset({"attestors.tpm.node.shown_keys"}),
    ),
    "attestors/tpm/__init__.py": (
        LAZY + "a node loads the agent plugin only, a controller the server plugin; tpm2-pytss is an extra",
        frozenset(
            {
                "attestors.tpm.controller",
                "attestors.tpm.node.plugin",
                "attestors.tpm.reasons",
                "attestors.tpm.settings",
            }
        ),
    ),
}
"""Of our own packages, by file, with the reason. That a contract of `.importlinter` forbids it elsewhere is none."""


@functools.cache
def product() -> tuple[tuple[str, str, ast.Module], ...]:
    """Every file of the product: its path, its text, and what it says."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    texts = [
        (file.relative_to(ROOT), file.read_text(encoding="utf-8"))
        for file in files
        if "testing" not in file.relative_to(ROOT).parts
    ]
    return tuple((str(path), text, ast.parse(text)) for path, text in texts)


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether it catches everything, also if it raises it again."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or ast.unparse(one) in BROAD for one in caught)


def broad_excepts(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and comment of each; the comment stands on its line, or on the next one alone."""
    lines = text.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node):
            following = lines[node.lineno].strip()
            comment = lines[node.lineno - 1].partition("#")[2] or (following if following.startswith("#") else "")
            yield node.lineno, comment.removeprefix(" noqa: BLE001").strip(" -#")


def test_broad_excepts_are_few() -> None:
    found = [f"{path}:{line}" for path, text, tree in product() for line, _ in broad_excepts(text, tree)]
    lines = sum(text.count("\n") for _, text, _ in product())
    assert len(found) / lines * 10_000 <= MOST_BROAD, f"{len(found)} in {lines} lines:\n" + "\n".join(found)


def test_each_broad_except_has_its_reason() -> None:
    found = {f"{path}:{line}": reason for path, text, tree in product() for line, reason in broad_excepts(text, tree)}
    assert [where for where, reason in found.items() if len(reason.split()) < 3] == []


@pytest.mark.parametrize(
    ("text", "broad"),
    [
        ("except Exception:\n    pass", True),
        ("except:\n    pass", True),
        ("except (ValueError, BaseException):\n    pass", True),
        ("except (Exception, SystemExit) as e:\n    raise B from e", True),
        ("except BaseException:\n    close()\n    raise", True),
        ("except ValueError:\n    pass", False),
        ("except (ValueError, TSS2_Exception):\n    pass", False),
    ],
)
def test_what_counts_as_broad(text: str, broad: bool) -> None:
    body = "\n".join(f"    {line}" for line in f"try:\n    f()\n{text}".splitlines())
    (handler,) = (node for node in ast.walk(ast.parse(f"def f():\n{body}")) if isinstance(node, ast.ExceptHandler))
    assert is_broad(handler) is broad


def imports_inside(tree: ast.Module) -> set[str]:
    """Modules of ours that functions import."""
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                found.add("." * node.level + (node.module or ""))
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    return {module for module in found if module.partition(".")[0] in ("", *PACKAGES)}


def test_imports_inside_functions_are_listed() -> None:
    """One that is there to get around a layer or a circle has no place in the list: move what is imported."""
    found = {path: frozenset(modules) for path, _, tree in product() if (modules := imports_inside(tree))}
    assert found == {path: modules for path, (_, modules) in IMPORTS_INSIDE.items()}


def test_no_module_is_imported_by_name() -> None:
    """But for plugins, which entry points name."""
    named = {
        path
        for path, _, tree in product()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("importlib.import_module", "import_module", "__import__")
    }
    assert named <= {"attestors/registry.py"}


CALLS: Final = frozenset({"get", "list_pages", "watch", "create", "replace", "patch", "delete"})


def test_the_calls_to_an_api_server_have_their_protocols_in_one_module() -> None:
    own = [
        f"{path}: {node.name}"
        for path, _, tree in product()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and path.startswith("signer/")
        and any("Protocol" in ast.unparse(base) for base in node.bases)
        and CALLS & {member.name for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)}
    ]
    assert {entry.partition(":")[0] for entry in own} == {"signer/kube/calls.py"}, own
