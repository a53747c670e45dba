"""The settings of the TPM attestor's agent plugin."""

from __future__ import annotations

import pytest

from attestors.contract import InvalidSettings
from attestors.tpm.node.settings import NodeSettings
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES, EndorsementChoice


def test_nothing_needs_to_be_set() -> None:
    assert NodeSettings.parse({}) == NodeSettings(None, None, None)


@pytest.mark.parametrize(
    "tcti", ["device", "device:/dev/tpmrm0", "swtpm:host=127.0.0.1,port=2321", "mssim", "tabrmd:bus_type=system"]
)
def test_tcti(tcti: str) -> None:
    assert NodeSettings.parse({"tcti": tcti}).tcti == tcti


@pytest.mark.parametrize(
    "tcti",
    [
        "",
        "/dev/tpm0",
        "cmd:rm -rf /",
        "libevil.so",
        "/tmp/libevil.so",
        "device:",
        "device:/dev/tpm 0",
        "swtpm:\n",
        "pcap",
    ],
)
def test_what_could_run_a_program_or_load_a_library_is_no_tcti(tcti: str) -> None:
    with pytest.raises(InvalidSettings, match="tcti is device, tabrmd, swtpm or mssim"):
        NodeSettings.parse({"tcti": tcti})


@pytest.mark.parametrize("choice", ENDORSEMENT_CHOICES, ids=lambda choice: choice.name)
def test_endorsement_key(choice: EndorsementChoice) -> None:
    assert NodeSettings.parse({"ek": choice.name}).endorsement_choice == choice


def test_unknown_endorsement_key() -> None:
    with pytest.raises(InvalidSettings, match=r"ek is one of rsa-2048, ecc-p256, .*the TPM's certificates decide"):
        NodeSettings.parse({"ek": "rsa"})


def test_provider_id() -> None:
    assert NodeSettings.parse({"provider-id": "metal://rack-1/host-2"}).provider_id == "metal://rack-1/host-2"
    assert NodeSettings.parse({"provider-id": "host-2"}).provider_id == "host-2"
    with pytest.raises(InvalidSettings, match="provider-id: not printable ASCII"):
        NodeSettings.parse({"provider-id": "host-2\n"})


def test_unknown_setting() -> None:
    with pytest.raises(InvalidSettings, match="no setting 'password', only tcti, ek, provider-id"):
        NodeSettings.parse({"password": "x"})
