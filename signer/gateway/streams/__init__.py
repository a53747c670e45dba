"""Byte streams into a container over Kubernetes' channel protocols: a command, or a connection to a port.

The API server and the kubelet may be hostile: messages are bounded and parsed strictly, nothing is buffered without a
bound, and an end that is not stated is a failure. Sources: ``wsstream`` and ``cri-streaming`` of Kubernetes.
"""

from signer.gateway.streams.exec import ExecStream, exec_stream
from signer.gateway.streams.messages import Output, StandardStream
from signer.gateway.streams.port import PortStream, port_stream
from signer.gateway.streams.status import CommandResult, Exited, Failed
from signer.gateway.streams.stream import (
    EndOfInputUnsupported,
    InvalidCommand,
    PodName,
    PortForwardFailed,
    StreamEnded,
)

__all__ = [
    "exec_stream", "ExecStream", "Output", "StandardStream", "CommandResult", "Exited", "Failed",
    "port_stream", "PortStream", "PortForwardFailed",
    "PodName", "InvalidCommand", "StreamEnded", "EndOfInputUnsupported",
]  # fmt: skip
