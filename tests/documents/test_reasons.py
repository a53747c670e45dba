"""``docs/troubleshooting.md`` has every reason there is, and says of each what the code does."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from attestors.contract import ExplainsReasons, ReasonExplanation
from attestors.registry import Registry
from signer.model.reasons import EXPLANATIONS, Reason
from tests.documents.attestor_reasons import CONVERTED, DENIED, FOLDERS, WAITS, reasons_of
from tests.documents.markdown import ROOT, anchors
from tests.documents.reason_table import PLACES, Result

TEXT: Final = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.partition("## Reasons of attestors")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]
RESULTS: Final = {Result.DENIED_OR_WAITS: {Result.DENIED, Result.WAITS}}
RESULT_OF_CALL: Final = {"Refused": Result.DENIED, "Deferred": Result.WAITS, "Malformed": Result.DENIED}


def results_in_the_code() -> dict[Reason, set[Result]]:
    """What the calls that name a reason make of a request."""
    found: dict[Reason, set[Result]] = {}
    for file in sorted((ROOT / "signer").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            result = RESULT_OF_CALL.get(node.func.id)
            for argument in node.args[:2]:
                if result is not None and _is_reason(argument):
                    assert isinstance(argument, ast.Attribute)
                    found.setdefault(Reason[argument.attr], set()).add(result)
    return found


def _is_reason(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"


def test_every_reason_has_its_place() -> None:
    assert list(PLACES) == list(Reason)


def test_what_becomes_of_a_request_is_what_the_code_does() -> None:
    found = results_in_the_code()
    assert len(found) > 35
    said = {reason: RESULTS.get(place.result, {place.result}) for reason, place in PLACES.items()}
    assert {reason: results for reason, results in found.items() if results != said[reason]} == {}


def explanations() -> dict[str, ReasonExplanation]:
    """Those of the core and of the attestors."""
    found: dict[str, ReasonExplanation] = {str(reason): one for reason, one in EXPLANATIONS.items()}
    for name in FOLDERS:
        attestor = Registry().load(name)
        assert isinstance(attestor, ExplainsReasons)
        found |= attestor.explanations()
    return found


def test_what_the_causes_link_to_is_on_a_page() -> None:
    every = "".join(explanation.cause + explanation.remedy for explanation in explanations().values())
    linked = re.findall(r"\]\(([a-z-]+\.md)#([a-z-]+)\)", every)
    assert len(linked) > 8
    assert len(linked) == every.count("](")
    assert {(page, anchor) for page, anchor in linked if anchor not in anchors(ROOT / "docs" / page)} == set()


@pytest.mark.parametrize("attestor", FOLDERS)
def test_an_attestor_explains_each_of_its_reasons_and_no_other(attestor: str) -> None:
    made = set(reasons_of(attestor)) - CONVERTED.get(attestor, set())
    loaded = Registry().load(attestor)
    assert isinstance(loaded, ExplainsReasons)
    assert set(loaded.explanations()) == made - set(Reason)


@pytest.mark.parametrize("attestor", FOLDERS)
def test_every_reason_of_an_attestor_is_in_the_table(attestor: str) -> None:
    made = {
        reason: result for reason, result in reasons_of(attestor).items() if reason not in CONVERTED.get(attestor, ())
    }
    assert len(made) > 10
    shown = {row[0].strip("`"): {row[2]} for row in ROWS if attestor in row[1].split(", ")}
    assert shown == made


def test_a_row_is_whole() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 5, row
        assert all(row), row
        assert set(row[1].split(", ")) <= set(FOLDERS), row
        assert row[2] in (DENIED, WAITS), row


def test_no_reason_has_two_rows() -> None:
    names = [row[0] for row in ROWS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("attestor", "setting"),
    [("aws", "allowedRoles"), ("aws", "allowedRegions"), ("gcp", "projects"), ("gcp", "serviceAccounts")],
)
def test_a_cure_names_both_places_of_a_list_that_a_policy_narrows(attestor: str, setting: str) -> None:
    """Nothing comes of adding to the operator's where the policy leaves it out, and a policy cannot name more."""
    loaded = Registry().load(attestor)
    assert isinstance(loaded, ExplainsReasons)
    told = {
        reason: one.remedy
        for reason, one in loaded.explanations().items()
        if reason.endswith("NotAllowed") and f"`{setting}`" in one.remedy
    }
    assert told
    assert [reason for reason, remedy in told.items() if "the operator's, then the policy's" not in remedy] == []
