"""The AWS attestor: which EC2 instance is asking.

The entry point names :data:`plugin`, which stays light: boto3 and botocore are imported by what calls AWS, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attestors.contract import AttestorDescription, AttestorSettings, ControllerHalf, InvalidSettings, Security

if TYPE_CHECKING:
    from attestors.aws.node.half import AWSNodeHalf

__all__ = ["plugin"]


class AWSAttestor:
    """Implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(
        provider="aws", security=Security.SECURE, evidence_versions=("v1",), renews=True, serves=True
    )

    def controller_half(self, settings: AttestorSettings) -> ControllerHalf:
        """The half that verifies.

        Raises:
            InvalidSettings: always, as long as there is no controller half.
        """
        raise InvalidSettings("the AWS attestor has no controller half yet")

    def node_half(self, settings: Mapping[str, str]) -> AWSNodeHalf:
        """The half that asks this instance's metadata service, and signs with its role's credentials.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
            ImportError: botocore is not installed (extra ``aws``).
        """
        from attestors.aws.node.half import node_half_from

        return node_half_from(settings)


plugin: Final = AWSAttestor()
