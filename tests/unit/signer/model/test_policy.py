from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.authority_suffixes import BY_CONTROL_PLANE, AuthoritySuffixes
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOOR
from signer.model.policy import (
    MAXIMUM_SETTINGS_BYTES,
    ApprovalByOthers,
    AuthorizedAttestor,
    BuiltinServingRequests,
    InvalidPolicy,
    MachinePoolTokens,
    Mode,
    NodeClientAuthority,
    NodeNameReuse,
    NodeNameRules,
    NodeNameSource,
    Policy,
    UntraceableTokens,
    parse_policy,
    stated_mode,
)

METADATA = {"namespace": "team-a", "name": "prod", "uid": "p-1", "generation": 3}


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_deletion_by_a_move(value: str) -> None:
    """clusterctl puts the annotation on what it is about to delete; nothing may be restored then."""
    annotations = {"clusterctl.cluster.x-k8s.io/delete-for-move": value}
    assert parse_policy({"metadata": {**METADATA, "annotations": annotations}}, NO_FLOOR).deleting_for_move
    assert not parse_policy({"metadata": {**METADATA, "annotations": {"other": value}}}, NO_FLOOR).deleting_for_move


def parse(**spec: Any) -> Policy:
    return parse_policy({"metadata": METADATA, "spec": spec}, NO_FLOOR)


def invalid(**spec: Any) -> str:
    with pytest.raises(InvalidPolicy) as caught:
        parse(**spec)
    return str(caught.value)


def test_defaults() -> None:
    expected = Policy(
        cluster=ClusterKey("team-a", "prod"),
        uid="p-1",
        generation=3,
        mode=Mode.OBSERVE,
        authorized_attestors=(),
        node_names=NodeNameRules((NodeNameSource.AUTOMATIC,), ()),
        approval_by_others=ApprovalByOthers.REFUSE,
        node_name_reuse=NodeNameReuse.AFTER_EXPIRY,
        client_duration=timedelta(days=7),
        serving_duration=timedelta(days=7),
        insecure_duration=timedelta(days=365),
    )
    assert parse() == expected
    assert parse(authorizedAttestors=None, certificates=None) == expected
    assert parse_policy({"metadata": METADATA, "spec": None}, NO_FLOOR) == expected
    assert parse_policy({"metadata": METADATA}, NO_FLOOR) == expected
    assert parse_policy({}, NO_FLOOR).cluster == ClusterKey("", "")
    assert (parse_policy({}, NO_FLOOR).uid, parse_policy({}, NO_FLOOR).generation) == ("", 0)


def test_certificate_authorities() -> None:
    assert parse().certificate_authorities == BY_CONTROL_PLANE
    assert parse(certificateAuthorities=None).certificate_authorities == BY_CONTROL_PLANE
    stated = parse(certificateAuthorities={"client": "cca", "serving": "ca"})
    assert stated.certificate_authorities == AuthoritySuffixes("cca", "ca")


@pytest.mark.parametrize("suffix", ["", "-ca", "ca-", "Ca", "c.a", "a/b", "ca\n", "a" * 64, None, 7, ["ca"]])
@pytest.mark.parametrize("purpose", ["client", "serving"])
def test_a_suffix_that_no_secret_has(purpose: str, suffix: Any) -> None:
    message = invalid(certificateAuthorities={"client": "ca", "serving": "ca", purpose: suffix})
    assert message.startswith(f"spec.certificateAuthorities.{purpose} must be ")


@pytest.mark.parametrize("stated", [[], "ca", {}, {"client": "ca"}, {"serving": "ca"}])
def test_both_purposes_are_stated(stated: Any) -> None:
    assert "spec.certificateAuthorities" in invalid(certificateAuthorities=stated)


def test_node_client_authority() -> None:
    assert parse().node_client_authority is NodeClientAuthority.SHARED
    assert parse(nodeClientAuthority="Separate").node_client_authority is NodeClientAuthority.SEPARATE
    others: tuple[Any, ...] = ("separate", True, None, {})
    for stated in others:
        assert "spec.nodeClientAuthority" in invalid(nodeClientAuthority=stated)


def test_settings_are_bounded_together() -> None:
    """They are copied at each change of a policy, and a tenant may change it all the time."""
    half = {"x": "y" * (MAXIMUM_SETTINGS_BYTES // 2 - 64)}
    two = [{"name": name, "settings": half} for name in ("tpm", "aws")]
    assert len(parse(authorizedAttestors=two).authorized_attestors) == 2
    assert "128 KiB" in invalid(authorizedAttestors=[*two, {"name": "gcp", "settings": half}])
    assert "JSON" in invalid(authorizedAttestors=[{"name": "tpm", "settings": {"x": "\ud800"}}])


def test_everything() -> None:
    policy = parse(
        mode="Enforce",
        authorizedAttestors=[{"name": "tpm", "settings": {"a": 1}}, {"name": "aws", "settings": None}, {"name": "x"}],
        nodeNames={"sources": ["InfrastructureMachineName", "Automatic"], "domains": ["corp.example", "lab"]},
        approvalByOthers="Honor",
        nodeNameReuse="Immediate",
        servingAddresses={"networks": ["10.0.1.0/24", "2001:db8::/64"]},
        certificates={"clientDuration": "24h", "servingDuration": "1h30m", "insecureDuration": "8784h"},
    )
    assert policy.mode is Mode.ENFORCE
    assert policy.authorized_attestors == (
        AuthorizedAttestor("tpm", {"a": 1}),
        AuthorizedAttestor("aws", {}),
        AuthorizedAttestor("x"),
    )
    assert policy.authorized("tpm").settings == {"a": 1}
    assert policy.authorized("aws").provider == "aws"
    with pytest.raises(KeyError, match="gcp"):
        policy.authorized("gcp")
    sources = (NodeNameSource.INFRASTRUCTURE_MACHINE_NAME, NodeNameSource.AUTOMATIC)
    assert policy.node_names == NodeNameRules(sources, ("corp.example", "lab"))
    assert str(policy.node_names) == "InfrastructureMachineName, Automatic; domains corp.example, lab"
    assert policy.serving_networks == (ip_network("10.0.1.0/24"), ip_network("2001:db8::/64"))
    assert policy.approval_by_others is ApprovalByOthers.HONOR
    assert policy.node_name_reuse is NodeNameReuse.IMMEDIATE
    assert policy.client_duration == timedelta(hours=24)
    assert policy.serving_duration == timedelta(minutes=90)
    assert policy.insecure_duration == timedelta(days=366)


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"mode": "Enforce", "certificates": {"clientDuration": "0h"}}, Mode.ENFORCE),
        ({"certificates": 1}, Mode.OBSERVE),
        (None, Mode.OBSERVE),
        ({"mode": "Yes"}, None),
        ({"mode": []}, None),
        ([], None),
    ],
    ids=str,
)
def test_the_mode_of_what_cannot_be_followed(spec: Any, mode: Mode | None) -> None:
    assert stated_mode({"metadata": METADATA, "spec": spec}) is mode


NAMES = ["Automatic", "MachineAddress", "MachineName", "InfrastructureMachineName", "ProviderID"]


@pytest.mark.parametrize("value", [None, {}, {"sources": None}, {"sources": []}, {"domains": None}, {"domains": []}])
def test_node_names_by_default(value: Any) -> None:
    assert parse(nodeNames=value).node_names == NodeNameRules()


def test_sources_of_node_names() -> None:
    assert [source.value for source in parse(nodeNames={"sources": NAMES}).node_names.sources] == NAMES
    path = "spec.nodeNames.sources"
    values: list[Any] = ["", "automatic", "Automatic ", None, 5, [], {}]
    for value in values:
        assert invalid(nodeNames={"sources": [value]}) == f"{path} must be one of {', '.join(NAMES)}"
    assert invalid(nodeNames={"sources": ["Automatic"] * 2}) == f"{path} repeats an item"
    others: list[Any] = ["Automatic", {}, 5, [*NAMES, "x"]]
    for value in others:
        assert invalid(nodeNames={"sources": value}) == f"{path} must be a list of at most 5"
    assert invalid(nodeNames=["Automatic"]) == "spec.nodeNames must be an object"


@pytest.mark.parametrize(
    "domain", ["", ".", ".corp", "corp.", "CORP", "a_b", "*.corp", "a" * 254, "0.0.1", "1", "a.0x1", None, 5, ["a"]]
)
def test_domains_that_are_none(domain: Any) -> None:
    """The host 10 in the domain 0.0.1 would look like an IP address."""
    assert "spec.nodeNames.domains must hold DNS domains" in invalid(nodeNames={"domains": [domain]})


def test_networks_that_are_none() -> None:
    path = "spec.servingAddresses"
    assert invalid(servingAddresses={"networks": ["10.0.1.1/24"]}).startswith(
        f"{path}.networks must hold networks such as"
    )
    assert invalid(servingAddresses={"networks": "x"}).startswith(f"{path}.networks must be a list of at most 16")
    assert invalid(servingAddresses=[]) == f"{path} must be an object"
    empty: list[Any] = [None, {}, {"networks": None}, {"networks": []}]
    assert all(parse(servingAddresses=value).serving_networks == () for value in empty)


def test_so_many_domains_and_no_more() -> None:
    domains = [f"d{number}.example" for number in range(17)]
    assert parse(nodeNames={"domains": domains[:16]}).node_names.domains == tuple(domains[:16])
    assert invalid(nodeNames={"domains": domains}) == "spec.nodeNames.domains must be a list of at most 16"
    assert invalid(nodeNames={"domains": ["a", "b", "a"]}) == "spec.nodeNames.domains repeats an item"


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("mode", ["Observe", "Enforce"]),
        ("builtinServingRequests", ["FollowMode", "Approve", "Ignore"]),
        ("approvalByOthers", ["Refuse", "Honor"]),
        ("nodeNameReuse", ["AfterExpiry", "Immediate", "WhenFormerInstanceIsGone"]),
    ],
)
def test_choices(field: str, choices: list[str]) -> None:
    for choice in choices:
        parse(**{field: choice})
    values: list[Any] = ["", choices[0].lower(), f"{choices[0]} ", None, 5, True, [], {}, [choices[0]]]
    for value in values:
        assert invalid(**{field: value}) == f"spec.{field} must be one of {', '.join(choices)}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tpm", "spec.authorizedAttestors must be a list"),
        ("", "spec.authorizedAttestors must be a list"),
        ({"name": "tpm"}, "spec.authorizedAttestors must be a list"),
        (0, "spec.authorizedAttestors must be a list"),
        (["tpm"], "spec.authorizedAttestors[0].name is missing"),
        ([None], "spec.authorizedAttestors[0].name is missing"),
        ([{}], "spec.authorizedAttestors[0].name is missing"),
        ([{"name": "a"}, {"name": 5}], "spec.authorizedAttestors[1].name is missing"),
        ([{"name": "tpm"}, {"name": "aws"}, {"name": "tpm"}], "spec.authorizedAttestors[2].name: tpm is listed twice"),
        ([{"name": "tpm", "settings": []}], "spec.authorizedAttestors[0].settings must be an object"),
        ([{"name": "tpm", "settings": "x"}], "spec.authorizedAttestors[0].settings must be an object"),
        ([{"name": "tpm", "settings": False}], "spec.authorizedAttestors[0].settings must be an object"),
    ],
)
def test_attestors(value: Any, message: str) -> None:
    assert invalid(authorizedAttestors=value) == message


@pytest.mark.parametrize("name", ["", "TPM", "a_b", "-a", "a-", "a" * 41, "a\n"])
def test_attestor_names(name: str) -> None:
    assert invalid(authorizedAttestors=[{"name": name}]).startswith("spec.authorizedAttestors[0].name: a provider name")


@pytest.mark.parametrize("field", ["clientDuration", "servingDuration", "insecureDuration"])
class TestDurations:
    @pytest.mark.parametrize("value", ["1h", "60m", "3600s", "8784h", "0h60m0s"])
    def test_bounds(self, field: str, value: str) -> None:
        parse(certificates={field: value})

    @pytest.mark.parametrize("value", ["0s", "59m59s", "3599s", "8784h1s", "8785h", "999999h999999m999999s"])
    def test_out_of_bounds(self, field: str, value: str) -> None:
        message = f"spec.certificates.{field} must be between 1h and 8784h (366 days)"
        assert invalid(certificates={field: value}) == message

    @pytest.mark.parametrize(
        "value", ["", "7d", "1", "h", "1H", " 1h", "1h\n", "-1h", "1.5h", "1m1h", 3600, True, [], {}]
    )
    def test_of_another_form(self, field: str, value: Any) -> None:
        assert invalid(certificates={field: value}).startswith(f"spec.certificates.{field}: a duration must be")

    def test_missing_is_the_default(self, field: str) -> None:
        assert parse(certificates={field: None}) == parse()


class TestDeletingDuration:
    @pytest.mark.parametrize(("value", "hours"), [("0s", 0), ("0h", 0), ("1h", 1), ("8784h", 8784)])
    def test_none_or_within_bounds(self, value: str, hours: int) -> None:
        assert parse(certificates={"deletingDuration": value}).deleting_duration == timedelta(hours=hours)

    @pytest.mark.parametrize("value", ["1s", "59m59s", "8785h"])
    def test_out_of_bounds(self, value: str) -> None:
        message = "spec.certificates.deletingDuration must be between 1h and 8784h (366 days), or 0s for none"
        assert invalid(certificates={"deletingDuration": value}) == message

    @pytest.mark.parametrize("value", ["", 0, "0", False])
    def test_of_another_form(self, value: Any) -> None:
        message = invalid(certificates={"deletingDuration": value})
        assert message.startswith("spec.certificates.deletingDuration: a duration must be")

    def test_missing_is_a_day(self) -> None:
        assert parse().deleting_duration == timedelta(hours=24)


@pytest.mark.parametrize("value", ["x", [], [{}], 5, True, ""])
def test_parts_that_are_no_objects(value: Any) -> None:
    assert invalid(certificates=value) == "spec.certificates must be an object"
    for part in ("metadata", "spec"):
        with pytest.raises(InvalidPolicy, match=f"^{part} must be an object$"):
            parse_policy({"metadata": METADATA, "spec": {}, part: value}, NO_FLOOR)


@pytest.mark.parametrize(
    ("key", "kind"), [("namespace", "str"), ("name", "str"), ("uid", "str"), ("generation", "int")]
)
def test_metadata_of_another_type(key: str, kind: str) -> None:
    values: list[Any] = [None, [], {}, True, 5 if kind == "str" else "5"]
    for value in values:
        with pytest.raises(InvalidPolicy, match=f"^metadata.{key} must be a {kind}$"):
            parse_policy({"metadata": METADATA | {key: value}, "spec": {}}, NO_FLOOR)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SPEC = st.dictionaries(
    st.sampled_from(["mode", "authorizedAttestors", "nodeNames", "certificates", "nodeNameReuse"]),
    JSON | st.lists(st.dictionaries(st.sampled_from(["name", "settings"]), JSON)),
)


@pytest.mark.parametrize(
    ("field", "choices"), [("untraceable", ["Allow", "Refuse"]), ("machinePools", ["Rotate", "Extend"])]
)
def test_choices_about_bootstrap_tokens(field: str, choices: list[str]) -> None:
    for choice in choices:
        parse(bootstrapTokens={field: choice})
    values: list[Any] = ["", choices[0].lower(), None, 5, []]
    for value in values:
        expected = f"spec.bootstrapTokens.{field} must be one of {', '.join(choices)}"
        assert invalid(bootstrapTokens={field: value}) == expected
    assert invalid(bootstrapTokens=[]) == "spec.bootstrapTokens must be an object"


def test_defaults_of_what_is_new() -> None:
    policy = parse()
    assert policy.builtin_serving_requests is BuiltinServingRequests.FOLLOW_MODE
    assert policy.untraceable_tokens is UntraceableTokens.ALLOW
    assert policy.machine_pool_tokens is MachinePoolTokens.ROTATE


@pytest.mark.parametrize(
    ("mode", "requests", "approves"),
    [
        ("Observe", "FollowMode", False),
        ("Enforce", "FollowMode", True),
        ("Observe", "Approve", True),
        ("Enforce", "Ignore", False),
    ],
)
def test_whether_builtin_serving_requests_are_approved(mode: str, requests: str, approves: bool) -> None:
    assert parse(mode=mode, builtinServingRequests=requests).approves_builtin_serving is approves


@given(st.fixed_dictionaries({}, optional={"metadata": JSON, "spec": JSON | SPEC}))
def test_any_object_is_a_policy_or_invalid(manifest: dict[str, Any]) -> None:
    with suppress(InvalidPolicy):
        assert isinstance(parse_policy(manifest, NO_FLOOR), Policy)
