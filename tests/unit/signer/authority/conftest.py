from __future__ import annotations

import pytest

from tests.unit.signer.authority.support import announced_release


@pytest.fixture(params=["today", "announced"])
def release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`cryptography` as it is (its warnings are errors in these tests), and the stricter release that it announces."""
    if request.param == "announced":
        announced_release(monkeypatch)
    return str(request.param)
