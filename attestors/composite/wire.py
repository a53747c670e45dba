"""The composite attestor's evidence and challenge; both plugins use them.

A field of the evidence is named ``<attestor>.<field>``: the name of a part, and a field of that part's own evidence. A
part's evidence has the version and the cluster of the whole. The names of attestors have no dot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from attestors.wire.evidence import Evidence, MalformedEvidence

EVIDENCE_VERSION: Final = "v1"
SEPARATOR: Final = "."

CHALLENGE_VERSION: Final = "v1"
_VERSION_KEY: Final = "version"
_ATTESTOR_KEY: Final = "attestor"
_CHALLENGE_KEY: Final = "challenge"


class MalformedChallenge(ValueError):
    """The text is no challenge of the composite attestor."""


def part_of(field: str) -> str:
    """The part whose evidence a field belongs to; empty if the field's name has no part."""
    part, dot, _ = field.partition(SEPARATOR)
    return part if dot else ""


def join_evidence(whole: Evidence, parts: Mapping[str, Evidence]) -> Evidence:
    """Evidence with the fields of all parts, in the order of their names. ``whole`` gives version and cluster."""
    fields = {
        f"{name}{SEPARATOR}{field}": value for name in sorted(parts) for field, value in parts[name].fields.items()
    }
    return Evidence(whole.version, whole.cluster, MappingProxyType(fields))


def split_evidence(evidence: Evidence, names: Sequence[str]) -> Mapping[str, Evidence]:
    """The evidence of each part. ``names`` are the parts that it must have, sorted.

    Raises:
        MalformedEvidence: a part is missing, unknown, repeated, or not in its place.
    """
    found = [part for part, _ in groupby(evidence.fields, key=part_of)]
    if found != list(names):
        raise MalformedEvidence(f"the evidence must be that of {', then '.join(names)}, each once and nothing else")
    return {
        name: Evidence(
            evidence.version,
            evidence.cluster,
            MappingProxyType(
                {
                    field.removeprefix(f"{name}{SEPARATOR}"): value
                    for field, value in evidence.fields.items()
                    if part_of(field) == name
                }
            ),
        )
        for name in names
    }


def join_challenge(part: str, challenge: str) -> str:
    """The challenge of one part, with the part's name."""
    document = {_VERSION_KEY: CHALLENGE_VERSION, _ATTESTOR_KEY: part, _CHALLENGE_KEY: challenge}
    return json.dumps(document, separators=(",", ":"))


def split_challenge(text: str) -> tuple[str, str]:
    """The part that is challenged, and its challenge.

    Raises:
        MalformedChallenge: the text has another form.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedChallenge("the challenge is not JSON") from error
    if not isinstance(document, dict) or set(document) != {_VERSION_KEY, _ATTESTOR_KEY, _CHALLENGE_KEY}:
        raise MalformedChallenge("the challenge has other keys than version, attestor and challenge")
    part, challenge = document[_ATTESTOR_KEY], document[_CHALLENGE_KEY]
    if document[_VERSION_KEY] != CHALLENGE_VERSION or not isinstance(part, str) or not isinstance(challenge, str):
        raise MalformedChallenge(f"the challenge is not one of version {CHALLENGE_VERSION}")
    if join_challenge(part, challenge) != text:
        raise MalformedChallenge("a key of the challenge is repeated, or its text is not as the controller writes it")
    return part, challenge
