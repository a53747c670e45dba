"""The process of a session is the container's own, with another command line."""

from __future__ import annotations

from typing import Any

import pytest

from node_access.containers.documents import Unreadable
from node_access.containers.protocol import NoTerminal, Terminal
from node_access.containers.running import process_document, user_of
from tests.unit.node_access.containers.made import PROCESS

CONFINEMENT = ("user", "capabilities", "noNewPrivileges", "rlimits", "cwd")


def test_the_confinement_is_the_containers() -> None:
    document = process_document({"process": PROCESS}, ["/sh"], NoTerminal())
    assert {key: document[key] for key in CONFINEMENT} == {key: PROCESS[key] for key in CONFINEMENT}
    assert (document["args"], document["terminal"]) == (["/sh"], False)
    assert document["env"] == ["APPLICATION=web", "PATH=/own:/proc/self/fd/3"]
    assert user_of({"process": PROCESS}) == (65532, 65532)


def test_a_terminal_has_the_clients_name_and_size() -> None:
    own = {**PROCESS, "terminal": False, "consoleSize": {"height": 1, "width": 1}}
    document = process_document({"process": own}, ["/sh"], Terminal("xterm", 24, 80))
    assert (document["terminal"], document["consoleSize"]) == (True, {"height": 24, "width": 80})
    assert document["env"][-1] == "TERM=xterm"
    assert "consoleSize" not in process_document({"process": own}, ["/sh"], NoTerminal())


def test_without_a_path_the_usual_one_comes_first() -> None:
    document = process_document({"process": {**PROCESS, "env": []}}, ["/sh"], NoTerminal())
    [path] = document["env"]
    assert path.startswith("PATH=/usr/local/sbin:")
    assert path.endswith(":/proc/self/fd/3")


@pytest.mark.parametrize(
    "specification",
    [{}, {"process": {}}, {"process": []}, {"process": {**PROCESS, "env": "x"}}, {"process": {**PROCESS, "env": [1]}}],
    ids=str,
)
def test_a_container_without_a_process_is_refused(specification: dict[str, Any]) -> None:
    """The runtime would run as root."""
    with pytest.raises(Unreadable):
        process_document(specification, ["/sh"], NoTerminal())


def test_a_user_that_is_no_number_is_refused() -> None:
    with pytest.raises(Unreadable, match="user"):
        user_of({"process": {"user": {"uid": "0:0"}}})
