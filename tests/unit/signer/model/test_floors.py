from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import MachineRole
from signer.model.attestor_roles import AnyAttestor, AnyOf, RequiredAttestors
from signer.model.durations import duration_text
from signer.model.floors import NO_FLOOR, Floor, Floors, MaximumDurations, NamespaceFloor, below_floors
from signer.model.policy import (
    ApprovalByOthers,
    Mode,
    NodeNameReuse,
    Policy,
    UntraceableTokens,
    parse_policy,
)
from signer.model.ssh_access import SSHSettings

WEAK: dict[str, Any] = {
    "mode": "Observe",
    "authorizedAttestors": [{"name": "tpm"}, {"name": "insecure"}],
    "certificates": {
        "clientDuration": "8784h",
        "servingDuration": "8784h",
        "insecureDuration": "8784h",
        "deletingDuration": "8784h",
    },
    "nodeNameReuse": "Immediate",
    "approvalByOthers": "Honor",
    "bootstrapTokens": {"untraceable": "Allow"},
    "ssh": {"hostCertificateDuration": "8784h"},
}
DAY = timedelta(days=1)
STRICT = Floor(
    Mode.ENFORCE,
    MaximumDurations(DAY, 2 * DAY, 3 * DAY, timedelta(), 4 * DAY),
    NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE,
    ApprovalByOthers.REFUSE,
    UntraceableTokens.REFUSE,
)


def parsed(spec: dict[str, Any], floor: Floor = NO_FLOOR) -> Policy:
    return parse_policy({"metadata": {"namespace": "team-a", "name": "prod"}, "spec": spec}, floor)


def required(control_plane: str = "", workers: str = "") -> Floor:
    accepted = [AnyOf(frozenset(names.split())) if names else AnyAttestor() for names in (control_plane, workers)]
    return Floor(required=RequiredAttestors(*accepted))


@pytest.mark.parametrize(
    ("floor", "field", "attribute", "in_force", "shown"),
    [
        (Floor(mode=STRICT.mode), "spec.mode", "mode", Mode.ENFORCE, "Enforce"),
        (
            Floor(durations=MaximumDurations(client=DAY)),
            "spec.certificates.clientDuration",
            "client_duration",
            DAY,
            "24h",
        ),
        (
            Floor(durations=MaximumDurations(serving=DAY)),
            "spec.certificates.servingDuration",
            "serving_duration",
            DAY,
            "24h",
        ),
        (
            Floor(durations=MaximumDurations(insecure=DAY)),
            "spec.certificates.insecureDuration",
            "insecure_duration",
            DAY,
            "24h",
        ),
        (
            Floor(durations=MaximumDurations(deleting=timedelta())),
            "spec.certificates.deletingDuration",
            "deleting_duration",
            timedelta(),
            "0s",
        ),
        (
            Floor(node_name_reuse=NodeNameReuse.AFTER_EXPIRY),
            "spec.nodeNameReuse",
            "node_name_reuse",
            NodeNameReuse.AFTER_EXPIRY,
            "AfterExpiry",
        ),
        (
            Floor(node_name_reuse=NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE),
            "spec.nodeNameReuse",
            "node_name_reuse",
            NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE,
            "WhenFormerInstanceIsGone",
        ),
        (
            Floor(approval_by_others=ApprovalByOthers.REFUSE),
            "spec.approvalByOthers",
            "approval_by_others",
            ApprovalByOthers.REFUSE,
            "Refuse",
        ),
        (
            Floor(untraceable_tokens=UntraceableTokens.REFUSE),
            "spec.bootstrapTokens.untraceable",
            "untraceable_tokens",
            UntraceableTokens.REFUSE,
            "Refuse",
        ),
    ],
)
def test_a_policy_below_a_floor_is_raised_to_it(
    floor: Floor, field: str, attribute: str, in_force: object, shown: str
) -> None:
    policy = parsed(WEAK, floor)
    assert getattr(policy, attribute) == in_force
    (shortfall,) = policy.shortfalls
    assert (shortfall.field, shortfall.in_force) == (field, shown)
    assert shortfall.stated not in ("", shown)
    untouched = [name for name in Policy.__dataclass_fields__ if name not in (attribute, "shortfalls")]
    before = parsed(WEAK)
    assert [getattr(policy, name) for name in untouched] == [getattr(before, name) for name in untouched]


def test_ssh_host_certificates() -> None:
    policy = parsed(WEAK, Floor(durations=MaximumDurations(ssh_host=DAY)))
    assert isinstance(policy.ssh, SSHSettings)
    assert policy.ssh.host_certificate_duration == DAY
    assert [one.field for one in policy.shortfalls] == ["spec.ssh.hostCertificateDuration"]
    assert parsed({}, Floor(durations=MaximumDurations(ssh_host=DAY))).shortfalls == ()


def test_a_policy_above_the_floor_stays_as_it_is() -> None:
    """A floor is never a reason for a weaker value."""
    strict = parsed(
        {
            "mode": "Enforce",
            "certificates": {"clientDuration": "1h", "servingDuration": "1h", "deletingDuration": "0s"},
            "nodeNameReuse": "AfterExpiry",
            "bootstrapTokens": {"untraceable": "Refuse"},
        },
        STRICT,
    )
    assert strict.shortfalls == ()
    assert (strict.client_duration, strict.deleting_duration) == (timedelta(hours=1), timedelta())
    assert (strict.mode, strict.node_name_reuse) == (Mode.ENFORCE, NodeNameReuse.AFTER_EXPIRY)
    assert parsed(WEAK).shortfalls == ()


def test_a_lifetime_of_an_attestor_that_is_not_authorized_is_no_shortfall() -> None:
    policy = parsed({"authorizedAttestors": [{"name": "tpm"}]}, Floor(durations=MaximumDurations(insecure=DAY)))
    assert policy.insecure_duration == DAY
    assert policy.shortfalls == ()


def test_what_a_shortfall_says() -> None:
    policy = parsed(WEAK, Floor(mode=Mode.ENFORCE, durations=MaximumDurations(client=timedelta(hours=1, minutes=30))))
    assert below_floors(policy.shortfalls) == (
        "below the operator's floors: spec.mode is Observe, in force is Enforce; "
        "spec.certificates.clientDuration is 8784h, in force is 1h30m"
    )


# Several floors


def test_of_several_floors_the_strictest_of_each_field_applies() -> None:
    everywhere = Floor(Mode.ENFORCE, MaximumDurations(client=5 * DAY, serving=DAY), NodeNameReuse.AFTER_EXPIRY)
    floors = Floors(
        (
            NamespaceFloor(frozenset(), True, everywhere),
            NamespaceFloor(frozenset({"team-a"}), False, STRICT),
            NamespaceFloor(frozenset({"team-b"}), False, Floor(approval_by_others=ApprovalByOthers.REFUSE)),
        )
    )
    assert floors.of("team-a") == Floor(
        Mode.ENFORCE,
        MaximumDurations(DAY, DAY, 3 * DAY, timedelta(), 4 * DAY),
        NodeNameReuse.AFTER_EXPIRY,
        ApprovalByOthers.REFUSE,
        UntraceableTokens.REFUSE,
    )
    assert floors.of("team-b") == everywhere.stricter(Floor(approval_by_others=ApprovalByOthers.REFUSE))
    assert floors.of("team-c") == everywhere
    assert Floors().of("team-a") == NO_FLOOR


def test_order_does_not_matter() -> None:
    other = Floor(Mode.OBSERVE, MaximumDurations(serving=DAY), NodeNameReuse.AFTER_EXPIRY)
    assert STRICT.stricter(other) == other.stricter(STRICT)


# Attestors by role


def test_several_floors_accept_what_each_accepts() -> None:
    both = required("tpm aws", "tpm gcp").stricter(required("aws gcp"))
    assert str(both.required.control_plane) == "aws"
    assert str(both.required.workers) == "gcp or tpm"
    assert str(RequiredAttestors().workers) == "any attestor"


@pytest.mark.parametrize(
    ("role", "accepted"),
    [(MachineRole.CONTROL_PLANE, "tpm"), (MachineRole.WORKER, "gcp"), (MachineRole.POOL_MEMBER, "gcp")],
)
def test_attestors_by_role(role: MachineRole, accepted: str) -> None:
    of_role = required("tpm", "gcp").required.of(role)
    assert [name for name in ("tpm", "gcp", "aws", "") if of_role.accepts(name)] == [accepted]


def test_a_policy_without_an_attestor_that_a_role_requires() -> None:
    policy = parsed({"authorizedAttestors": [{"name": "gcp"}]}, required("tpm aws", "gcp"))
    assert policy.roles_without_attestor == ("aws or tpm for control planes",)
    assert [str(one) for one in policy.shortfalls] == [
        "spec.authorizedAttestors is gcp, in force is aws or tpm for control planes"
    ]
    assert parsed({}, required("tpm", "tpm")).roles_without_attestor == ("tpm for control planes", "tpm for workers")


def test_an_attestor_that_no_role_accepts() -> None:
    policy = parsed({"authorizedAttestors": [{"name": "tpm"}, {"name": "gcp"}]}, required("tpm", "tpm"))
    assert policy.roles_without_attestor == ()
    assert [str(one) for one in policy.shortfalls] == [
        "spec.authorizedAttestors is gcp, in force is tpm for control planes, tpm for workers"
    ]
    assert parsed({"authorizedAttestors": [{"name": "tpm"}, {"name": "gcp"}]}, required("tpm")).shortfalls == ()


@pytest.mark.parametrize(("text", "seconds"), [("0s", 0), ("24h", 86400), ("1h30m", 5400), ("1m1s", 61)])
def test_text_of_a_duration(text: str, seconds: int) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text
