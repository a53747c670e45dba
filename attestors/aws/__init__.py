"""The AWS attestor: proves which EC2 instance sent a request.

The entry point names :data:`plugin`, whose import is light: only the code that calls AWS imports boto3 and botocore.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attestors.contract import AttestorDescription, AttestorSettings, Freshness, ReasonExplanation, Security
from attestors.wire.evidence import Evidence

if TYPE_CHECKING:
    from attestors.aws.controller import AWSServerPlugin
    from attestors.aws.node.plugin import AWSAgentPlugin
    from attestors.aws.services import AWSServices, Elsewhere
    from attestors.aws.settings import AWSSettings

__all__ = ["plugin"]


class AWSAttestor:
    """Implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(
        provider="aws", security=Security.SECURE, evidence_versions=("v1",), freshness=Freshness.TIMESTAMP
    )

    def __init__(self, elsewhere: Elsewhere | None = None) -> None:
        """``elsewhere`` redirects calls, for tests and the demo; :data:`plugin` calls AWS."""
        self._elsewhere = elsewhere
        self._services: dict[tuple[tuple[str, str], ...], AWSServices] = {}

    def server_plugin(self, settings: AttestorSettings) -> AWSServerPlugin:
        """Build the server plugin, which verifies.

        Raises:
            InvalidSettings: a setting is wrong, unknown or missing.
            ImportError: botocore is not installed (extra ``aws``), and the settings require calls to EC2 or IAM.
        """
        from attestors.aws.controller import AWSServerPlugin
        from attestors.aws.settings import AWSSettings

        parsed = AWSSettings.parse(settings)
        # botocore is slow to import, so the first call imports it in a thread. A missing botocore is reported now.
        if parsed.asks_aws_with_credentials and importlib.util.find_spec("botocore") is None:
            raise ImportError("the AWS attestor needs botocore to ask EC2 and IAM", name="botocore")
        return AWSServerPlugin(parsed, self._services_for(parsed))

    def _services_for(self, settings: AWSSettings) -> AWSServices:
        """One instance for all clusters of an operator, which share cached EC2 answers and the rate limit."""
        from attestors.aws.services import NOWHERE_ELSE, make_services

        key = tuple(sorted(settings.account_roles.items()))
        if key not in self._services:
            self._services[key] = make_services(settings.account_roles, elsewhere=self._elsewhere or NOWHERE_ELSE)
        return self._services[key]

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """Cause and remedy of its reasons (:class:`attestors.contract.ExplainsReasons`)."""
        from attestors.aws.reasons import EXPLANATIONS

        return EXPLANATIONS

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """The fields without the presigned request's session token and signature, and without the token's signature.

        See :class:`attestors.contract.Auditable`.
        """
        from attestors.aws.redaction import redacted

        return {name: redacted(name, value) for name, value in evidence.fields.items()}

    def agent_plugin(self, settings: Mapping[str, str]) -> AWSAgentPlugin:
        """Build the agent plugin, which reads the metadata service and signs with the instance role's credentials.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
            ImportError: botocore is not installed (extra ``aws``).
        """
        from attestors.aws.node.plugin import agent_plugin_from

        return agent_plugin_from(settings)


plugin: Final = AWSAttestor()
