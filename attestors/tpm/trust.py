"""The operator's trust: endorsement authorities, and denied endorsement keys and chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Protocol

from attestors.tpm.endorsement import (
    CHIP_PREFIX,
    AuthoritiesUnreadable,
    EndorsementAuthorities,
    load_endorsement_authorities,
)
from attestors.tpm.endorsement_key_sources.fingerprint import FINGERPRINT
from attestors.tpm.operator_files import Contents, OperatorFile, OperatorFileUnusable, OperatorFolder, WatchedFiles

DENIED: Final = re.compile(f"(?:{CHIP_PREFIX})?{FINGERPRINT.pattern}")
"""An entry of a deny list: an endorsement key, or a chip."""


@dataclass(frozen=True, slots=True)
class NoAuthorities:
    """The operator configured no authorities: EK certificates are not required; a source must name the EK."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The operator's trust at one moment."""

    authorities: EndorsementAuthorities | NoAuthorities = NoAuthorities()
    denied: frozenset[str] = frozenset()
    """Denied endorsement keys (``sha256:`` and hexadecimal digits of the SubjectPublicKeyInfo) and chips (``chip:`` and
    a digest: :mod:`attestors.tpm.endorsement.chips`)."""


class OperatorTrust(Protocol):
    """Provides the operator's trust."""

    def current(self) -> Trust:
        """The current trust.

        Raises:
            OperatorFileUnusable: an operator's file cannot be used; the request must wait.
        """
        ...

    def last(self) -> Trust:
        """The trust as of the last verified request, without access to files.

        Raises:
            OperatorFileUnusable: a file was unusable then, or none has been read.
        """
        ...


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """The operator did not configure this."""


@dataclass(frozen=True, slots=True)
class TrustFromFiles:
    """The operator's trust, re-read from files when they change."""

    authorities: WatchedFiles[EndorsementAuthorities] | NoAuthorities
    denied_file: WatchedFiles[frozenset[str]] | NotConfigured
    denied: frozenset[str]
    """Keys and chips denied in the settings; the file adds to them."""

    def current(self) -> Trust:
        """The current trust.

        Raises:
            OperatorFileUnusable: a file cannot be used.
        """
        authorities, denied = self.authorities, self.denied_file
        return Trust(
            authorities if isinstance(authorities, NoAuthorities) else authorities.current(),
            self.denied if isinstance(denied, NotConfigured) else self.denied | denied.current(),
        )

    def last(self) -> Trust:
        """The trust as of the last read.

        Raises:
            OperatorFileUnusable: a file was unusable then, or none has been read.
        """
        authorities, denied = self.authorities, self.denied_file
        return Trust(
            authorities if isinstance(authorities, NoAuthorities) else authorities.last(),
            self.denied if isinstance(denied, NotConfigured) else self.denied | denied.last(),
        )


_AuthoritiesKey = tuple[OperatorFolder, "OperatorFolder | NotConfigured", bool]
# All clusters of a controller share the parsed files: an operator may trust hundreds of authorities. They are kept
# while no cluster uses them: a tenant may change its policy many times a second, which makes its attestors anew.
# There are as many entries as the operator's settings name.
_AUTHORITIES: Final[dict[_AuthoritiesKey, WatchedFiles[EndorsementAuthorities]]] = {}
_DENIED: Final[dict[OperatorFile, WatchedFiles[frozenset[str]]]] = {}


def watched_authorities(
    roots: OperatorFolder, intermediates: OperatorFolder | NotConfigured, accept_expired: bool
) -> WatchedFiles[EndorsementAuthorities]:
    """The endorsement authorities in these folders, re-read when they change."""

    def parse(contents: tuple[Contents, ...]) -> EndorsementAuthorities:
        by_name = [{PurePath(path).name: data for path, data in content.items()} for content in contents]
        try:
            return load_endorsement_authorities(
                roots=by_name[0], intermediates=by_name[1] if len(by_name) > 1 else {}, accept_expired=accept_expired
            )
        except AuthoritiesUnreadable as error:
            raise OperatorFileUnusable(f"endorsement authorities: {error}") from error

    folders = (roots,) if isinstance(intermediates, NotConfigured) else (roots, intermediates)
    watched: WatchedFiles[EndorsementAuthorities] = WatchedFiles(folders, parse)
    return _AUTHORITIES.setdefault((roots, intermediates, accept_expired), watched)


def watched_denied_keys(file: OperatorFile) -> WatchedFiles[frozenset[str]]:
    """The keys and chips of a deny list file, re-read when it changes."""

    def parse(contents: tuple[Contents, ...]) -> frozenset[str]:
        (content,) = contents
        return parse_denied_keys(content, f"{file.setting}: {file.path}")

    watched: WatchedFiles[frozenset[str]] = WatchedFiles((file,), parse)
    return _DENIED.setdefault(file, watched)


def parse_denied_keys(content: Mapping[str, bytes], place: str) -> frozenset[str]:
    """Parse a deny list: one fingerprint or name of a chip per line, comments (``#``) and blank lines.

    Content that looks truncated is an error, because it would allow denied keys. An empty file is one that is being
    written at this moment. A comment of several lines, or with several fingerprints, is a list that lost its line ends.
    So is a file of comments alone, one of which ends with a fingerprint: a list in paragraphs, each of which was folded
    into its own first line.

    Raises:
        OperatorFileUnusable: a line is malformed, or one of the cases above; ``place`` begins the message.
    """
    (data,) = content.values()
    if not data:
        raise OperatorFileUnusable(f"{place}: is empty; a list that denies no key needs at least a comment")
    try:
        listed = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OperatorFileUnusable(f"{place}: is not UTF-8") from error
    denied, folded = set(), 0
    for number, line in enumerate(listed.split("\n"), start=1):
        text = line.strip(" \t\r")
        if DENIED.fullmatch(text):
            denied.add(text)
        elif text.startswith("#"):
            if len(FINGERPRINT.findall(text)) > 1 or len(text.splitlines()) > 1:
                raise OperatorFileUnusable(f"{place}: line {number}, a comment, is several lines: are line ends lost?")
            folded = folded or (number if _ends_with_an_entry(text) else 0)
        elif text:
            raise OperatorFileUnusable(
                f"{place}: line {number} is neither sha256: nor chip:sha256: and 64 lower-case hexadecimal digits"
            )
    if folded and not denied:
        raise OperatorFileUnusable(
            f"{place}: has nothing but comments, and line {folded} ends with a fingerprint: are line ends lost?"
        )
    return frozenset(denied)


def _ends_with_an_entry(comment: str) -> bool:
    """Whether words and then an entry are in the comment. Without words, it is a removed entry."""
    *words, last = comment.split()
    return any(word.strip("#") for word in words) and DENIED.fullmatch(last) is not None
