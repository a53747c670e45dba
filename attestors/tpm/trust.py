"""Whom the operator trusts, and whom not any more: endorsement authorities and denied endorsement keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Protocol
from weakref import WeakValueDictionary

from attestors.tpm.endorsement import AuthoritiesUnreadable, EndorsementAuthorities, load_endorsement_authorities
from attestors.tpm.endorsement_key_sources.fingerprint import FINGERPRINT
from attestors.tpm.operator_files import Contents, OperatorFile, OperatorFileUnusable, OperatorFolder, WatchedFiles


@dataclass(frozen=True, slots=True)
class NoAuthorities:
    """The operator configured none: an EK certificate is not asked for, whose EK it is says a source."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What holds at one moment."""

    authorities: EndorsementAuthorities | NoAuthorities = NoAuthorities()
    denied: frozenset[str] = frozenset()
    """Endorsement keys that are not let in any more, ``sha256:`` and hexadecimal digits of the SubjectPublicKeyInfo."""


class OperatorTrust(Protocol):
    """Where it comes from."""

    def current(self) -> Trust:
        """As of now.

        Raises:
            OperatorFileUnusable: a file of the operator cannot be used, and the request has to wait.
        """
        ...

    def last(self) -> Trust:
        """As of the last request that was judged, without touching a file.

        Raises:
            OperatorFileUnusable: a file could not be used then.
        """
        ...


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """The operator does not say."""


@dataclass(frozen=True, slots=True)
class TrustFromFiles:
    """Trust that follows the operator's files, each time it is asked for."""

    authorities: WatchedFiles[EndorsementAuthorities] | NoAuthorities
    denied_file: WatchedFiles[frozenset[str]] | NotConfigured
    denied: frozenset[str]
    """From the settings; the file adds to them."""

    def current(self) -> Trust:
        """What the files say now.

        Raises:
            OperatorFileUnusable: one of them cannot be used.
        """
        authorities, denied = self.authorities, self.denied_file
        return Trust(
            authorities if isinstance(authorities, NoAuthorities) else authorities.current(),
            self.denied if isinstance(denied, NotConfigured) else self.denied | denied.current(),
        )

    def last(self) -> Trust:
        """What they said at the last look.

        Raises:
            OperatorFileUnusable: one of them could not be used then.
        """
        authorities, denied = self.authorities, self.denied_file
        return Trust(
            authorities if isinstance(authorities, NoAuthorities) else authorities.last(),
            self.denied if isinstance(denied, NotConfigured) else self.denied | denied.last(),
        )


_AuthoritiesKey = tuple[OperatorFolder, "OperatorFolder | NotConfigured", bool]
# All clusters of a controller share what they read: an operator may trust hundreds of authorities.
_AUTHORITIES: Final[WeakValueDictionary[_AuthoritiesKey, WatchedFiles[EndorsementAuthorities]]] = WeakValueDictionary()
_DENIED: Final[WeakValueDictionary[OperatorFile, WatchedFiles[frozenset[str]]]] = WeakValueDictionary()


def watched_authorities(
    roots: OperatorFolder, intermediates: OperatorFolder | NotConfigured, accept_expired: bool
) -> WatchedFiles[EndorsementAuthorities]:
    """The endorsement authorities of these folders, as of each moment."""

    def parse(contents: tuple[Contents, ...]) -> EndorsementAuthorities:
        by_name = [{PurePath(path).name: data for path, data in content.items()} for content in contents]
        try:
            return load_endorsement_authorities(
                roots=by_name[0], intermediates=by_name[1] if len(by_name) > 1 else {}, accept_expired=accept_expired
            )
        except AuthoritiesUnreadable as error:
            raise OperatorFileUnusable(f"endorsement authorities: {error}") from error

    folders = (roots,) if isinstance(intermediates, NotConfigured) else (roots, intermediates)
    made: WatchedFiles[EndorsementAuthorities] = WatchedFiles(folders, parse)
    return _AUTHORITIES.setdefault((roots, intermediates, accept_expired), made)


def watched_denied_keys(file: OperatorFile) -> WatchedFiles[frozenset[str]]:
    """The endorsement keys of a deny list in a file, as of each moment."""

    def parse(contents: tuple[Contents, ...]) -> frozenset[str]:
        (content,) = contents
        return parse_denied_keys(content, f"{file.setting}: {file.path}")

    made: WatchedFiles[frozenset[str]] = WatchedFiles((file,), parse)
    return _DENIED.setdefault(file, made)


def parse_denied_keys(content: Mapping[str, bytes], place: str) -> frozenset[str]:
    """Read a deny list: one fingerprint a line, comments (``#``) and blank lines.

    A file that is empty is one that is just being written: it would open the door for a moment. A comment of several
    lines, or with several fingerprints, is a list whose line ends are lost: it would open the door for good. So is one
    that ends with a fingerprint, where nothing else is in the file.

    Raises:
        OperatorFileUnusable: a line is neither, or such a comment; ``place`` begins the message.
    """
    (data,) = content.values()
    if not data:
        raise OperatorFileUnusable(f"{place}: is empty; a list of nobody has a comment at least")
    try:
        listed = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OperatorFileUnusable(f"{place}: is not UTF-8") from error
    if _is_list_in_a_comment(listed):
        raise OperatorFileUnusable(f"{place}: is one comment that ends with a fingerprint: are line ends lost?")
    denied = set()
    for number, line in enumerate(listed.split("\n"), start=1):
        text = line.strip(" \t\r")
        if FINGERPRINT.fullmatch(text):
            denied.add(text)
        elif text.startswith("#"):
            if len(FINGERPRINT.findall(text)) > 1 or len(text.splitlines()) > 1:
                raise OperatorFileUnusable(f"{place}: line {number}, a comment, is several lines: are line ends lost?")
        elif text:
            raise OperatorFileUnusable(f"{place}: line {number} is not sha256: and 64 lower-case hexadecimal digits")
    return frozenset(denied)


def _is_list_in_a_comment(listed: str) -> bool:
    """One line, a comment: words, and a fingerprint behind them. One without words is an entry that was taken out."""
    line = listed.strip()
    if "\n" in line or not line.startswith("#"):
        return False
    *words, last = line.split()
    return any(word.strip("#") for word in words) and FINGERPRINT.fullmatch(last) is not None
