"""An EC2 for tests with many instances: it implements only DescribeInstances, for any instance, and counts the calls.

Source: EC2 API Reference, DescribeInstances (version 2016-11-15), Query API.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import parse_qsl

from aiohttp import web

from tests.support.closing import ClosedAtTheEnd
from tests.support.local_servers import HOST, LocalServers

from .ec2 import ACCOUNT

_LAUNCHED: Final = "2026-01-02T02:04:05.000Z"
_INSTANCE: Final = f"""<item>
<instanceId>{{instance_id}}</instanceId>
<instanceState><code>16</code><name>running</name></instanceState>
<privateDnsName>{{instance_id}}.eu-west-1.compute.internal</privateDnsName>
<rootDeviceType>ebs</rootDeviceType>
<rootDeviceName>/dev/xvda</rootDeviceName>
<blockDeviceMapping><item>
  <deviceName>/dev/xvda</deviceName><ebs><attachTime>{_LAUNCHED}</attachTime></ebs>
</item></blockDeviceMapping>
<networkInterfaceSet><item>
  <attachment><deviceIndex>0</deviceIndex><attachTime>{_LAUNCHED}</attachTime></attachment>
  <privateIpAddressesSet><item><privateIpAddress>10.0.1.17</privateIpAddress></item></privateIpAddressesSet>
</item></networkInterfaceSet>
<metadataOptions><httpTokens>required</httpTokens><httpPutResponseHopLimit>1</httpPutResponseHopLimit></metadataOptions>
</item>"""
_ANSWER: Final = f"""<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
<requestId>1</requestId>
<reservationSet><item>
<reservationId>r-1</reservationId><ownerId>{ACCOUNT}</ownerId>
<instancesSet>{{instances}}</instancesSet>
</item></reservationSet>
</DescribeInstancesResponse>"""


class CountingEC2(ClosedAtTheEnd):
    """A context manager."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        """The instance IDs of each call."""
        self._servers = LocalServers("counting EC2")
        self._port = 0

    def __enter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/", self._answer)
        self._port = self._servers.serve(application)
        return self

    def close(self) -> None:
        """Stop listening."""
        self._servers.close()

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The endpoint, for the server plugin."""
        return MappingProxyType({"ec2": f"http://{HOST}:{self._port}"})

    async def _answer(self, request: web.Request) -> web.Response:
        parameters = dict(parse_qsl(await request.text()))
        if parameters.get("Action") != "DescribeInstances" or parameters.get("Filter.1.Name") != "instance-id":
            return web.Response(status=400)
        asked = tuple(value for name, value in parameters.items() if name.startswith("Filter.1.Value."))
        self.calls.append(asked)
        instances = "".join(_INSTANCE.format(instance_id=instance_id) for instance_id in asked)
        return web.Response(text=_ANSWER.format(instances=instances), content_type="text/xml")
