from __future__ import annotations

import base64
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import evidence
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import MAXIMUM_FIELDS, Evidence, MalformedEvidence, UnsupportedVersion
from tests.unit.attestors.support import CLUSTER, PATIENT, evidence_of

HEAD = f'"version":"v1","caCertHash":"{CLUSTER.text}"'

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda name: name not in ("version", "caCertHash"))


def envelope(rest: str = "", head: str = HEAD) -> bytes:
    return ("{" + head + ("," if rest else "") + rest + "}").encode("utf-8")


def refusal(data: bytes) -> str:
    with pytest.raises(MalformedEvidence) as refused:
        evidence.decode(data)
    return str(refused.value)


def test_reads_an_envelope() -> None:
    read = evidence.decode(envelope('"mac":"YQ==","note":"\u00fc"'))
    assert read.version == "v1"
    assert read.cluster == CLUSTER
    assert dict(read.fields) == {"mac": "YQ==", "note": "\u00fc"}


def test_reads_an_envelope_without_fields() -> None:
    assert dict(evidence.decode(envelope()).fields) == {}


def test_writes_version_and_cluster_first_and_no_white_space() -> None:
    assert evidence.encode(evidence_of({"mac": "YQ=="})) == envelope('"mac":"YQ=="')


@PATIENT
@given(st.dictionaries(names, texts, max_size=MAXIMUM_FIELDS - 2))
def test_reads_back_what_it_writes(fields: dict[str, str]) -> None:
    written = evidence_of(fields)
    assert evidence.decode(evidence.encode(written)) == written


@PATIENT
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_refused_or_understood_the_same_way_again(data: bytes) -> None:
    try:
        read = evidence.decode(data)
    except (MalformedEvidence, UnsupportedVersion):
        return
    assert evidence.decode(evidence.encode(read)) == read


@PATIENT
@given(
    st.dictionaries(names, texts, max_size=3),
    st.sampled_from([None, True, 1, 1.5, float("nan"), [], ["a"], {}, {"a": "b"}]),
    st.integers(0, 3),
)
def test_values_that_are_no_strings_are_refused(fields: dict[str, str], value: Any, position: int) -> None:
    pairs: list[tuple[str, Any]] = list(fields.items())
    pairs.insert(position, ("other", value))
    rest = ",".join(f"{json.dumps(key)}:{json.dumps(item)}" for key, item in pairs)
    assert refusal(envelope(rest)) in ("every value in the evidence must be a string", "the evidence repeats a key")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "not UTF-8 JSON", id="nothing"),
        pytest.param(b"\xff", "not UTF-8 JSON", id="not-utf8"),
        pytest.param(envelope().decode().encode("utf-16"), "not UTF-8 JSON", id="utf-16"),
        pytest.param(b"\xef\xbb\xbf" + envelope(), "not UTF-8 JSON", id="byte-order-mark"),
        pytest.param(envelope('"a":"\x01"'), "not UTF-8 JSON", id="raw-control-character"),
        pytest.param(envelope().replace(b'"', b"'"), "not UTF-8 JSON", id="single-quotes"),
        pytest.param(envelope('"a":"b",'), "not UTF-8 JSON", id="trailing-comma"),
        pytest.param(envelope() + envelope(), "not UTF-8 JSON", id="two-documents"),
        pytest.param(envelope() + b"\0", "not UTF-8 JSON", id="zero-byte-behind"),
        pytest.param(envelope()[:-1], "not UTF-8 JSON", id="truncated"),
        pytest.param(envelope('"a":' + "[" * 20_000), "not UTF-8 JSON", id="deep-lists"),
        pytest.param(envelope('"a":' + '{"a":' * 10_000), "not UTF-8 JSON", id="deep-objects"),
        pytest.param(envelope('"a":' + "[" * 20_000 + "]" * 20_000), "not UTF-8 JSON", id="deep-and-complete"),
        pytest.param(envelope('"a":' + "9" * 50_000), "not UTF-8 JSON", id="huge-integer"),
        pytest.param(envelope('"a":1e999999'), "must be a string", id="huge-number"),
        pytest.param(envelope('"a":NaN'), "must be a string", id="not-a-number"),
        pytest.param(envelope('"a":-Infinity'), "must be a string", id="infinity"),
        pytest.param(b"[]", "not a JSON object", id="list"),
        pytest.param(b'"v1"', "not a JSON object", id="string"),
        pytest.param(b"null", "not a JSON object", id="null"),
        pytest.param(b"NaN", "not a JSON object", id="bare-nan"),
        pytest.param(b'[["version","v1"]]', "not a JSON object", id="list-of-pairs"),
        pytest.param(b"{}", "must begin with version", id="empty-object"),
        pytest.param(
            envelope(head=f'"caCertHash":"{CLUSTER.text}","version":"v1"'), "must begin with version", id="order"
        ),
        pytest.param(envelope(head='"version":"v1"'), "must begin with version", id="no-cluster"),
        pytest.param(
            envelope(head=f'"version":"v1","mac":"a","caCertHash":"{CLUSTER.text}"'),
            "must begin with version",
            id="cluster-third",
        ),
        pytest.param(envelope('"version":"v1"'), "repeats a key", id="version-again"),
        pytest.param(envelope('"version":"v9"'), "repeats a key", id="another-version-again"),
        pytest.param(envelope(f'"caCertHash":"{CLUSTER.text}"'), "repeats a key", id="cluster-again"),
        pytest.param(envelope('"mac":"a","mac":"a"'), "repeats a key", id="field-again"),
        pytest.param(envelope('"mac":"a","m\\u0061c":"b"'), "repeats a key", id="field-again-escaped"),
        pytest.param(envelope('"a":{"b":"c","b":"c"}'), "must be a string", id="nested-repetition"),
        pytest.param(envelope('"a":"\\ud800"'), "lone surrogate", id="surrogate-value"),
        pytest.param(envelope('"\\udfff":"a"'), "lone surrogate", id="surrogate-key"),
        pytest.param(envelope('"a":"x\\ud800y"'), "lone surrogate", id="surrogate-among-others"),
        pytest.param(envelope('"a":"\\udc00\\ud800"'), "lone surrogate", id="surrogates-in-the-wrong-order"),
        pytest.param(envelope(head='"version":1'), "version must be", id="number-version"),
        pytest.param(envelope(head='"version":NaN'), "version must be", id="nan-version"),
        pytest.param(envelope(head='"version":["v1"]'), "version must be", id="list-version"),
        pytest.param(envelope(head='"version":"1"'), "version must be", id="bare-number"),
        pytest.param(envelope(head='"version":"v01"'), "version must be", id="leading-zero"),
        pytest.param(envelope(head='"version":"v1 "'), "version must be", id="space"),
        pytest.param(envelope(head='"version":"v1\\n"'), "version must be", id="newline"),
        pytest.param(envelope(head='"version":"v\u0661"'), "version must be", id="arabic-digit"),
        pytest.param(envelope(head='"version":"v1\u0661"'), "version must be", id="arabic-second-digit"),
        pytest.param(envelope(head='"version":"v10000"'), "version must be", id="long-version"),
        pytest.param(envelope(head='"version":"v1","caCertHash":"sha256:00"'), "caCertHash: a CA", id="short-hash"),
        pytest.param(
            envelope(head=f'"version":"v1","caCertHash":"{CLUSTER.text.upper()}"'), "caCertHash: a CA", id="upper-case"
        ),
        pytest.param(envelope(head='"version":"v1","caCertHash":null'), "must be a string", id="null-hash"),
    ],
)
def test_refuses(data: bytes, message: str) -> None:
    assert message in refusal(data)


def test_a_surrogate_pair_is_a_character() -> None:
    assert evidence.decode(envelope('"a":"\\ud83d\\ude00"')).fields["a"] == "\U0001f600"


def test_writes_text_as_it_is() -> None:
    assert evidence.encode(evidence_of({"note": "\u00fc"})) == envelope('"note":"\u00fc"')


def test_a_text_of_one_character() -> None:
    assert evidence_of({"a": "x"}).text("a", maximum_characters=1) == "x"
    with pytest.raises(MalformedEvidence, match="1 to 1 characters"):
        evidence_of({"a": "xy"}).text("a", maximum_characters=1)


def test_shows_no_field_by_itself() -> None:
    """Evidence may let its holder act: it must not come into a log by being printed."""
    assert "hunter2" not in repr(evidence_of({"secret": "hunter2"}))


def test_bounds_the_number_of_keys() -> None:
    fields = [f'"field{number}":"x"' for number in range(MAXIMUM_FIELDS - 2)]
    assert len(evidence.decode(envelope(",".join(fields))).fields) == MAXIMUM_FIELDS - 2
    assert "more than 32 keys" in refusal(envelope(",".join([*fields, '"one":"more"'])))


@pytest.mark.parametrize("version", ["v2", "v10", "v9999"])
def test_a_later_version_differs_from_malformed_evidence(version: str) -> None:
    """Whatever form a later version has behind its version, the node must be told which versions are read."""
    with pytest.raises(UnsupportedVersion, match=version):
        evidence.decode(f'{{"version":"{version}","nested":{{"a":[1,2]}},"nested":null}}'.encode())


@pytest.mark.parametrize("name", ["version", "caCertHash"])
def test_a_field_cannot_replace_the_envelope(name: str) -> None:
    with pytest.raises(MalformedEvidence, match="may not be called"):
        evidence.encode(evidence_of({name: "x"}))


class TestExpectFields:
    def test_passes_exactly_those(self) -> None:
        evidence_of({"mac": "a", "nonce": "b"}).expect_fields("nonce", "mac")
        evidence_of({}).expect_fields()

    @pytest.mark.parametrize("fields", [{}, {"nonce": "b"}, {"MAC": "a", "nonce": "b"}])
    def test_refuses_a_missing_one(self, fields: dict[str, str]) -> None:
        with pytest.raises(MalformedEvidence, match="field mac is missing"):
            evidence_of(fields).expect_fields("nonce", "mac")

    def test_refuses_an_unknown_one_without_repeating_its_name(self) -> None:
        with pytest.raises(MalformedEvidence, match="1 unknown fields beside mac") as refused:
            evidence_of({"mac": "a", "<script>": "b"}).expect_fields("mac")
        assert "script" not in str(refused.value)

    def test_refuses_any_where_none_is_expected(self) -> None:
        with pytest.raises(MalformedEvidence, match="unknown fields beside none"):
            evidence_of({"mac": "a"}).expect_fields()


class TestText:
    def test_returns_it(self) -> None:
        assert evidence_of({"a": "xyz"}).text("a", maximum_characters=3) == "xyz"

    @pytest.mark.parametrize(
        ("fields", "message"), [({}, "is missing"), ({"a": ""}, "1 to 3"), ({"a": "wxyz"}, "1 to 3")]
    )
    def test_refuses(self, fields: dict[str, str], message: str) -> None:
        with pytest.raises(MalformedEvidence, match=message):
            evidence_of(fields).text("a", maximum_characters=3)


class TestBinary:
    @PATIENT
    @given(st.binary(min_size=1, max_size=40))
    def test_returns_it_decoded(self, content: bytes) -> None:
        encoded = base64.b64encode(content).decode()
        assert evidence_of({"a": encoded}).binary("a", maximum_bytes=len(content)) == content

    @PATIENT
    @given(st.binary(min_size=2, max_size=40))
    def test_refuses_one_byte_too_many(self, content: bytes) -> None:
        encoded = base64.b64encode(content).decode()
        with pytest.raises(MalformedEvidence):
            evidence_of({"a": encoded}).binary("a", maximum_bytes=len(content) - 1)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "YQ",
            "YQ=",
            "YR==",
            "YQ==\n",
            " YQ==",
            "Y Q==",
            "YQ==YQ==",
            "YQ===",
            "-_8=",
            "Y\u00e9==",
            "====",
            "\ud800",
        ],
    )
    def test_refuses_what_is_not_canonical_base64(self, text: str) -> None:
        with pytest.raises(MalformedEvidence, match="field a"):
            evidence_of({"a": text}).binary("a", maximum_bytes=100)

    def test_refuses_a_missing_field(self) -> None:
        with pytest.raises(MalformedEvidence, match="field a is missing"):
            evidence_of({}).binary("a", maximum_bytes=100)


def test_evidence_cannot_be_changed() -> None:
    read = evidence.decode(envelope('"mac":"YQ=="'))
    assert isinstance(read.fields, MappingProxyType)
    with pytest.raises(AttributeError):
        read.version = "v2"  # type: ignore[misc]
    assert Evidence("v1", CACertHash(CLUSTER.text), read.fields) == read


def test_it_is_never_shown_as_a_whole() -> None:
    """A presigned request holds a session's token, and a log may hold any value's repr."""
    held = Evidence("v1", CLUSTER, MappingProxyType({"callerIdentityRequest": "X-Amz-Security-Token=secret"}))
    assert "secret" not in repr(held)
