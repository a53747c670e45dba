"""``docs/troubleshooting.md`` has every reason, and says of each what the code does."""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple, get_args

import pytest

from attestors.contract import ExplainsReasons, ReasonExplanation
from attestors.registry import Registry
from attestors.wire.names import EVIDENCE_EXPIRED, NODE_STARTS_AGAIN
from authenticator.model.answer import Answer
from authenticator.model.attempt import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from authenticator.model.failures import ExitCode
from signer.controller.requests.deferral_backoff import MAXIMUM
from signer.controller.requests.reporter import REPORT_AGAIN_SECONDS
from signer.controller.telemetry.recorder import BURST, NORMAL_BURST, NORMAL_PER_SECOND, REFILL_SECONDS, REPEAT_SECONDS
from signer.model.documentation import ATTESTORS_SECTION, DOCUMENTATION_URL, DOCUMENTED_ATTESTORS, reason_url
from signer.model.reasons import EXPLANATIONS, Reason
from tests.documents import explain_example
from tests.documents.attestor_reasons import CONVERTED, DENIED, FOLDERS, WAITS, reasons_of
from tests.documents.markdown import ROOT, anchors
from tests.documents.reason_table import _RETRIES, PLACES, Result, retry

PAGE: Final = ROOT / "docs/troubleshooting.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")


class Entry(NamedTuple):
    """A reason's heading, and what is below it."""

    reason: str
    result: str
    by: tuple[str, ...]
    parts: tuple[str, ...]
    """The names of the list's items."""


def entries(section: str) -> list[Entry]:
    """Every reason with a heading in that section."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0].partition("<!-- generated: ")[2]
    found = []
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        reason, _, below = part.partition("\n")
        said = re.search(
            r"^Result: ([a-z, ]+?)(?:, by ([`a-z, ]+))?\.(?: Look first at [a-z ]+\.)?$", below, re.MULTILINE
        )
        assert said is not None, part
        by = tuple((said[2] or "").replace("`", "").split(", ")) if said[2] else ()
        items = re.findall(r"^- \*\*([A-Za-z ]+):\*\* [A-Z`\[].*\.$", below, re.MULTILINE)
        found.append(Entry(reason, said[1], by, tuple(items)))
    return found


CORE: Final = entries("Reasons of requests")
ATTESTORS: Final = entries("Reasons of attestors")
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
def test_every_reason_of_an_attestor_has_a_heading(attestor: str) -> None:
    made = {
        reason: result for reason, result in reasons_of(attestor).items() if reason not in CONVERTED.get(attestor, ())
    }
    assert len(made) > 10
    shown = {one.reason: {one.result} for one in ATTESTORS if attestor in one.by}
    shown |= {one.reason: {one.result} for one in CORE if one.reason in made}
    assert shown == made


def test_every_reason_of_the_core_has_a_heading() -> None:
    assert [(one.reason, one.result) for one in CORE] == [(reason, PLACES[reason].result) for reason in Reason]


def test_an_entry_is_whole() -> None:
    assert len(ATTESTORS) > 50
    for one in (*CORE, *ATTESTORS):
        assert one.parts == ("Meaning", "What to do", "Retry"), one
    for one in ATTESTORS:
        assert set(one.by) <= set(FOLDERS), one
        assert one.by, one
        assert one.result in (DENIED, WAITS), one


def test_no_reason_has_two_headings() -> None:
    names = [one.reason for one in (*CORE, *ATTESTORS)]
    assert sorted(set(names)) == sorted(names)


def test_the_link_of_an_event_leads_to_its_reason() -> None:
    """To the page as ``make site`` names it, and to the anchor of the reason's own heading."""
    assert set(FOLDERS) == DOCUMENTED_ATTESTORS
    made = {name: set(reasons_of(name)) - CONVERTED.get(name, set()) for name in FOLDERS}
    there = anchors(PAGE)
    for provider, reasons in {**made, "": set(map(str, Reason))}.items():
        for reason in reasons:
            page, _, anchor = reason_url(reason, provider).partition("#")
            assert page == f"{DOCUMENTATION_URL}/{PAGE.stem}/"
            assert anchor == reason.lower()
            assert anchor in there
    assert ATTESTORS_SECTION in there
    assert reason_url("SomethingElse", "keyed-mac").endswith(f"#{ATTESTORS_SECTION}")
    assert f"begin with `{DOCUMENTATION_URL}`" in TEXT


def test_explain_links_to_the_reason() -> None:
    assert f"See      {reason_url(Reason.NODE_NAME_MISMATCH, '')}\n" in explain_example.explained()


def test_whether_somebody_tries_again_is_what_the_nodes_program_does() -> None:
    """Each answer that it tells apart has a text, and those of which it makes something else than a refusal are few."""
    assert set(_RETRIES) == set(get_args(Answer))
    differently = {
        reason
        for reason, place in PLACES.items()
        if place.result is Result.DENIED and "pause" not in retry(reason, DENIED)
    }
    assert differently == set()
    assert retry(EVIDENCE_EXPIRED, DENIED) == "The node asks again at once, with a new key and new evidence."
    assert retry(Reason.CHALLENGE_ISSUED, Result.CHALLENGED) == "The node answers at once."
    assert "in a version that both sides read" in retry(Reason.UNSUPPORTED_VERSION, DENIED)
    assert retry(Reason.MACHINE_NOT_FOUND, WAITS) == "The controller decides the same request [again](#retries)."
    assert {one.reason for one in ATTESTORS if "at once" in retry(one.reason, one.result)} == NODE_STARTS_AGAIN


def test_figures_of_retries() -> None:
    flat = " ".join(TEXT.split())
    assert f"The pause is {FIRST_PAUSE_SECONDS.get(ExitCode.DENIED, 60) // 60} minute" in flat
    assert f"doubles up to {LONGEST_PAUSE_SECONDS // 3600} hour" in flat
    assert f"grows up to {MAXIMUM.seconds // 60} minutes" in flat
    assert f"{BURST} at once, then one in {'five' if REFILL_SECONDS == 300 else ''} minutes" in flat
    assert f"{NORMAL_BURST} at once, then {'five' if NORMAL_PER_SECOND == 5 else ''} a second" in flat
    assert REPEAT_SECONDS == 300  # "at most once in five minutes"
    assert REPORT_AGAIN_SECONDS == 45 * 60  # "every 45 minutes"


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
