"""Too much access is said on the policy, and makes no policy unready."""

from __future__ import annotations

from signer.access.waking import GrantCaches
from signer.controller.status.over_limit import access_over_limit_conditions, over_limit_conditions
from signer.model.floors import NO_FLOORS
from signer.model.seal import ControllerKeys
from signer.store.caches import Caches
from tests.unit.signer.store.over_limit import exceed, relist
from tests.unit.signer.store.test_caches import VERSION


def test_access_over_its_limit_stops_no_node() -> None:
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS)
    caches.authentic.use_keys(ControllerKeys(bytes(32)))
    grants = GrantCaches.register(caches)
    exceed(grants.grants, "team-a")
    [condition] = access_over_limit_conditions(caches, "team-a")
    assert (condition.type, condition.status, condition.reason) == ("AccessWithinLimits", "False", "NamespaceOverLimit")
    assert "no access grant is believed there that was not before: delete accessgrants" in condition.message
    assert not condition.type.counts_toward_ready(None)
    assert over_limit_conditions(caches, "team-a") == ()
    caches.require_current("team-a")
    assert access_over_limit_conditions(caches, "team-b") == ()
    relist(grants.grants)
    assert access_over_limit_conditions(caches, "team-a") == ()
