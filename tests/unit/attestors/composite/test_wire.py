"""Evidence and challenges of several parts are read back as they were, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.composite import plugin
from attestors.composite.wire import (
    MalformedChallenge,
    join_challenge,
    join_evidence,
    split_challenge,
    split_evidence,
)
from attestors.contract import digest_of
from attestors.gcp.wire import IDENTITY_TOKEN_FIELD
from attestors.wire.evidence import MalformedEvidence
from tests.unit.attestors.composite.support import answer, challenge, mac_fields
from tests.unit.attestors.gcp import support as google
from tests.unit.attestors.support import PATIENT, evidence_of

NAMES = st.sampled_from(["aws", "gcp", "tpm", "keyed-mac", "tp", "tpm2", "a.b", ""])
FIELDS = st.dictionaries(st.text(max_size=6) | st.sampled_from([".", "tpm.x", "x"]), st.text(max_size=6), max_size=3)
WHOLE = evidence_of({})


@PATIENT
@given(st.dictionaries(st.sampled_from(["aws", "gcp", "tpm", "keyed-mac", "tp"]), FIELDS, min_size=1, max_size=3))
def test_parts_are_read_back(parts: dict[str, dict[str, str]]) -> None:
    """A part without fields cannot be told from one that is missing, and is refused."""
    joined = join_evidence(WHOLE, {name: evidence_of(fields) for name, fields in parts.items()})
    if not all(parts.values()):
        with pytest.raises(MalformedEvidence):
            split_evidence(joined, sorted(parts))
        return
    split = split_evidence(joined, sorted(parts))
    assert {name: dict(one.fields) for name, one in split.items()} == parts


@PATIENT
@given(st.lists(st.tuples(NAMES, st.text(max_size=4)), max_size=5))
def test_whatever_is_read_has_each_part_once_and_no_other_field(found: list[tuple[str, str]]) -> None:
    evidence = evidence_of({f"{name}.{field}": "x" for name, field in found})
    names = ["gcp", "tpm"]
    try:
        split = split_evidence(evidence, names)
    except MalformedEvidence:
        return
    assert list(split) == names
    assert all(one.fields for one in split.values())
    assert join_evidence(evidence, split) == evidence
    assert list(join_evidence(evidence, split).fields) == list(evidence.fields)


@PATIENT
@given(st.text(max_size=20), st.text(max_size=40))
def test_challenges(part: str, text: str) -> None:
    assert split_challenge(join_challenge(part, text)) == (part, text)
    with pytest.raises(MalformedChallenge):
        split_challenge(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"version":"v1","attestor":"tpm"}',
        '{"version":"v2","attestor":"tpm","challenge":"c"}',
        '{"version":"v1","attestor":1,"challenge":"c"}',
        '{"version":"v1","attestor":"tpm","challenge":{}}',
        '{"version":"v1","attestor":"tpm","challenge":"c","more":""}',
        '{"version":"v1","attestor":"gcp","attestor":"tpm","challenge":"c"}',
        '{"version":"v1","challenge":"c","attestor":"tpm"}',
        "[" * 100_000,
    ],
)
def test_malformed_challenges(text: str) -> None:
    with pytest.raises(MalformedChallenge):
        split_challenge(text)


def test_a_challenge_fits_the_annotation() -> None:
    assert len(join_challenge("tpm", challenge())) < 4096


# What the audit log holds


def test_parts_are_logged_as_their_attestors_say() -> None:
    evidence = evidence_of(answer())
    assert plugin.redacted_fields(evidence) is evidence.fields
    token = google.token()
    with_token = evidence_of({f"gcp.{IDENTITY_TOKEN_FIELD}": token, **mac_fields()})
    kept = plugin.redacted_fields(with_token)
    assert list(kept) == list(with_token.fields)
    assert token.rpartition(".")[2] not in kept[f"gcp.{IDENTITY_TOKEN_FIELD}"]
    assert kept[f"gcp.{IDENTITY_TOKEN_FIELD}"].startswith(token.rpartition(".")[0])
    assert kept["keyed-mac.mac"] == with_token.fields["keyed-mac.mac"]


@pytest.mark.parametrize(
    "fields",
    [
        {"composite.tpm.x": "secret"},
        {"elsewhere.x": "secret"},
        {"token": "secret"},
        {".token": "secret"},
        {"tpm.a": "secret", "gcp.b": "secret"},
        {"gcp.a": "secret", "tpm.b": "secret", "gcp.c": "secret"},
    ],
)
def test_a_field_of_no_part_is_not_logged(fields: dict[str, str]) -> None:
    assert plugin.redacted_fields(evidence_of(fields)) == {name: digest_of("secret") for name in fields}
