from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.contract import AttestorSettings, DocumentKind, InvalidSettings, NoChallengeKeys
from attestors.tpm import operator_files, plugin
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.endorsement import EndorsementAuthorities
from attestors.tpm.endorsement_key_sources import (
    GCPShieldedVM,
    InfrastructureMachineAnnotation,
    Inventory,
    MachineAnnotation,
    SourcesInOrder,
)
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES
from attestors.tpm.quote import ANY_PCR_VALUES
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.settings import TPMSettings
from attestors.tpm.trust import NoAuthorities, Trust
from tests.unit.attestors.tpm.endorsement.support import intermediate, root

DIGEST = "ab" * 32
EK = "sha256:" + "cd" * 32


def parse(operator: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> TPMSettings:
    """The operator says that keys need no certificate, unless there are roots."""
    word = {} if "endorsementRootsFolder" in (operator or {}) else {"allowUncertifiedEndorsementKeys": True}
    return TPMSettings.parse(AttestorSettings({**word, **(operator or {})}, policy or {}))


def test_settings_are_compared_by_what_the_policy_says() -> None:
    """Whom the operator trusts follows files: it is another object each time."""
    assert parse({"deniedEndorsementKeys": [EK]}) == parse()
    assert parse(policy={"pcrs": {"sha256:7": [DIGEST]}}) != parse()


def test_as_many_values_of_a_register_as_are_allowed() -> None:
    digests = [f"{number:064x}" for number in range(65)]
    settings = parse(policy={"pcrs": {"sha256:7": digests[:64]}})
    assert len(settings.pcr_policy.allowed[PCR(HashAlgorithm.SHA256, 7)]) == 64
    with pytest.raises(InvalidSettings, match="1 to 64 digests"):
        parse(policy={"pcrs": {"sha256:7": digests}})


def folder(path: Path, **files: bytes) -> str:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return str(path)


@pytest.fixture
def roots(tmp_path: Path) -> str:
    return folder(tmp_path / "roots", root=root())


def test_without_any() -> None:
    parsed = parse()
    assert parsed.trust.current() == Trust(NoAuthorities(), frozenset())
    assert parsed.sources == SourcesInOrder((MachineAnnotation(), InfrastructureMachineAnnotation()))
    assert parsed.selection == PCRSelection.parse("sha256:0,1,2,3,4,5,6,7")
    assert parsed.pcr_policy == ANY_PCR_VALUES


def test_the_plugin_makes_its_server_plugin_with_them(roots: str) -> None:
    server = plugin.server_plugin(
        AttestorSettings({"endorsementRootsFolder": roots}, challenge_keys=lambda: (bytes(32),))
    )
    assert isinstance(server.settings.trust.current().authorities, EndorsementAuthorities)
    assert server.challenge_keys() == (bytes(32),)


def test_without_a_controller_there_are_no_keys() -> None:
    with pytest.raises(NoChallengeKeys):
        plugin.server_plugin(AttestorSettings({"allowUncertifiedEndorsementKeys": True})).challenge_keys()


@pytest.mark.parametrize("kind", ["operator", "policy"])
def test_unknown_ones_are_refused(kind: str) -> None:
    with pytest.raises(InvalidSettings, match="have no 'endorsmentRootsFolder', only"):
        parse(**{kind: {"endorsmentRootsFolder": "/nowhere"}})


@pytest.mark.parametrize(
    "setting",
    [
        {"endorsementRootsFolder": "/"},
        {"endorsementIntermediatesFolder": "/"},
        {"acceptExpiredAuthorities": True},
        {"deniedEndorsementKeys": []},
        {"deniedEndorsementKeysFile": "/dev/null"},
        {"allowTrustOnFirstUse": True},
        {"allowUncertifiedEndorsementKeys": True},
        {"endorsementKeyTemplates": ["rsa-2048"]},
        {"subjectsNameChips": True},
        {"shieldedVMProjects": ["my-project"]},
        {"googleCloud": {}},
    ],
    ids=lambda setting: min(setting),
)
def test_a_tenant_cannot_set_what_is_the_operators(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=r"^a policy's settings"):
        parse(policy=setting)


@pytest.mark.parametrize("setting", [{"pcrs": {}}, {"endorsementKeySources": []}, {"inventory": {}}], ids=min)
def test_what_is_a_clusters_to_choose(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=r"^the operator's settings"):
        parse(setting)


class TestAuthorities:
    def test_are_read_from_folders(self, roots: str, tmp_path: Path) -> None:
        intermediates = folder(tmp_path / "more", one=intermediate())
        parsed = parse({"endorsementRootsFolder": roots, "endorsementIntermediatesFolder": intermediates})
        assert isinstance(parsed.trust.current().authorities, EndorsementAuthorities)

    def test_hidden_files_and_folders_are_left_out(self, tmp_path: Path) -> None:
        """A mounted ConfigMap has ``..data`` and more."""
        found = folder(tmp_path / "roots", root=root(), **{"..data": b"no certificate"})
        (tmp_path / "roots" / "deeper").mkdir()
        assert isinstance(parse({"endorsementRootsFolder": found}).trust.current().authorities, EndorsementAuthorities)

    @pytest.mark.parametrize(
        "setting",
        [{"endorsementIntermediatesFolder": "/etc"}, {"acceptExpiredAuthorities": True}],
        ids=lambda setting: min(setting),
    )
    def test_without_roots_nothing_else_makes_sense(self, setting: dict[str, Any]) -> None:
        with pytest.raises(InvalidSettings, match="endorsementRootsFolder is missing"):
            parse(setting)

    @pytest.mark.parametrize("value", ["relative", "", "./here", 7, None, ["/etc"]])
    def test_a_folder_is_an_absolute_path(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="must be the absolute path of a folder"):
            parse({"endorsementRootsFolder": value})

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match=r"endorsementRootsFolder: .*No such file"):
            parse({"endorsementRootsFolder": str(tmp_path / "none")})

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "roots").write_bytes(root())
        with pytest.raises(InvalidSettings, match="Not a directory"):
            parse({"endorsementRootsFolder": str(tmp_path / "roots")})

    def test_an_empty_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match="holds no file"):
            parse({"endorsementRootsFolder": folder(tmp_path / "roots")})

    def test_a_folder_that_is_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_files, "MAXIMUM_BYTES", len(root()) + 16)  # signatures differ
        parse({"endorsementRootsFolder": folder(tmp_path / "one", a=root())})
        with pytest.raises(InvalidSettings, match="holds more than"):
            parse({"endorsementRootsFolder": folder(tmp_path / "two", a=root(), b=root())})

    def test_a_file_that_is_no_certificate(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match="endorsement authorities: "):
            parse({"endorsementRootsFolder": folder(tmp_path / "roots", a=b"no certificate")})

    @pytest.mark.parametrize("value", ["true", 1, None])
    def test_expired_ones_are_accepted_on_a_clear_word_only(self, roots: str, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="must be true or false"):
            parse({"endorsementRootsFolder": roots, "acceptExpiredAuthorities": value})

    def test_expired_ones(self, roots: str) -> None:
        for accepted in (True, False):
            parsed = parse({"endorsementRootsFolder": roots, "acceptExpiredAuthorities": accepted})
            authorities = parsed.trust.current().authorities
            assert isinstance(authorities, EndorsementAuthorities)
            assert authorities.accept_expired is accepted


class TestUncertified:
    @pytest.mark.parametrize("operator", [{}, {"allowUncertifiedEndorsementKeys": False}], ids=["unset", "false"])
    def test_a_program_that_plays_a_tpm_is_none(self, operator: dict[str, Any]) -> None:
        """Without settings nothing says that a key is in a TPM: no request is decided."""
        for more in ({}, {"deniedEndorsementKeys": [EK]}):
            with pytest.raises(InvalidSettings, match=r"a program could play a TPM: .*Keys: true"):
                plugin.server_plugin(AttestorSettings({**operator, **more}))

    def test_google_made_the_tpms_that_it_reports(self) -> None:
        operator = {"shieldedVMProjects": ["my-project"]}
        policy = {"endorsementKeySources": ["GCPShieldedVM"]}
        assert isinstance(TPMSettings.parse(AttestorSettings(operator, policy)).sources.sources[0], GCPShieldedVM)
        policy = {"endorsementKeySources": ["GCPShieldedVM", "MachineAnnotation"]}
        with pytest.raises(InvalidSettings, match=r"a program could play a TPM"):
            TPMSettings.parse(AttestorSettings(operator, policy))

    def test_beside_roots_it_would_have_no_effect(self, roots: str) -> None:
        with pytest.raises(InvalidSettings, match="remove one of them"):
            parse({"endorsementRootsFolder": roots, "allowUncertifiedEndorsementKeys": True})
        parse({"endorsementRootsFolder": roots, "allowUncertifiedEndorsementKeys": False})

    @pytest.mark.parametrize("value", ["true", 1, None, []], ids=repr)
    def test_is_said_by_a_clear_word_only(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="allowUncertifiedEndorsementKeys must be true or false"):
            parse({"allowUncertifiedEndorsementKeys": value})


class TestTemplates:
    def test_one_by_default(self) -> None:
        """With two, a chip has two keys, and is two machines."""
        assert parse().accepted.templates == {"rsa-2048"}

    def test_names_are_the_nodes(self) -> None:
        names = [template.name for template in ENDORSEMENT_TEMPLATES]
        assert [(choice.name, choice.title) for choice in ENDORSEMENT_CHOICES] == [
            (template.name, template.title) for template in ENDORSEMENT_TEMPLATES
        ]
        assert parse({"endorsementKeyTemplates": names}).accepted.templates == set(names)

    @pytest.mark.parametrize("value", [[], "rsa-2048", None, ["rsa"], ["L-1"], [7], {"rsa-2048": True}], ids=repr)
    def test_are_a_list_of_known_ones(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="endorsementKeyTemplates must be a list of some of rsa-2048"):
            parse({"endorsementKeyTemplates": value})

    def test_subjects_of_certificates_that_nobody_verifies(self) -> None:
        with pytest.raises(InvalidSettings, match="endorsementRootsFolder is missing: subjectsNameChips"):
            parse({"subjectsNameChips": True})


class TestDenied:
    def test_is_a_list_of_keys_and_chips(self) -> None:
        assert parse({"deniedEndorsementKeys": [EK, f"chip:{EK}"]}).trust.current().denied == {EK, f"chip:{EK}"}

    @pytest.mark.parametrize(
        "value", [EK, [EK.upper()], [EK[:-1]], [EK + "\n"], [EK.removeprefix("sha256:")], [7], {EK: True}, None]
    )
    def test_an_entry_without_effect_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="deniedEndorsementKeys must be a list"):
            parse({"deniedEndorsementKeys": value})


class TestRegisters:
    def test_what_is_named_is_quoted_and_must_hold(self) -> None:
        registers = {"sha384:0": ["ef" * 48], "sha256:7": [DIGEST, DIGEST.upper()], "sha256:23": ["00" * 32, DIGEST]}
        parsed = parse(policy={"pcrs": registers})
        assert str(parsed.selection) == "sha256:7,23+sha384:0"
        assert parsed.pcr_policy.allowed == {
            PCR(HashAlgorithm.SHA256, 7): {bytes.fromhex(DIGEST)},
            PCR(HashAlgorithm.SHA256, 23): {bytes(32), bytes.fromhex(DIGEST)},
            PCR(HashAlgorithm.SHA384, 0): {bytes.fromhex("ef" * 48)},
        }

    def test_registers_are_quoted_in_the_order_of_their_numbers(self) -> None:
        registers = {f"sha256:{index}": [DIGEST] for index in (10, 9, 2, 23, 0)}
        assert str(parse(policy={"pcrs": registers}).selection) == "sha256:0,2,9,10,23"

    def test_an_empty_value_equals_the_default(self) -> None:
        assert parse(policy={"pcrs": {}}) == parse()

    @pytest.mark.parametrize(
        "name", ["sha1:0", "SHA256:7", "sha256:24", "sha256:07", "sha256:-1", "7", "sha256:", "sha256:7,8", "sha3:1"]
    )
    def test_a_register_that_there_is_not(self, name: str) -> None:
        with pytest.raises(InvalidSettings, match="a register is named as sha256:7"):
            parse(policy={"pcrs": {name: [DIGEST]}})

    @pytest.mark.parametrize("value", [DIGEST, [], [DIGEST] * 65, {}, None, 7])
    def test_values_are_a_list(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="sha256:7 must be a list of 1 to 64 digests"):
            parse(policy={"pcrs": {"sha256:7": value}})

    @pytest.mark.parametrize("value", ["xyz", "a", 7, None, [DIGEST]])
    def test_a_value_that_is_no_digest(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="sha256:7 holds a value that is not a digest"):
            parse(policy={"pcrs": {"sha256:7": [value]}})

    @pytest.mark.parametrize("value", ["", "ab" * 20, "ab" * 48])
    def test_a_value_of_another_bank(self, value: str) -> None:
        with pytest.raises(InvalidSettings, match=r"pcrs: .*sha256:7 must name at least one digest, each of 32 bytes"):
            parse(policy={"pcrs": {"sha256:7": [value]}})

    @pytest.mark.parametrize("value", [[], "sha256:7", 7, None, True])
    def test_anything_else_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="pcrs must be an object"):
            parse(policy={"pcrs": value})


class TestDeniedFile:
    @pytest.mark.parametrize("value", ["relative", "", 7, None])
    def test_is_an_absolute_path(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="deniedEndorsementKeysFile must be the absolute path of a file"):
            parse({"deniedEndorsementKeysFile": value})


ALL = ["MachineAnnotation", "InfrastructureMachineAnnotation", "Inventory", "TrustOnFirstUse"]
INVENTORY = {"kind": "ConfigMap", "name": "tpm-inventory"}


class TestSources:
    def test_in_the_order_that_the_policy_prefers(self, roots: str) -> None:
        operator = {"endorsementRootsFolder": roots, "allowTrustOnFirstUse": True}
        parsed = parse(operator, {"endorsementKeySources": ALL, "inventory": INVENTORY})
        assert [source.name.value for source in parsed.sources.sources] == ALL
        parsed = parse(policy={"endorsementKeySources": ["Inventory", "MachineAnnotation"], "inventory": INVENTORY})
        assert parsed.sources.sources == (Inventory(DocumentKind.CONFIG_MAP, "tpm-inventory"), MachineAnnotation())

    @pytest.mark.parametrize(
        "value",
        [
            [],
            "MachineAnnotation",
            {},
            {"MachineAnnotation": 1},
            None,
            ["Machine"],
            ["MachineAnnotation", "Machine"],
            ["machineAnnotation"],
            [7],
            [["MachineAnnotation"]],
            [{}],
        ],
        ids=range(11),
    )
    def test_are_a_list_of_known_ones(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="endorsementKeySources must be a list of some of MachineAnnotation"):
            parse(policy={"endorsementKeySources": value})

    def test_each_once(self) -> None:
        with pytest.raises(InvalidSettings, match="names a source twice"):
            parse(policy={"endorsementKeySources": ["MachineAnnotation", "MachineAnnotation"]})


class TestShieldedVM:
    POLICY: Final = {"endorsementKeySources": ["GCPShieldedVM"]}
    PROJECTS: Final = {"shieldedVMProjects": ["my-project"]}

    def test_of_projects_that_the_operator_allows(self) -> None:
        (source,) = parse(self.PROJECTS, self.POLICY).sources.sources
        assert isinstance(source, GCPShieldedVM)
        (again,) = parse(self.PROJECTS, self.POLICY).sources.sources
        assert again is source
        (other,) = parse({"shieldedVMProjects": ["my-project", "another"]}, self.POLICY).sources.sources
        assert other is not source

    def test_of_no_project(self) -> None:
        with pytest.raises(InvalidSettings, match="this controller allows GCPShieldedVM for no project"):
            parse(policy=self.POLICY)

    def test_a_tenant_cannot_allow_any(self) -> None:
        with pytest.raises(InvalidSettings, match=r"^a policy's settings"):
            parse(policy={**self.POLICY, **self.PROJECTS})

    @pytest.mark.parametrize("value", [[], "my-project", None, ["My Project"], [7], {}], ids=repr)
    def test_projects_are_a_list_of_ids(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="shieldedVMProjects"):
            parse({"shieldedVMProjects": value}, self.POLICY)

    @pytest.mark.parametrize("value", [None, [], {"credentials": "/file"}, {"credentialsFile": "relative"}], ids=repr)
    def test_how_google_is_asked(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="googleCloud"):
            parse({**self.PROJECTS, "googleCloud": value})

    def test_without_projects_google_is_asked_nothing(self) -> None:
        with pytest.raises(InvalidSettings, match="shieldedVMProjects is missing"):
            parse({"googleCloud": {}})

    def test_without_its_libraries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "attestors.clouds.exchange", None)
        with pytest.raises(InvalidSettings, match="GCPShieldedVM needs the extra gcp"):
            parse({**self.PROJECTS, "googleCloud": {"computeEndpoint": "https://never.example"}}, self.POLICY)


class TestInventory:
    SOURCES: Final = ["Inventory"]

    @pytest.mark.parametrize("kind", list(DocumentKind), ids=lambda kind: kind.value)
    @pytest.mark.parametrize("name", ["a", "tpm-inventory", "rack.7", "a" * 253])
    def test_is_a_document(self, kind: DocumentKind, name: str) -> None:
        inventory = {"kind": kind.value, "name": name}
        parsed = parse(policy={"endorsementKeySources": self.SOURCES, "inventory": inventory})
        assert parsed.sources.sources == (Inventory(kind, name),)

    @pytest.mark.parametrize(
        "value",
        [
            None,
            "tpm-inventory",
            {},
            {"kind": "ConfigMap"},
            {**INVENTORY, "key": "x"},
            {**INVENTORY, "namespace": "kube-system"},
            {**INVENTORY, "kind": "Pod"},
            {**INVENTORY, "kind": "configmap"},
            {**INVENTORY, "kind": ["ConfigMap"]},
        ],
        ids=range(9),
    )
    def test_is_named_by_kind_and_name_alone(self, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="inventory must be an object such as"):
            parse(policy={"endorsementKeySources": self.SOURCES, "inventory": value})

    @pytest.mark.parametrize(
        "name", ["", "A", "a/b", "../a", "a..b", ".a", "a.", "-a", "a-", "a" * 254, "a\n", 7, None]
    )
    def test_has_the_name_of_an_object(self, name: Any) -> None:
        inventory = {"kind": "Secret", "name": name}
        with pytest.raises(InvalidSettings, match="inventory: name must be the name of a Secret"):
            parse(policy={"endorsementKeySources": self.SOURCES, "inventory": inventory})

    def test_without_the_one_the_other_makes_no_sense(self) -> None:
        with pytest.raises(InvalidSettings, match="inventory must be an object"):
            parse(policy={"endorsementKeySources": self.SOURCES})
        with pytest.raises(InvalidSettings, match="does not have Inventory"):
            parse(policy={"inventory": INVENTORY})


class TestTrustOnFirstUse:
    POLICY: Final = {"endorsementKeySources": ["MachineAnnotation", "TrustOnFirstUse"]}

    @pytest.mark.parametrize("operator", [{}, {"allowTrustOnFirstUse": False}], ids=["unset", "false"])
    def test_is_the_operators_to_allow(self, roots: str, operator: dict[str, Any]) -> None:
        with pytest.raises(InvalidSettings, match="this controller does not allow TrustOnFirstUse"):
            parse({"endorsementRootsFolder": roots, **operator}, self.POLICY)

    def test_a_tenant_cannot_allow_it(self, roots: str) -> None:
        with pytest.raises(InvalidSettings, match=r"^a policy's settings"):
            parse({"endorsementRootsFolder": roots}, {**self.POLICY, "allowTrustOnFirstUse": True})

    def test_needs_authorities(self) -> None:
        with pytest.raises(InvalidSettings, match="needs endorsement authorities"):
            parse({"allowTrustOnFirstUse": True}, self.POLICY)

    @pytest.mark.parametrize("value", ["true", 1, None, []], ids=repr)
    def test_is_allowed_on_a_clear_word_only(self, roots: str, value: Any) -> None:
        with pytest.raises(InvalidSettings, match="allowTrustOnFirstUse must be true or false"):
            parse({"endorsementRootsFolder": roots, "allowTrustOnFirstUse": value}, self.POLICY)

    def test_speaks_last(self, roots: str) -> None:
        operator = {"endorsementRootsFolder": roots, "allowTrustOnFirstUse": True}
        with pytest.raises(InvalidSettings, match="must have TrustOnFirstUse last"):
            parse(operator, {"endorsementKeySources": ["TrustOnFirstUse", "MachineAnnotation"]})

    def test_it_is_never_a_default(self, roots: str) -> None:
        parsed = parse({"endorsementRootsFolder": roots, "allowTrustOnFirstUse": True})
        assert parsed.sources == parse().sources
