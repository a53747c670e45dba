"""AccessGrants as an API server gives them, Ready, with real certificates."""

from __future__ import annotations

import time
from typing import Any, Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.grants import Grant, parse_grant
from tests.support.access_objects import GRANT_UID, grant_object
from tests.support.grant_controller import Behaviour, status_of
from tests.support.openssh import private_key

KEY: Final = private_key("ed25519", 320)
BASTION_KEY: Final = private_key("ed25519", 321)
BASTION: Final = Behaviour(
    bastion={"ip": "203.0.113.5", "port": 2222}, bastion_key=key_line(public_key_of(BASTION_KEY)), address="10.0.0.7"
)
DIRECT: Final = Behaviour(address="10.0.0.7", port=2222)


def document(behaviour: Behaviour = DIRECT, /, **spec: Any) -> dict[str, Any]:
    """A grant of alice for worker-1 of production, in namespace team-a."""
    made = grant_object(**{"sshPublicKey": key_line(public_key_of(KEY)), **spec})
    made["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    made["status"] = status_of(made, behaviour)
    return made


def grant(behaviour: Behaviour = DIRECT, /, **changes: Any) -> Grant:
    """The same, parsed."""
    return parse_grant(document(behaviour, **changes))


__all__ = ["BASTION", "BASTION_KEY", "DIRECT", "GRANT_UID", "KEY", "document", "grant"]
