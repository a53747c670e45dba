"""STS, which verifies signatures and responds as AWS does, or as a test configures it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from aiohttp import web

from .accounts import Issuer, Session
from .signature_version_4 import Credential, Refused, Request, verify

_NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"
_METADATA: Final = {"ResponseMetadata": {"RequestId": "c9c99a1c-5763-4db3-87c4-b96d4749b0d0"}}


@dataclass(frozen=True, slots=True)
class Answer:
    """A fixed response to any request."""

    status: int = 200
    body: bytes = field(default=b"", repr=False)
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False

    @classmethod
    def error(cls, status: int, code: str) -> Answer:
        """An error response of STS."""
        document = {"Error": {"Code": code, "Message": "said so", "Type": "Sender"}, "RequestId": "1"}
        return cls(status, json.dumps(document).encode())


class STSServer:
    """One region's STS."""

    def __init__(
        self,
        region: str,
        session_of: Callable[[str], Session | None],
        issuer: Issuer,
        clock: Callable[[], datetime],
        fault: Callable[[], Answer | None],
    ) -> None:
        self._region = region
        self._session_of = session_of
        self._issuer = issuer
        self._clock = clock
        self._fault = fault
        self.seen: list[Request] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Handle a request."""
        path, _, query = request.raw_path.partition("?")
        body = await request.read()
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        came = Request(request.method, path, query, headers, body)
        self.seen.append(came)
        fault = self._fault()
        if fault is not None:
            return await respond(fault)
        json_wanted = request.headers.get("Accept") == "application/json"
        parameters = dict(parse_qsl(query or body.decode(), keep_blank_values=True))
        try:
            access_key = verify(came, self._credential, service="sts", region=self._region, now=self._clock())
            result = self._carry_out(parameters, self._session(access_key))
        except Refused as refused:
            return _error(str(refused), json_wanted)
        return _result(parameters["Action"], result, json_wanted)

    def _session(self, access_key: str) -> Session:
        session = self._session_of(access_key)
        if session is None:
            raise Refused("InvalidClientTokenId")
        if session.expires_at <= self._clock():
            raise Refused("ExpiredToken")
        return session

    def _credential(self, access_key: str) -> Credential:
        session = self._session(access_key)
        return Credential(session.secret_key, session.session_token)

    def _carry_out(self, parameters: Mapping[str, str], session: Session) -> Mapping[str, Any]:
        if parameters.get("Version") != "2011-06-15":
            raise Refused("InvalidAction")
        if parameters.get("Action") == "GetCallerIdentity":
            return {"Account": session.account, "Arn": session.arn, "UserId": session.user_id}
        if parameters.get("Action") == "GetWebIdentityToken":
            lifetime = timedelta(seconds=int(parameters.get("DurationSeconds", "300")))
            audience = parameters["Audience.member.1"]
            claims = self._issuer.claims(session, audience, self._clock(), lifetime)
            key_id = "RSA_0" if parameters["SigningAlgorithm"] == "RS256" else "EC384_0"
            expires_at = (self._clock() + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
            return {"WebIdentityToken": self._issuer.token(claims, key_id), "Expiration": expires_at}
        raise Refused("InvalidAction")


async def respond(answer: Answer) -> web.Response:
    """Send a fixed response."""
    if answer.hangs:
        await asyncio.Event().wait()
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _error(code: str, json_wanted: bool) -> web.Response:
    status = 400 if code in ("IncompleteSignature", "InvalidAction") else 403
    if json_wanted:
        document = {"Error": {"Code": code, "Message": "no", "Type": "Sender"}, "RequestId": "1"}
        return web.json_response(document, status=status)
    text = f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>'
    return web.Response(status=status, text=text, content_type="text/xml")


def _result(action: str, result: Mapping[str, str], json_wanted: bool) -> web.Response:
    if json_wanted:
        return web.json_response({f"{action}Response": {f"{action}Result": result, **_METADATA}})
    fields = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in result.items())
    text = f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{fields}</{action}Result></{action}Response>'
    return web.Response(text=text, content_type="text/xml")
