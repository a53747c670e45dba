from __future__ import annotations

import ast
import hashlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from signer.authority.errors import CertificateAuthorityUnavailableReason
from signer.controller import workload_access
from signer.controller.auto_approval import pool_tokens, workload_grants
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval import removal as auto_approval
from signer.controller.cluster import workload_cluster
from signer.controller.status import status_reconciler as status_reconciler
from signer.controller.status import unserved_policies
from signer.decision import authority_source
from signer.kube import errors
from signer.model import condition as conditions
from signer.model import node_attested
from signer.model.reasons import EXPLANATIONS, Reason
from signer.rules.checks import (
    BUILTIN_REQUEST_CHECKS,
    CLUSTER_CHECKS,
    IDENTITY_CHECKS,
    MACHINE_CHECKS,
    REQUEST_CHECKS,
    REQUEST_PLAN,
)
from signer.rules.plan import CheckGroup, Plan
from tests.documents import generated
from tests.documents.generated import UnknownSection, render
from tests.documents.markdown import OPERATING_GUIDE, ROOT, blocks, documents

TROUBLESHOOTING = ROOT / "docs/troubleshooting.md"
PROTOCOL = ROOT / "docs/protocol.md"
INTERNALS = ROOT / "docs/internals.md"


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_generated_parts_are_up_to_date(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert render(text) == text, "run python -m tests.documents"


def test_an_outdated_part_is_written_anew() -> None:
    outdated = "before\n<!-- generated: reasons -->\nold\n<!-- end -->\nbehind\n"
    assert render(outdated) == f"before\n<!-- generated: reasons -->\n\n{generated.reasons()}\n\n<!-- end -->\nbehind\n"


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(UnknownSection, match="fantasy"):
        render("<!-- generated: fantasy -->\n<!-- end -->\n")
    with pytest.raises(FileNotFoundError, match="no_such_thing"):
        render("<!-- generated: quote tests/documents/no_such_thing.py shown.py -->\n<!-- end -->\n")


def test_every_marker_is_paired() -> None:
    for document in documents():
        text = document.read_text(encoding="utf-8")
        assert text.count("<!-- generated: ") == text.count("<!-- end -->"), document


def test_every_section_is_used() -> None:
    used = {
        match[1]
        for document in documents()
        for match in re.finditer(r"<!-- generated: (\w+)", document.read_text(encoding="utf-8"))
    }
    assert used == set(generated.SECTIONS)


class TestReasons:
    def test_every_reason_is_explained(self) -> None:
        assert list(EXPLANATIONS) == list(Reason)

    def test_explanations_are_sentences(self) -> None:
        for reason, explanation in EXPLANATIONS.items():
            for text in (explanation.cause, explanation.remedy):
                assert re.fullmatch(r"[A-Z`].*[.]", text), reason
                assert "\n" not in text, reason

    def test_every_reason_has_a_heading(self) -> None:
        text = TROUBLESHOOTING.read_text(encoding="utf-8")
        assert [reason for reason in Reason if f"\n### {reason}\n" not in text] == []


def spans(plan: Plan[Any]) -> Iterator[str]:
    """Each step and each run of checks of a plan, as the documents name them."""
    number = 0
    for stage in plan.stages:
        if isinstance(stage, CheckGroup):
            first, number = number + 1, number + len(stage.checks)
            yield f"checks {first}-{number}" if first < number else f"check {first}"
        else:
            yield stage.name


def test_the_table_of_steps_has_the_order_of_the_plan() -> None:
    """Of a request to a signer of ours; what the decision, ``explain`` and ``audit verify`` run."""
    text = INTERNALS.read_text(encoding="utf-8")
    table = text[text.index("| step | what happens | otherwise |") : text.index("## The checks")]
    assert re.findall(r"^\| `?([a-z][^|`]*?)`? \|", table, re.MULTILINE)[1:] == list(spans(REQUEST_PLAN))


def test_the_picture_and_the_text_number_the_checks_as_the_plan_does() -> None:
    text = " ".join(INTERNALS.read_text(encoding="utf-8").split())
    request = len(CLUSTER_CHECKS) + len(REQUEST_CHECKS)
    identity = request + len(IDENTITY_CHECKS)
    machine = identity + len(MACHINE_CHECKS)
    for span in ((1, request), (request + 1, identity), (identity + 1, machine)):
        assert f"│ checks {span[0]}-{span[1]}" in text
    builtin = len(CLUSTER_CHECKS) + len(BUILTIN_REQUEST_CHECKS)
    assert f"Between {builtin} and {builtin + 1} the node's record" in text


def test_every_condition_is_explained() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in OPERATING_GUIDE)
    kinds = [value for name, value in vars(conditions).items() if name.isupper() and isinstance(value, str)]
    assert conditions.READY in kinds
    assert [kind for kind in kinds if kind != conditions.READY and f"| `{kind}`" not in text] == []
    assert [reason for reason in CertificateAuthorityUnavailableReason if f"| `{reason}` |" not in text] == []


REASONS_IN = (
    authority_source,
    conditions,
    reconciler,
    node_attested,
    pool_tokens,
    auto_approval,
    status_reconciler,
    unserved_policies,
    workload_access,
    workload_cluster,
    workload_grants,
)
"""Modules that hand reasons to conditions, as words in CamelCase."""
NO_REASONS = {"Approved", "False", "SubjectAccessReview", "True", "Unknown"}


@pytest.mark.parametrize("module", REASONS_IN, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_reason_of_a_condition_is_explained(module: ModuleType) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in OPERATING_GUIDE)
    constants = [
        node.value for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Constant)
    ]
    words = {value for value in constants if isinstance(value, str) and re.fullmatch(r"(?:[A-Z]+[a-z]+)+", value)}
    assert words
    assert sorted(word for word in words - NO_REASONS if f"`{word}`" not in text) == []


def test_every_answer_of_an_api_server_is_explained() -> None:
    """Its type is the reason of WorkloadClusterReachable."""
    text = TROUBLESHOOTING.read_text(encoding="utf-8")
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.ApiError)]
    assert len(kinds) > 10
    assert [kind.__name__ for kind in kinds if kind is not errors.ApiError and f"`{kind.__name__}`" not in text] == []


def test_the_worked_example_of_the_binding_is_right() -> None:
    """By hand, from what the document shows: a reader who follows it gets the recorded binding."""
    [example] = [block for block in blocks(PROTOCOL) if "SHA-256 of all" in block.text]
    *inputs, result = [line.rsplit("  ", 1)[-1] for line in example.text.splitlines()]
    contents = [text.encode("ascii") for text in inputs[:-1]] + [bytes.fromhex(inputs[-1])]
    lengths = re.findall(r" ([0-9a-f]{16})  ", example.text)
    assert [bytes.fromhex(length) for length in lengths] == [len(content).to_bytes(8, "big") for content in contents]
    hashed = hashlib.sha256(b"".join(len(content).to_bytes(8, "big") + content for content in contents)).hexdigest()
    recording = json.loads((ROOT / "fixtures/requests/v1/client.json").read_text(encoding="utf-8"))
    assert result.rsplit(" ", 1)[-1] == hashed == recording["binding"]
