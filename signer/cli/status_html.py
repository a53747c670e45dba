"""The status as one self-contained page, for a wall or a mail: no script, and nothing that is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from signer.cli.status_machines import NARROW_COLUMNS, in_order
from signer.cli.status_output import HEADINGS, needs_attention, open_door, row_of
from signer.explain.fleet import OBSERVE_PROTECTS_NOTHING, ClusterStatus
from signer.explain.machines import MachineState

GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"
_STATES: Final = {
    MachineState.ATTESTED: GOOD,
    MachineState.OVERDUE: BAD,
    MachineState.UNATTESTED: BAD,
    MachineState.STARTING: "",
    MachineState.UNKNOWN: WARNING,
}
# Should any text ever get by the escaping, this page still runs no script and loads nothing.
_SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --text: #16181d; --dim: #5b6170; --line: #d6d9e0;
  --good: #1a7f37; --warning: #9a6700; --bad: #b3261e; --on-bad: #fff; }
@media (prefers-color-scheme: dark) { :root { --page: #0e1116; --card: #181c23; --text: #eceff4; --dim: #9aa3b2;
  --line: #323945; --good: #57c26d; --warning: #e3b341; --bad: #ff7b72; --on-bad: #200503; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem; background: var(--page); color: var(--text);
  font: clamp(16px, 1.1vw, 26px)/1.4 system-ui, sans-serif; }
p { margin: .3rem 0; }
.open { background: var(--bad); color: var(--on-bad); font-size: 1.5em; font-weight: 700; padding: .8rem 1rem;
  border-radius: .5rem; margin: 0 0 1rem; }
h1 { font-size: 2em; margin: 0; }
h2 { font-size: 1.3em; margin: 0 0 .5rem; overflow-wrap: anywhere; }
.time { color: var(--dim); margin: 0 0 1rem; }
.good { color: var(--good); } .warning { color: var(--warning); } .bad { color: var(--bad); }
.good, .warning, .bad { font-weight: 600; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem;
  margin: 0 0 1rem; overflow-x: auto; }
dl { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; margin: 0; } dl div { max-width: 100%; }
dt { color: var(--dim); font-size: .8em; } dd { margin: 0; overflow-wrap: anywhere; }
ul { margin: .8rem 0 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin-top: 1rem; }
th { text-align: left; color: var(--dim); font-size: .8em; font-weight: 400; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: break-word; }
"""


@dataclass(frozen=True, slots=True)
class _Markup:
    """HTML. Text becomes HTML only in :func:`_element`, which escapes it."""

    html: str


def as_html(found: Sequence[ClusterStatus], now: datetime, *, by_machine: bool = False) -> str:
    """The page, with the Machines if ``by_machine``. The open door is its first line."""
    style, headline = _headline(found, now, by_machine=by_machine)
    door = [_element("p", open_door(found), style="open")] if open_door(found) else []
    clusters = sorted(found, key=lambda one: (not one.needs(now), not one.is_open))
    body = (
        *door,
        _element("h1", headline, style=style),
        _element("p", f"As of {now:%Y-%m-%d %H:%M:%S} UTC", style="time"),
        *(_cluster(one, now, by_machine=by_machine) for one in clusters),
    )
    title = _element("title", f"Node attestation: {headline}")
    page = _element("body", *body)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_SECURITY_POLICY)}">\n'
        f"{title.html}\n<style>{_STYLE}</style>\n</head>\n{page.html}\n</html>\n"
    )


def _headline(found: Sequence[ClusterStatus], now: datetime, *, by_machine: bool) -> tuple[str, str]:
    if needs_attention(found, now, by_machine=by_machine):
        if by_machine:
            return BAD, f"{found[0].cluster} needs attention"
        return BAD, f"{sum(bool(one.needs(now)) for one in found)} of {len(found)} Clusters need attention"
    if open_door(found):
        return WARNING, "Nothing else needs attention"
    return GOOD, "Nothing needs attention" if found else "No Cluster has a NodeAttestationPolicy"


def _element(name: str, *children: _Markup | str, style: str = "") -> _Markup:
    """An element with its children; text is escaped."""
    inner = "".join(one.html if isinstance(one, _Markup) else escape(one) for one in children)
    attributes = f' class="{escape(style)}"' if style else ""
    return _Markup(f"<{name}{attributes}>{inner}</{name}>\n")


def _cluster(one: ClusterStatus, now: datetime, *, by_machine: bool) -> _Markup:
    name, *texts = (cell.plain for cell in row_of(one, now))
    ready = BAD if one.needs(now) else WARNING if one.is_open else GOOD
    styles = {"Mode": WARNING if one.is_open else GOOD, "Ready": ready}
    facts = []
    for heading, text in zip(HEADINGS[1:], texts, strict=True):
        facts.append(
            _element("div", _element("dt", _line(heading)), _element("dd", _line(text), style=styles.get(heading, "")))
        )
    needs = [_element("li", need, style=BAD) for need in one.needs(now)]
    notes = [_element("li", note) for note in one.notes() if note != OBSERVE_PROTECTS_NOTHING]
    lines = [_element("ul", *needs, *notes)] if needs or notes else []
    machines = [_machines(one)] if by_machine else []
    return _element("section", _element("h2", name), _element("dl", *facts), *lines, *machines)


def _machines(cluster: ClusterStatus) -> _Markup:
    head = _element("tr", *(_element("th", column.heading) for column in NARROW_COLUMNS))
    rows = []
    for one in in_order(cluster.machines):
        # Nothing is green while any bootstrap token gets a certificate for any node name.
        style = "" if one.state is MachineState.ATTESTED and cluster.is_open else _STATES[one.state]
        cells = (
            _element("td", column.text(cluster, one), style=style if column.heading == "State" else "")
            for column in NARROW_COLUMNS
        )
        rows.append(_element("tr", *cells))
    return _element("table", _element("thead", head), _element("tbody", *rows))


def _line(text: str) -> str:
    """Text of the table without its line breaks."""
    return " ".join(text.split())
