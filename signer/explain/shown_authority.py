"""The SSH authorities as the policy's status shows them, for explanations: a dry run reads no private key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attestors.wire.node_access import NodeAccessRefused, Trust
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import PublicKey, host_key
from signer.decision.host_certificates import NoSigningHostAuthority, ShownHostAuthority
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.ssh_access import SSHSettings
from signer.ssh.condition_types import SSH_AUTHORITIES_AVAILABLE

_MAXIMUM_SHOWN: Final = 16


def shown_host_authority(
    policy: Mapping[str, Any], settings: SSHSettings
) -> ShownHostAuthority | NoSigningHostAuthority:
    """What the controller has said in the policy's status. ``policy`` is empty if it cannot be read."""
    status = mapping_of(policy, "status")
    said = [one for one in items_of(status, "conditions") if isinstance(one, Mapping)]
    found = next((one for one in said if text_of(one, "type") == SSH_AUTHORITIES_AVAILABLE), {})
    if text_of(found, "status") != "True":
        why = f"{text_of(found, 'reason')}: {text_of(found, 'message')}" if found else "the policy's status lacks it"
        return NoSigningHostAuthority(printable(f"condition {SSH_AUTHORITIES_AVAILABLE}: {why}"))
    ssh = mapping_of(status, "ssh")
    try:
        users, hosts = _keys(ssh, "userAuthorities"), tuple(map(host_key, _keys(ssh, "hostAuthorities")))
        version = ssh.get("trustVersion")
        if not hosts or type(version) is not int:
            return NoSigningHostAuthority("status.ssh of the policy does not show them")
        break_glass = tuple(one.public_key for one in settings.break_glass_keys)
        return ShownHostAuthority(hosts[0], Trust(users, break_glass, hosts, version))
    except (SSHRefused, NodeAccessRefused) as refused:
        return NoSigningHostAuthority(printable(f"status.ssh of the policy cannot be read: {refused}"))


def _keys(ssh: Mapping[str, Any], name: str) -> tuple[PublicKey, ...]:
    """
    Raises:
        SSHRefused: an entry is no public key.
    """
    shown = items_of(ssh, name)[:_MAXIMUM_SHOWN]
    return tuple(parse_key_line(text_of(one if isinstance(one, Mapping) else {}, "publicKey")) for one in shown)


__all__ = ["shown_host_authority"]
