"""The management cluster, through ``kubectl``."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from node_access.client.errors import AccessNotServed, Conflict, Forbidden, Invalid, ManagementFailed, NotFound
from node_access.client.grants import GRANTS, GROUP, VERSION, GrantKey
from node_access.client.manifests import JsonObject, Person
from node_access.client.programs import Finished, ProgramFailed, run_bounded
from node_access.client.words import printable

MAXIMUM_OBJECT_BYTES: Final = 4 * 1024 * 1024
MAXIMUM_LIST_BYTES: Final = 64 * 1024 * 1024
_SECONDS: Final = 120.0
_REQUEST_SECONDS: Final = 30
_SERVER: Final = re.compile(r"^Error from server \(([A-Za-z]+)\): ", re.ASCII | re.MULTILINE)
_LOG_LINE: Final = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ ", re.ASCII)
"""A line of kubectl's log (klog): it repeats one error for each attempt, before the error for people."""
_INVALID: Final = re.compile(r"^The [A-Za-z]+ \"[^\"\n]*\" is invalid: ", re.MULTILINE)
_NOT_SERVED: Final = re.compile(
    rf'(?:the server doesn\'t have a resource type "access[a-z]+"'
    rf'|no matches for kind "Access[A-Za-z]+" in version "{re.escape(GROUP)}/'
    rf"|^Error from server \(NotFound\): the server could not find the requested resource)",
    re.MULTILINE,
)
"""What kubectl prints without the definitions: where it looks them up, and where it is given a path (``--raw``)."""
_CLASSES: Final[dict[str, type[ManagementFailed]]] = {
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "BadRequest": Invalid,
    "Conflict": Conflict,
    "AlreadyExists": Conflict,
}
_ERROR_BEGINNINGS: Final = ("Error", "error", "The ", "Unable to connect", "E0", "W0", "I0")
_MAXIMUM_GROUPS: Final = 1024


@dataclass(frozen=True, slots=True)
class KubectlSettings:
    """Which kubectl, and what it is given. Empty texts leave the choice to kubectl."""

    program: str = "kubectl"
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    environment: str = ""
    """``KUBECONFIG``, as it was when the grant was made."""


class Kubectl:
    """Runs kubectl. Every method raises ``ManagementFailed`` or one of its subclasses."""

    def __init__(
        self,
        settings: KubectlSettings,
        *,
        terminal: bool = False,
        on_login: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``on_login`` gets the lines that kubectl prints while a person must log in."""
        self.settings = settings
        self._terminal = terminal
        self._on_login = on_login

    def pinned(self) -> Kubectl:
        """The same with the context that counts now written out: a person may choose another one meanwhile."""
        if self.settings.context:
            return self
        found = self._run(["config", "current-context"], maximum=4096, accepted=(0, 1))
        context = found.output.decode("utf-8", "replace").strip()
        if found.code or not context.isprintable() or not context:
            return self
        return Kubectl(replace(self.settings, context=context), terminal=self._terminal, on_login=self._on_login)

    def in_namespace(self, namespace: str) -> Kubectl:
        """The same for another namespace."""
        settings = replace(self.settings, namespace=namespace)
        return Kubectl(settings, terminal=self._terminal, on_login=self._on_login)

    def get_grant(self, name: str) -> JsonObject:
        """An AccessGrant."""
        return self._object(["get", GRANTS, "-o", "json", "--", name])

    def list_grants(self) -> list[JsonObject]:
        """The AccessGrants of the namespace."""
        document = self._object(["get", GRANTS, "-o", "json"], maximum=MAXIMUM_LIST_BYTES)
        items = document.get("items")
        if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
            raise ManagementFailed("kubectl printed no list")
        return items

    def create(self, manifest: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create an object. ``dry_run``: the API server only says what it would store."""
        words = ["create", "-f", "-", "-o", "json", "--validate=false", *(["--dry-run=server"] if dry_run else [])]
        return self._object(words, standard_input=json.dumps(manifest).encode("utf-8"))

    def patch_grant(self, name: str, patch: JsonObject) -> JsonObject:
        """Apply a merge patch to an AccessGrant."""
        return self._object(["patch", GRANTS, "--type=merge", f"--patch={json.dumps(patch)}", "-o", "json", "--", name])

    def delete_grant(self, key: GrantKey) -> None:
        """Ask for the deletion of that very AccessGrant, without waiting for its end.

        The API server compares the UID (``metav1.Preconditions``), which ``kubectl delete`` sends only with ``--raw``.

        Raises:
            NotFound: it is gone, even if another one has its name.
        """
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/accessgrants/{key.name}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": key.uid}}
        words = ["delete", f"--raw={path}", "-f", "-"]
        try:
            self._run(words, standard_input=json.dumps(options).encode("utf-8"), maximum=MAXIMUM_OBJECT_BYTES)
        except Conflict as error:
            raise NotFound("another grant has its name") from error

    def who_am_i(self) -> Person:
        """Who the API server says that this is (API servers from 1.28 on)."""
        status = self._object(["auth", "whoami", "-o", "json"]).get("status")
        user = status.get("userInfo") if isinstance(status, dict) else None
        if not isinstance(user, dict):
            raise ManagementFailed("kubectl auth whoami printed no user")
        username, uid, groups = user.get("username"), user.get("uid", ""), user.get("groups", [])
        if not (
            isinstance(username, str)
            and username
            and isinstance(uid, str)
            and isinstance(groups, list)
            and len(groups) <= _MAXIMUM_GROUPS
            and all(isinstance(one, str) for one in groups)
        ):
            raise ManagementFailed("kubectl auth whoami printed a user of another form")
        return Person(username, uid, tuple(groups))

    def may_i(self, verb: str, resource: str, name: str = "") -> bool:
        """Whether the API server would allow it in the namespace.

        ``kubectl auth can-i`` looks for the resource, and asks for another one if the API server does not serve it, as
        it does not serve ``logins``.
        """
        wanted = {"group": GROUP, "resource": resource, "verb": verb, "name": name, "namespace": self.namespace()}
        review = self.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {field: value for field, value in wanted.items() if value}},
            }
        )
        status = review.get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    def get_policy_conditions(self, cluster: str) -> JsonObject:
        """The NodeAttestationPolicy of a Cluster, which has its name."""
        return self._object(
            ["get", "nodeattestationpolicies.attestation.cluster.x-k8s.io", "-o", "json", "--", cluster]
        )

    def version(self) -> JsonObject:
        """kubectl's own version."""
        return self._object(["version", "--client", "-o", "json"])

    def namespace(self) -> str:
        """The one that counts: the given one, else the context's."""
        if self.settings.namespace:
            return self.settings.namespace
        try:
            found = self._run(["config", "view", "--minify", "-o", "jsonpath={..namespace}"], maximum=4096)
        except ManagementFailed as error:
            raise ManagementFailed(
                f"the kubeconfig does not say which namespace counts, so give -n: {error}"
            ) from error
        return found.output.decode("utf-8", "replace").strip() or "default"

    def _object(
        self, words: Sequence[str], *, standard_input: bytes = b"", maximum: int = MAXIMUM_OBJECT_BYTES
    ) -> JsonObject:
        found = self._run(words, standard_input=standard_input, maximum=maximum)
        try:
            document = json.loads(found.output)
        except (ValueError, RecursionError):
            raise ManagementFailed("kubectl printed no JSON") from None
        if not isinstance(document, dict):
            raise ManagementFailed("kubectl printed no object")
        return document

    def _run(
        self, words: Sequence[str], *, maximum: int, standard_input: bytes = b"", accepted: Sequence[int] = (0,)
    ) -> Finished:
        program = shutil.which(self.settings.program)
        if program is None:
            shown = printable(self.settings.program)
            raise ManagementFailed(f"{shown} is not installed, or not in PATH: install it, or name it by --kubectl")
        environment = dict(os.environ)
        if self.settings.environment:
            environment["KUBECONFIG"] = self.settings.environment
        try:
            found = run_bounded(
                [program, *self._options(), *words],
                maximum_bytes=maximum,
                seconds=_SECONDS,
                standard_input=standard_input,
                terminal=self._terminal,
                environment=environment,
                on_error_line=self._on_error_line,
            )
        except ProgramFailed as error:
            raise ManagementFailed(str(error)) from error
        if found.code not in accepted:
            raise self._failed(found)
        return found

    def _options(self) -> list[str]:
        one = self.settings
        given = {"kubeconfig": one.kubeconfig, "context": one.context, "namespace": one.namespace}
        return [
            f"--request-timeout={_REQUEST_SECONDS}s",
            *(f"--{name}={value}" for name, value in given.items() if value),
        ]

    def _on_error_line(self, line: str) -> None:
        if line.strip() and not line.startswith(_ERROR_BEGINNINGS) and not _LOG_LINE.match(line):
            self._on_login(printable(line))

    @staticmethod
    def _failed(found: Finished) -> ManagementFailed:
        """The error that kubectl prints, by its class."""
        if _NOT_SERVED.search(found.error):
            return AccessNotServed(
                "access is off in this management cluster, which serves no AccessGrants: ask its operator to switch it "
                "on, or name another cluster by --context or --kubeconfig"
            )
        lines = found.error.strip().splitlines()
        said = [line for line in lines if not _LOG_LINE.match(line)] or lines[-1:]
        message = "\n".join(said) or f"it ended with exit code {found.code}"
        server = _SERVER.search(found.error)
        if server is not None and server[1] == "NotFound":
            kind = NotFound if re.search(rf'{re.escape(GROUP)} "[^"\n]*" not found', found.error) else ManagementFailed
        elif server is not None:
            kind = _CLASSES.get(server[1], ManagementFailed)
        else:
            kind = Invalid if _INVALID.search(found.error) else ManagementFailed
        return kind(f"kubectl: {message}")
