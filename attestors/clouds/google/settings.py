"""The operator's settings for Google Cloud, which several attestors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.clouds.google.provider_id import InvalidGCEName, check_project
from attestors.clouds.urls import InvalidURL, PlainHosts, check_url
from attestors.contract import InvalidSettings

COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
CREDENTIALS_FILE_SETTING: Final = "credentialsFile"
COMPUTE_ENDPOINT_SETTING: Final = "computeEndpoint"
PROXY_SETTING: Final = "proxy"
ACCESS_SETTINGS: Final = frozenset({CREDENTIALS_FILE_SETTING, COMPUTE_ENDPOINT_SETTING, PROXY_SETTING})
_MAXIMUM_PROJECTS: Final = 1024


@dataclass(frozen=True, slots=True)
class GoogleAccess:
    """Address and credentials for Compute Engine. Only the operator may set them, never a policy."""

    credentials_file: str = ""
    """Absolute path; by default the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, or the metadata server."""
    compute_url: str = COMPUTE_URL
    """Differs from the default for private endpoints."""
    proxy_url: str = field(default="", repr=False)

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> GoogleAccess:
        """Parse ``credentialsFile``, ``computeEndpoint`` and ``proxy``; each is optional.

        Raises:
            InvalidSettings: a setting is unknown or malformed.
        """
        unknown = set(settings) - ACCESS_SETTINGS
        if unknown:
            raise InvalidSettings(f"there is no setting {min(unknown)!r}, only {', '.join(sorted(ACCESS_SETTINGS))}")
        file = settings.get(CREDENTIALS_FILE_SETTING, "")
        if not isinstance(file, str) or (CREDENTIALS_FILE_SETTING in settings and not file.startswith("/")):
            raise InvalidSettings(f"{CREDENTIALS_FILE_SETTING} must be the absolute path of a file")
        return cls(
            file,
            _url(settings, COMPUTE_ENDPOINT_SETTING, COMPUTE_URL).rstrip("/"),
            _url(settings, PROXY_SETTING, "", PlainHosts.ANYWHERE),
        )


def _url(settings: Mapping[str, Any], name: str, default: str, plain_hosts: PlainHosts = PlainHosts.LOOPBACK) -> str:
    if name not in settings:
        return default
    url = settings[name]
    try:
        # No password, even for a proxy: the controller's configuration is not a Secret.
        return check_url(url if isinstance(url, str) else "", plain_hosts)
    except InvalidURL as error:
        raise InvalidSettings(f"{name}: {error}") from None


def parse_projects(projects: Any, name: str) -> frozenset[str]:
    """Parse a list of at least one project ID, under the setting ``name``.

    Raises:
        InvalidSettings: not a list, empty, too long, or an entry is not a project ID.
    """
    if not isinstance(projects, list) or not 0 < len(projects) <= _MAXIMUM_PROJECTS:
        raise InvalidSettings(f"{name} must be a list of 1 to {_MAXIMUM_PROJECTS} project IDs")
    try:
        return frozenset(check_project(one if isinstance(one, str) else "") for one in projects)
    except InvalidGCEName:
        raise InvalidSettings(
            f"{name}: a project ID is lower-case letters, digits and dashes, such as my-project; numbers are invalid"
        ) from None
