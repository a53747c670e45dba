from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.model import exec_credential
from authenticator.model.exec_credential import UnusableExecInfo, encode_credential, parse_info
from tests.unit.authenticator.builders import SWIFT, V1, V1BETA1, exec_info

CLUSTER = {"server": "https://api.example:6443"}
MAXIMUM = 1024 * 1024

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
near_misses = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.just("ExecCredential") | json_values,
        "apiVersion": st.sampled_from([V1, V1BETA1]) | json_values,
        "spec": st.dictionaries(st.just("cluster"), json_values) | json_values,
    },
).map(json.dumps)


def test_the_names_of_client_go() -> None:
    assert exec_credential.INFO_VARIABLE == "KUBERNETES_EXEC_INFO"
    assert exec_credential.KIND == "ExecCredential"
    assert exec_credential.API_VERSIONS == (V1, V1BETA1)


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_both_versions_are_read(api_version: str) -> None:
    info = parse_info(exec_info(api_version))
    assert (info.api_version, info.cluster) == (api_version, None)


def test_the_cluster_is_read_where_it_is_given() -> None:
    assert parse_info(exec_info(cluster=CLUSTER)).cluster == CLUSTER


@pytest.mark.parametrize("spec", ["missing", None, [], "text", {"cluster": None}, {"cluster": ["https://x"]}])
def test_what_is_no_cluster_is_none(spec: Any) -> None:
    document = {"kind": "ExecCredential", "apiVersion": V1} | ({} if spec == "missing" else {"spec": spec})
    assert parse_info(json.dumps(document)).cluster is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "is not set: a kubelet or kubectl runs `credential`", id="run-by-hand"),
        pytest.param("{", "is not JSON", id="cut-off"),
        pytest.param("[" * 100_000, "is not JSON", id="deep"),
        pytest.param("[]", "is not an ExecCredential", id="list"),
        pytest.param("null", "is not an ExecCredential", id="null"),
        pytest.param(json.dumps({"apiVersion": V1}), "is not an ExecCredential", id="no-kind"),
        pytest.param(
            json.dumps({"apiVersion": V1, "kind": "ExecConfig"}), "is not an ExecCredential", id="another-kind"
        ),
        pytest.param(json.dumps({"kind": "ExecCredential"}), "another API version", id="no-version"),
        pytest.param(exec_info("client.authentication.k8s.io/v1alpha1"), "another API version", id="old-version"),
        pytest.param(
            json.dumps({"kind": "ExecCredential", "apiVersion": [V1]}), "another API version", id="list-of-versions"
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnusableExecInfo, match=message):
        parse_info(text)


def test_the_length_is_bounded() -> None:
    text = exec_info()
    assert parse_info(text + " " * (MAXIMUM - len(text))).api_version == V1
    with pytest.raises(UnusableExecInfo, match=f"longer than {MAXIMUM} characters"):
        parse_info(text + " " * (MAXIMUM - len(text) + 1))


def test_a_refusal_names_the_versions_that_are_known() -> None:
    with pytest.raises(UnusableExecInfo) as refused:
        parse_info(exec_info("client.authentication.k8s.io/v2"))
    assert V1 in str(refused.value)
    assert V1BETA1 in str(refused.value)


@SWIFT
@given(st.text(max_size=60) | near_misses)
def test_any_text_is_refused_or_of_a_known_version(text: str) -> None:
    try:
        info = parse_info(text)
    except UnusableExecInfo:
        return
    assert info.api_version in (V1, V1BETA1)
    assert info.cluster is None or isinstance(info.cluster, dict)


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_the_answer_is_one_line_as_client_go_reads_it(api_version: str) -> None:
    text = encode_credential(api_version, certificate="a\nb\n", key="c\n", expiration=1767323045)
    assert "\n" not in text
    assert json.loads(text) == {
        "apiVersion": api_version,
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": "a\nb\n",
            "clientKeyData": "c\n",
            "expirationTimestamp": "2026-01-02T03:04:05Z",
        },
    }


def test_the_answer_has_no_spaces_to_spare() -> None:
    text = encode_credential(V1, certificate="a", key="b", expiration=0)
    assert text.count(" ") == 0


@SWIFT
@given(
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).map(lambda one: one.replace(microsecond=0))
)
def test_every_expiration_is_rfc_3339_in_utc(moment: datetime) -> None:
    unix_time = int(moment.replace(tzinfo=UTC).timestamp())
    text = encode_credential(V1, certificate="", key="", expiration=unix_time)
    assert json.loads(text)["status"]["expirationTimestamp"] == moment.isoformat() + "Z"
