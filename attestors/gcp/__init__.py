"""The GCP attestor: proves which virtual machine of Compute Engine sent a request.

The entry point names :data:`plugin`, whose import is light: the server plugin imports google-auth and requests, and the
agent plugin needs neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from attestors.contract import AttestorDescription, AttestorSettings, Freshness, ReasonExplanation, Security
from attestors.wire.evidence import Evidence

if TYPE_CHECKING:
    from attestors.clouds.urls import Proxy
    from attestors.gcp.certificate_source import CertificateSource
    from attestors.gcp.controller import GCPServerPlugin
    from attestors.gcp.node.plugin import GCPAgentPlugin

__all__ = ["GCPAttestor", "plugin"]


class GCPAttestor:
    """Implements :class:`attestors.contract.Attestor`.

    Args:
        certificates_url: URL of Google's certificates; set only in tests.
    """

    description = AttestorDescription(
        provider="gcp", security=Security.SECURE, evidence_versions=("v1",), freshness=Freshness.TIMESTAMP
    )

    def __init__(self, certificates_url: str | None = None) -> None:
        self._certificates_url = certificates_url
        # Shared by all clusters. A pending call belongs to the event loop that started it.
        self._sources: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Proxy, CertificateSource]] = (
            WeakKeyDictionary()
        )

    def server_plugin(self, settings: AttestorSettings) -> GCPServerPlugin:
        """Build the server plugin, which verifies.

        Raises:
            InvalidSettings: a setting is missing, wrong or unknown.
            ImportError: google-auth or requests is not installed (extra ``gcp``).
        """
        import google.auth.crypt  # noqa: F401  here, where a missing library is told well
        import requests  # noqa: F401

        from attestors.clouds.google import compute_engine
        from attestors.clouds.urls import Proxy
        from attestors.gcp.controller import GCPServerPlugin
        from attestors.gcp.instances import InstanceLookUp, NoLookUp
        from attestors.gcp.settings import GCPSettings, LookUp

        parsed = GCPSettings.parse(settings)
        instances = (
            InstanceLookUp(lambda: compute_engine(parsed.access))
            if isinstance(parsed.instances, LookUp)
            else NoLookUp()
        )
        proxy = Proxy(parsed.access.proxy_url)
        return GCPServerPlugin(parsed, lambda: self._certificates(proxy), instances)

    def _certificates(self, proxy: Proxy) -> CertificateSource:
        from attestors.gcp.certificate_service import certificate_service
        from attestors.gcp.certificate_source import CertificateSource
        from attestors.gcp.certificates import CERTIFICATES_URL

        sources = self._sources.setdefault(asyncio.get_running_loop(), {})
        if proxy not in sources:
            fetch = certificate_service(self._certificates_url or CERTIFICATES_URL, proxy=proxy)
            sources[proxy] = CertificateSource(fetch)
        return sources[proxy]

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """Cause and remedy of its reasons (:class:`attestors.contract.ExplainsReasons`)."""
        from attestors.gcp.reasons import EXPLANATIONS

        return EXPLANATIONS

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """The fields without the identity token's signature; any other field is replaced as a whole.

        See :class:`attestors.contract.Auditable`.
        """
        from attestors.clouds.recorded_calls import without_signature
        from attestors.contract import digest_of
        from attestors.gcp.wire import IDENTITY_TOKEN_FIELD, MAXIMUM_TOKEN_CHARACTERS

        def redacted(name: str, value: str) -> str:
            if name == IDENTITY_TOKEN_FIELD:
                return without_signature(value, maximum_characters=MAXIMUM_TOKEN_CHARACTERS)
            return digest_of(value)

        return {name: redacted(name, value) for name, value in evidence.fields.items()}

    def agent_plugin(self, settings: Mapping[str, str]) -> GCPAgentPlugin:
        """Build the agent plugin, which reads this instance's metadata server.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
        """
        from attestors.gcp.node.plugin import agent_plugin_from

        return agent_plugin_from(settings)


plugin: Final = GCPAttestor()
