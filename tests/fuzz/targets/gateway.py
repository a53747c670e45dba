"""What the gateway reads: messages of streams from API servers, which may be hostile, and names of persons."""

from __future__ import annotations

from typing import Final

from signer.gateway.person import InvalidPerson, Person
from signer.gateway.streams.messages import (
    Empty,
    ExecMessage,
    Output,
    PortData,
    PortError,
    PortMessage,
    PortParser,
    ProtocolViolation,
    parse_exec_message,
)
from signer.gateway.streams.status import CommandResult, Exited, parse_status
from tests.fuzz.target import Shape, Target, require, unicode_of


def _exec_message(data: bytes) -> ExecMessage:
    message = parse_exec_message(data)
    if isinstance(message, Output):
        require(bytes((message.stream.value,)) + message.data == data, "output is lost or invented")
    return message


def _port_messages(data: bytes) -> list[PortMessage]:
    """Each message is a length of one byte and as many bytes; the port is 8080."""
    parser, messages, passed = PortParser(8080), [], 0
    while data:
        piece, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        messages.append(parser.parse(piece))
        passed += isinstance(messages[-1], PortData)
        if isinstance(messages[-1], PortError):
            text = messages[-1].message
            require(text.isascii() and text.isprintable() and len(text) <= 1024, "an error controls the terminal")
    require(not passed or isinstance(messages[0], Empty), "data comes before the port")
    return messages


def _status(data: bytes) -> CommandResult:
    result = parse_status(data)
    if isinstance(result, Exited):
        require(0 <= result.code <= 255, "no exit code of a process")
        require(result.code != 0 or b"Success" in data, "zero without Success")
    else:
        text = result.message
        require(text.isascii() and text.isprintable() and 0 < len(text) <= 1024, "a failure controls the terminal")
    return result


def _person(data: bytes) -> Person:
    creator = unicode_of(data)
    person = Person.of_creator(creator)
    require(person.username == f"node-access:{creator}", "another name")
    for name, value in person.fields:
        require(value.isascii() and value.isprintable() and value == value.strip(), f"no value of {name}")
    return person


TARGETS: Final = (
    Target("gateway-exec-message", _exec_message, (ProtocolViolation,)),
    Target("gateway-port-messages", _port_messages, (ProtocolViolation,)),
    Target("gateway-status", _status, shape=Shape.JSON),
    Target("gateway-person", _person, (InvalidPerson,)),
)
