from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from signer.configuration import InvalidConfiguration, read_configuration_file
from signer.model.attestor_roles import AnyAttestor, AnyOf, RequiredAttestors
from signer.model.floors import NO_FLOOR, Floor, Floors, MaximumDurations
from signer.model.policy import ApprovalByOthers, Mode, NodeNameReuse, UntraceableTokens

ATTESTORS = "attestors: {tpm: {}, gcp: {}}\n"


def read(folder: Path, floors: str) -> Floors:
    path = folder / "config.yaml"
    path.write_text(f"{ATTESTORS}floors: {floors}\n")
    return read_configuration_file(path).floors


def test_every_field(tmp_path: Path) -> None:
    floors = read(
        tmp_path,
        """
- namespaces: [team-a]
  mode: Enforce
  maximumDurations: {client: 24h, serving: 48h, insecure: 72h, deleting: 0s, sshHost: 96h}
  nodeNameReuse: WhenFormerInstanceIsGone
  approvalByOthers: Refuse
  untraceableTokens: Refuse
  requiredAttestors:
    controlPlane: {anyOf: [tpm]}
    workers: {anyOf: [tpm, gcp]}
""",
    )
    hours = [timedelta(hours=number) for number in (24, 48, 72, 0, 96)]
    assert floors.of("team-a") == Floor(
        Mode.ENFORCE,
        MaximumDurations(*hours),
        NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE,
        ApprovalByOthers.REFUSE,
        UntraceableTokens.REFUSE,
        RequiredAttestors(AnyOf(frozenset({"tpm"})), AnyOf(frozenset({"tpm", "gcp"}))),
    )
    assert floors.of("team-b") == NO_FLOOR


@pytest.mark.parametrize("floors", ["", "null", "[]"])
def test_none(tmp_path: Path, floors: str) -> None:
    assert read(tmp_path, floors) == Floors()


def test_every_namespace_and_one(tmp_path: Path) -> None:
    floors = read(
        tmp_path,
        "[{namespaces: ['*'], mode: Enforce}, {namespaces: [lab], requiredAttestors: {workers: {anyOf: [insecure]}}}]",
    )
    assert floors.of("anywhere") == Floor(Mode.ENFORCE)
    assert floors.of("lab").mode is Mode.ENFORCE
    assert floors.of("lab").required == RequiredAttestors(AnyAttestor(), AnyOf(frozenset({"insecure"})))


A = "namespaces: [a]"


@pytest.mark.parametrize(
    ("floors", "message"),
    [
        ("{}", "floors must be a list of at most 64 objects"),
        (f"[{', '.join('{' + A + '}' for _ in range(65))}]", "floors must be a list of at most 64 objects"),
        ("[x]", r"floors\[0\] must be an object"),
        ("[{mode: Enforce}]", r"floors\[0\].namespaces must be a list"),
        ("[{namespaces: []}]", r"floors\[0\].namespaces is empty, so the entry has no effect: remove it"),
        ("[{namespaces: [Team]}]", r"floors\[0\].namespaces: 'Team' is no namespace"),
        (f"[{{{A}, modes: Enforce}}]", r"floors\[0\] has the fields .*mode.*, and not 'modes'"),
        (f"[{{{A}, mode: enforce}}]", r"floors\[0\].mode must be one of Observe, Enforce"),
        (f"[{{{A}, mode: null}}]", r"floors\[0\].mode must be one of Observe, Enforce"),
        (f"[{{{A}, mode: [Enforce]}}]", r"floors\[0\].mode must be one of Observe, Enforce"),
        (f"[{{{A}, nodeNameReuse: never}}]", "nodeNameReuse must be one of AfterExpiry, Immediate, WhenFormer"),
        (f"[{{{A}, approvalByOthers: refuse}}]", "approvalByOthers must be one of Refuse, Honor"),
        (f"[{{{A}, untraceableTokens: refuse}}]", "untraceableTokens must be one of Allow, Refuse"),
        (f"[{{{A}, maximumDurations: {{clients: 1h}}}}]", "maximumDurations has the fields .*, and not 'clients'"),
        (f"[{{{A}, maximumDurations: {{client: 59m}}}}]", "client must be between 1h and 8784h"),
        (f"[{{{A}, maximumDurations: {{client: 0s}}}}]", "client must be between 1h and 8784h"),
        (f"[{{{A}, maximumDurations: {{client: 8785h}}}}]", "client must be between 1h and 8784h"),
        (f"[{{{A}, maximumDurations: {{client: 7}}}}]", "client: a duration must be"),
        (f"[{{{A}, maximumDurations: {{deleting: 1s}}}}]", "deleting must be between .*, or 0s for none"),
        (f"[{{{A}, requiredAttestors: {{all: {{}}}}}}]", "has the fields controlPlane, workers, and not 'all'"),
        (
            f"[{{{A}, requiredAttestors: {{workers: {{oneOf: [tpm]}}}}}}]",
            "has the fields allOf, anyOf, and not 'oneOf'",
        ),
        (f"[{{{A}, requiredAttestors: {{workers: {{anyOf: []}}}}}}]", "anyOf must be a list of 1 to 16 attestors"),
        (f"[{{{A}, requiredAttestors: {{workers: {{anyOf: tpm}}}}}}]", "anyOf must be a list of 1 to 16 attestors"),
        (f"[{{{A}, requiredAttestors: {{workers: {{anyOf: [aws]}}}}}}]", "aws is not in attestors, .*: name it there"),
        (f"[{{{A}, requiredAttestors: {{workers: {{anyOf: [TPM]}}}}}}]", "workers.anyOf: "),
        (f"[{{{A}, requiredAttestors: {{workers: {{anyOf: [1]}}}}}}]", "workers.anyOf: "),
        (
            f"[{{{A}, requiredAttestors: {{workers: {{anyOf: [tpm]}}}}}}, "
            "{namespaces: ['*'], requiredAttestors: {workers: {anyOf: [gcp]}}}]",
            "the entries for namespace a have no attestor in common in requiredAttestors.workers",
        ),
    ],
)
def test_faults(tmp_path: Path, floors: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        read(tmp_path, floors)


# All of several attestors

COMPOSITE = """attestors:
  tpm: {}
  gcp: {}
  composite:
    settings: {attestors: {tpm: {}, gcp: {}}}
"""
WITH_BOTH = AnyOf(frozenset({"composite"}), frozenset({"tpm", "gcp"}))


def read_with(folder: Path, attestors: str, floors: str) -> Floors:
    path = folder / "config.yaml"
    path.write_text(f"{attestors}floors: {floors}\n")
    return read_configuration_file(path).floors


def workers(accepted: str) -> str:
    return f"[{{{A}, requiredAttestors: {{workers: {accepted}}}}}]"


@pytest.mark.parametrize(
    ("accepted", "read_as"),
    [
        ("{allOf: [tpm, gcp]}", WITH_BOTH),
        ("{allOf: [tpm]}", AnyOf(frozenset({"composite", "tpm"}), frozenset({"tpm"}))),
        ("{allOf: [composite, tpm]}", AnyOf(frozenset({"composite"}), frozenset({"composite", "tpm"}))),
        ("{anyOf: [composite, tpm], allOf: [gcp, tpm]}", WITH_BOTH),
        ("{anyOf: [tpm]}", AnyOf(frozenset({"tpm"}))),
    ],
)
def test_all_of(tmp_path: Path, accepted: str, read_as: AnyOf) -> None:
    assert read_with(tmp_path, COMPOSITE, workers(accepted)).of("a").required.workers == read_as


def test_entries_require_together_what_each_requires(tmp_path: Path) -> None:
    entries = "[{namespaces: ['*'], requiredAttestors: {workers: {allOf: [tpm]}}}, " + workers("{allOf: [gcp]}")[1:]
    assert read_with(tmp_path, COMPOSITE, entries).of("a").required.workers == WITH_BOTH


NOT_TOGETHER = "no attestor in attestors proves gcp and tpm together, .*: name composite there, with attestors gcp, tpm"
ONLY_SOMEWHERE = """attestors:
  composite:
    settings: {attestors: {tpm: {}, gcp: {}}}
    settingsByNamespace: {lab: {attestors: {tpm: {}, aws: {}}}}
"""
BY_NAMESPACE = """attestors:
  composite:
    namespaces: [a, b]
    settingsByNamespace: {a: {attestors: {tpm: {}, gcp: {}}}, b: {attestors: {tpm: {}, gcp: {}, aws: {}}}}
"""


@pytest.mark.parametrize(
    ("attestors", "accepted", "message"),
    [
        (ATTESTORS, "{allOf: [tpm, gcp]}", NOT_TOGETHER),
        (ONLY_SOMEWHERE, "{allOf: [tpm, gcp]}", NOT_TOGETHER),
        ("attestors: {composite: {namespaces: []}}\n", "{allOf: [tpm, gcp]}", NOT_TOGETHER),
        (COMPOSITE, "{allOf: [tpm, aws]}", "proves aws and tpm together"),
        (COMPOSITE, "{anyOf: [tpm], allOf: [tpm, gcp]}", "no attestor in anyOf proves all of allOf"),
        (COMPOSITE, "{allOf: [insecure]}", "workers.allOf: insecure proves nothing: remove it"),
        (COMPOSITE, "{allOf: []}", "allOf must be a list of 1 to 16 attestors"),
        (COMPOSITE, "{allOf: tpm}", "allOf must be a list of 1 to 16 attestors"),
        (COMPOSITE, "{allOf: [TPM]}", "workers.allOf: a provider name"),
        (
            "attestors: {composite: {}}\n",
            "{allOf: [tpm]}",
            "attestors.composite: the composite attestor has the setting",
        ),
    ],
)
def test_all_of_that_no_attestor_meets(tmp_path: Path, attestors: str, accepted: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        read_with(tmp_path, attestors, workers(accepted))


def test_entries_that_no_attestor_meets_together(tmp_path: Path) -> None:
    """Each is met by the attestor itself, and both by none."""
    of_one = ATTESTORS.replace("}\n", ", composite: {settings: {attestors: {aws: {}, gcp: {}}}}}\n")
    entries = "[{namespaces: ['*'], requiredAttestors: {workers: {allOf: [tpm]}}}, " + workers("{allOf: [gcp]}")[1:]
    with pytest.raises(InvalidConfiguration, match="the entries for namespace a have no attestor in common"):
        read_with(tmp_path, of_one, entries)


def test_settings_of_every_namespace_count(tmp_path: Path) -> None:
    assert read_with(tmp_path, BY_NAMESPACE, workers("{allOf: [tpm, gcp]}")).of("a").required.workers == WITH_BOTH
    with pytest.raises(InvalidConfiguration, match="aws and tpm together"):
        read_with(tmp_path, BY_NAMESPACE, workers("{allOf: [tpm, aws]}"))
