"""Why an object of access is invalid."""

from __future__ import annotations


class InvalidAccessObject(ValueError):
    """A field is invalid. Neither field nor message quotes a value that could be long or hostile."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        """Its path, such as ``spec.ingress[0].ipBlock.cidr``."""
        self.message = message
        """Continues a sentence that begins with the field."""


class InvalidAccessGrant(InvalidAccessObject):
    """No AccessGrant that counts."""


class InvalidAccessApproval(InvalidAccessObject):
    """No AccessApproval that counts."""


class InvalidBastion(InvalidAccessObject):
    """No Bastion that the bastion controller may make."""
