"""``NodeAccessTrust``: the SSH authorities that a node's sshd and its clients must trust, and what is revoked.

The statement's sequence is the version of both. The trust has a version of its own, which text behind the node's
certificate names, too (:mod:`attestors.wire.node_access`): a revocation changes the sequence alone.

It also has nodes attest now, before their certificates are due: those whose newest answered request reported a lower
version of the trust than ``renewBelow``. So a rotation of an authority learns soon who has the new trust. They do so
within ``renewSpreadSeconds``, each at a time that its name determines: only the controller knows how many they are.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.wire.node_access import (
    MAXIMUM_HOST_AUTHORITIES,
    MAXIMUM_USER_AUTHORITIES,
    NodeAccessRefused,
    Trust,
)
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import PublicKey, host_key
from attestors.wire.statement.errors import MalformedStatement
from attestors.wire.statement.strict_json import expect_keys, list_of, number_of, text_of

MAXIMUM_REVOCATION_LIST_BYTES: Final = 700 * 1024
"""A ConfigMap holds 1 MiB, and the list is in Base64 there."""
MAXIMUM_RENEW_SPREAD_SECONDS: Final = 3600
_LINE: Final = re.compile(r"[ -~]{1,4096}")
_BASE64: Final = re.compile(rf"[A-Za-z0-9+/=]{{1,{MAXIMUM_REVOCATION_LIST_BYTES * 4 // 3 + 4}}}")


@dataclass(frozen=True, slots=True)
class NodeAccessTrust:
    """The trust, the key revocation list, and who attests now.

    Raises:
        MalformedStatement: the list is empty or too long, the trust's version is larger than JSON numbers are, nodes
            are to report a higher version than this trust has, which none could, or the spread is out of bounds.
    """

    trust: Trust
    revocation_list: bytes = field(repr=False)
    """sshd's RevokedKeys (OpenSSH's PROTOCOL.krl). Parsed only by the verifier."""
    renew_below: int
    """A node attests now if its newest answered request reported a lower version of the trust. 0: none does."""
    renew_spread_seconds: int
    """Within which all of these nodes attest."""

    def __post_init__(self) -> None:
        number_of(self.trust.version, "trustVersion", minimum=1)
        number_of(self.renew_below, "renewBelow", maximum=self.trust.version)
        number_of(self.renew_spread_seconds, "renewSpreadSeconds", minimum=1, maximum=MAXIMUM_RENEW_SPREAD_SECONDS)
        if not 0 < len(self.revocation_list) <= MAXIMUM_REVOCATION_LIST_BYTES:
            raise MalformedStatement(f"revocationList has not 1 to {MAXIMUM_REVOCATION_LIST_BYTES} bytes")

    def document(self) -> dict[str, Any]:
        """The payload's JSON form."""
        return {
            "trustVersion": self.trust.version,
            "renewBelow": self.renew_below,
            "renewSpreadSeconds": self.renew_spread_seconds,
            "userAuthorities": list(map(key_line, self.trust.user_authorities)),
            "breakGlassAuthorities": list(map(key_line, self.trust.break_glass_authorities)),
            "hostAuthorities": list(map(key_line, self.trust.host_authorities)),
            "revocationList": base64.b64encode(self.revocation_list).decode("ascii"),
        }

    @classmethod
    def parse(cls, payload: dict[str, Any]) -> NodeAccessTrust:
        """Parse the JSON form.

        Raises:
            MalformedStatement: anything else.
        """
        authorities = ("userAuthorities", "breakGlassAuthorities", "hostAuthorities")
        numbers = ("trustVersion", "renewBelow", "renewSpreadSeconds")
        expect_keys(payload, "payload", *numbers, *authorities, "revocationList")
        version = number_of(payload["trustVersion"], "trustVersion", minimum=1)
        users = _keys(payload["userAuthorities"], "userAuthorities", MAXIMUM_USER_AUTHORITIES)
        break_glass = _keys(payload["breakGlassAuthorities"], "breakGlassAuthorities", MAXIMUM_USER_AUTHORITIES)
        hosts = _keys(payload["hostAuthorities"], "hostAuthorities", MAXIMUM_HOST_AUTHORITIES)
        text = text_of(payload["revocationList"], "revocationList", _BASE64)
        try:
            trust = Trust(users, break_glass, tuple(map(host_key, hosts)), version)
            revocation_list = base64.b64decode(text, validate=True)
            return cls(trust, revocation_list, payload["renewBelow"], payload["renewSpreadSeconds"])
        except (SSHRefused, NodeAccessRefused) as refused:
            raise MalformedStatement(f"the authorities: {refused}") from None
        except binascii.Error:
            raise MalformedStatement("revocationList is not Base64") from None


def _keys(value: object, where: str, maximum: int) -> tuple[PublicKey, ...]:
    lines = [text_of(line, f"a line of {where}", _LINE) for line in list_of(value, where, maximum=maximum)]
    try:
        return tuple(map(parse_key_line, lines))
    except SSHRefused as refused:
        raise MalformedStatement(f"{where}: {refused}") from None
