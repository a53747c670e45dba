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
        (f"[{{{A}, requiredAttestors: {{workers: {{allOf: [tpm]}}}}}}]", "has the fields anyOf, and not 'allOf'"),
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
