"""``docs/access.md``, the gateway's way into containers: reasons, names and figures are those of the code."""

from __future__ import annotations

import re
from typing import Final

from signer.access.containers import conditions, connections, credential, objects, reconciler
from signer.configuration import DEFAULT_GATEWAY_NAMESPACE
from signer.controller.telemetry.metrics_collector import CONTAINER_ACCESS
from signer.model.gateway_connection import GATEWAY_CONNECTION_TYPE
from signer.model.tools_image import ToolsImage
from tests.documents.markdown import ROOT

PAGE: Final = (ROOT / "docs/access.md").read_text(encoding="utf-8")
TEXT: Final = PAGE.split("## The gateway's way into containers")[1].split("\n## ")[0]


def test_each_reason_is_named_and_no_other() -> None:
    table = TEXT.split(f"| `{conditions.CONTAINER_ACCESS_READY}` |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == {
        conditions.CONNECTED,
        conditions.AUTHORITIES_NOT_AVAILABLE,
        conditions.FOREIGN_OBJECT,
        conditions.FORBIDDEN,
        conditions.GATEWAY_NAMESPACE_MISSING,
        conditions.NOT_REMOVED,
        conditions.FAILED,
    }
    assert conditions.CONTAINER_ACCESS_READY in (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")


def test_names_and_figures() -> None:
    for name in (
        objects.NAMESPACE,
        objects.GATEWAY,
        objects.PEOPLE,
        objects.PEOPLE_GROUP,
        objects.USER_PREFIX,
        DEFAULT_GATEWAY_NAMESPACE,
        GATEWAY_CONNECTION_TYPE,
        f"node_attestation_{CONTAINER_ACCESS.name}",
    ):
        assert name in TEXT, name
    assert credential.TOKEN_LIFETIME.total_seconds() == 24 * 3600
    assert "24 hours" in TEXT
    assert connections.SWEEP_SECONDS == reconciler.VERIFIED_SECONDS == 300
    assert "five minutes" in TEXT


def test_every_right_of_the_people_is_named() -> None:
    people = objects.people_role(ToolsImage("tools:1"))
    for rule in people.body["rules"]:
        for resource in rule["resources"]:
            assert resource in TEXT, resource
