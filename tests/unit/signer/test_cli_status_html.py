"""``status --output html``: one page that loads nothing, runs nothing, and shows every text as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from signer.cli.status_html import as_html
from signer.explain.fleet import OBSERVE_PROTECTS_NOTHING, AuthorityLife, ClusterStatus, Readiness
from signer.model.cluster import ClusterKey
from tests.documents.explain_example import MOMENT, clusters, one_cluster
from tests.support.browser import browser_in

ATTACK = "</style></td><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&lt;b&gt;"
PNG = b"\x89PNG\r\n\x1a\n"
VOID = {"meta"}


class Page(HTMLParser):
    """The elements of a page, and its texts in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.styles: dict[str, list[str]] = {}
        self._open: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attributes]
        if tag not in VOID:
            self._open.append((tag, dict(attributes).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self._open and self._open[-1][0] != "style":
            self.texts.append(data.strip())
            self.styles.setdefault(self._open[-1][1], []).append(data.strip())


def healthy(mode: str = "Enforce") -> ClusterStatus:
    found = clusters()[0]
    assert found.mode == "Enforce"
    return replace(found, mode=mode, machines=one_cluster().machines[:1])


def hostile() -> ClusterStatus:
    """Every text of a tenant or workload cluster is an attack."""
    example = one_cluster()
    machine = example.machines[0]
    return replace(
        example,
        cluster=ClusterKey("default", ATTACK),
        attestors=ATTACK,
        ready=Readiness("False", ATTACK, ATTACK),
        below_floors=ATTACK,
        machines=(replace(machine, reason=ATTACK, machine=replace(machine.machine, name=ATTACK)),),
    )


@pytest.mark.parametrize("by_machine", [False, True])
def test_every_text_is_shown_as_text(by_machine: bool) -> None:
    page = Page(as_html([hostile()], MOMENT, by_machine=by_machine))
    assert {"script", "img", "b", "link", "iframe", "a"} & set(page.elements) == set()
    assert page.elements.count("style") == 1
    shown = " ".join(page.texts)
    assert shown.count(ATTACK) >= (7 if by_machine else 5), "as it stands, with its own escapes"


def test_it_loads_nothing_and_runs_nothing() -> None:
    html = as_html(clusters(), MOMENT, by_machine=True)
    page = Page(html)
    assert {name for name, _ in page.attributes} == {"lang", "charset", "name", "content", "http-equiv", "class"}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert [word for word in ("url(", "@import", "http:", "https:", "//") if word in html] == []


def test_the_open_door_is_the_first_line_and_nothing_of_it_is_good() -> None:
    page = Page(as_html([healthy("Observe")], MOMENT, by_machine=True))
    body = page.texts[page.texts.index("Node attestation: Nothing else needs attention") + 1 :]
    assert body[0] == f"Open door: default/production: {OBSERVE_PROTECTS_NOTHING}"
    assert page.styles["open"] == [body[0]]
    assert page.styles["warning"] == ["Nothing else needs attention", "Observe", "True"]
    assert "good" not in page.styles


def test_a_healthy_fleet_is_good() -> None:
    page = Page(as_html([healthy()], MOMENT, by_machine=True))
    assert page.styles["good"] == ["Nothing needs attention", "Enforce", "True", "Attested"]
    assert [style for style in ("open", "warning", "bad") if style in page.styles] == []
    assert Page(as_html([], MOMENT)).styles["good"] == ["No Cluster has a NodeAttestationPolicy"]


def test_what_needs_attention_comes_first() -> None:
    page = Page(as_html(clusters(), MOMENT))
    assert page.styles["bad"][0] == "2 of 3 Clusters need attention"
    names = [text for text in page.texts if text in ("default/production", "default/staging", "team-b/edge")]
    assert names == ["default/staging", "team-b/edge", "default/production"]
    page = Page(as_html([one_cluster()], MOMENT, by_machine=True))
    assert page.styles["bad"][:2] == ["default/staging needs attention", "True"]
    assert page.styles["bad"][-2:] == ["Overdue", "Unattested"]
    later = replace(healthy(), authority=AuthorityLife(MOMENT + timedelta(days=1)))
    ends = (
        "its CA expires at 2026-11-22 13:30 UTC: before you rotate it, run node-attestation-controller rotate "
        "default/production preflight"
    )
    assert ends in Page(as_html([later], MOMENT)).styles["bad"]


@pytest.mark.slow
def test_in_a_real_browser(tmp_path: Path) -> None:
    """The pictures stay in the test's folder: a wall and a telephone, light and dark."""
    browser = browser_in(tmp_path)
    page = tmp_path / "status.html"
    page.write_text(as_html([one_cluster()], MOMENT, by_machine=True), encoding="utf-8")
    pictures = [
        browser.screenshot(page, "wall-light.png"),
        browser.screenshot(page, "wall-dark.png", scheme="dark"),
        browser.screenshot(page, "telephone.png", width=500, height=900),
    ]
    contents = [picture.read_bytes() for picture in pictures]
    assert all(content.startswith(PNG) for content in contents)
    sizes = [tuple(int.from_bytes(content[at : at + 4], "big") for at in (16, 20)) for content in contents]
    assert sizes == [(1920, 1080), (1920, 1080), (500, 900)]
    assert contents[0] != contents[1], "there are two color schemes"
    attack = tmp_path / "attack.html"
    attack.write_text(as_html([hostile()], MOMENT, by_machine=True), encoding="utf-8")
    document = Page(browser.document(attack))
    assert document.texts[0].startswith("Node attestation: ")
    assert {"script", "img"} & set(document.elements) == set()
    assert ATTACK in " ".join(document.texts)
    browser.screenshot(attack, "attack.png")
