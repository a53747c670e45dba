"""Names of API servers in kubeadm's configuration: what counts, and what hostile objects cost."""

from __future__ import annotations

from typing import Any

import pytest

from signer.model.kubeadm_names import (
    MAXIMUM_CONFIGURATION_BYTES,
    MAXIMUM_STATED_NAMES,
    StatedNames,
    UnreadableConfiguration,
    names_in_config_map,
    names_in_control_plane,
)

CONFIGURATION = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  certSANs: [API.Example., "*.Apps.Example", 2001:DB8:0::1]
  extraArgs:
    - name: v
      value: "2"
controlPlaneEndpoint: %s
"""
NAMES = {"api.example", "*.apps.example", "2001:db8::1"}


def config_map(text: Any) -> dict[str, Any]:
    return {"data": {"ClusterConfiguration": text}}


def control_plane(configuration: Any) -> dict[str, Any]:
    return {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": configuration}}}


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("VIP.example", "vip.example"),
        ("vip.example:6443", "vip.example"),
        ("192.0.2.9:6443", "192.0.2.9"),
        ("'[2001:db8::9]:6443'", "2001:db8::9"),
    ],
)
def test_names_in_canonical_form(endpoint: str, host: str) -> None:
    found = names_in_config_map(config_map(CONFIGURATION % endpoint))
    assert found == StatedNames(frozenset({*NAMES, host}))


def test_a_kubeadm_control_plane() -> None:
    server = {"certSANs": ["API.Example.", "*.Apps.Example", "2001:DB8:0::1"]}
    assert names_in_control_plane(control_plane({"apiServer": server})).names == NAMES
    assert names_in_control_plane({}) == names_in_control_plane(control_plane("none")) == StatedNames(frozenset())


def test_what_is_no_name_is_left_out() -> None:
    server = {"certSANs": ["a.example", 7, "", "x" * 254, None]}
    found = names_in_control_plane(control_plane({"apiServer": server, "controlPlaneEndpoint": "y" * 300}))
    assert found == StatedNames(frozenset({"a.example"}), 5)


def test_too_many_names() -> None:
    many = [f"n{number}.example" for number in range(MAXIMUM_STATED_NAMES + 3)]
    found = names_in_control_plane(control_plane({"apiServer": {"certSANs": many}}))
    assert (len(found.names), found.left_out) == (MAXIMUM_STATED_NAMES, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "has no data.ClusterConfiguration"),
        ("", "has no data.ClusterConfiguration"),
        ("[]", "is not a mapping"),
        ("a: &a [*a]", "cannot be read"),
        ("apiServer: {}\napiServer: {}", "cannot be read"),
        ("\ud800", "is not UTF-8"),
        ("#" * (MAXIMUM_CONFIGURATION_BYTES + 1), "is longer than 65536 bytes"),
    ],
)
def test_what_cannot_be_read(text: Any, why: str) -> None:
    with pytest.raises(UnreadableConfiguration, match=why):
        names_in_config_map(config_map(text))
