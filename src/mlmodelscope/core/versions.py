"""Turns the text of a version constraint into ranges, and says which PEP 440 versions lie inside them.

The language is npm's, the order of versions is PEP 440's; `docs/reference/version-constraints.md` holds the rules and a
table of cases that is run as a test. Three rules decide what ordering alone does not:

- A pre-release is inside a range only if the constraint names a pre-release of the same release (npm).
- A local build label (`+cpu`) counts only against a bound that names one (PEP 440).
- A post-release is a version of its own: ranges admit it, an exact version does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from mlmodelscope.core.errors import ConstraintError

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["VersionConstraint", "VersionRange", "both", "newest", "parse_constraint", "parse_version"]

# A place on the line of versions, as a tuple that sorts: (-1,) is before all of them, (1,) after, and between them
# (0, public version, class, full version, side). Class 0 is before a public version and its local builds, class 2 after
# them all; class 1 is a version itself (side 1), or beside a bound that names a local build.
_Point = tuple[Any, ...]

_SIGNS = {"≥": ">=", "≤": "<=", "≠": "!=", "==": "=", "~>": "~", "": "="}
_TOKEN = re.compile(
    r"\s*(?:(?P<bar>\|\|)|(?P<comma>,)|(?P<sign><=|>=|==|!=|~=|~>|[<>=^~≥≤≠])"
    r"|(?P<word>(?:[0-9A-Za-z.*+_-]|!(?!=))+)|(?P<other>\S))"
)
_NUMBERS = re.compile(r"[vV]?(?:(?P<epoch>\d+)!)?(?P<parts>(?:\d+|[xX*])(?:\.(?:\d+|[xX*]))*)", re.ASCII)
# Far beyond any range a person writes, and short of the numbers that Python refuses to print.
_LONGEST = 1000
_EXAMPLES = "for example ^1.2, ~1.4, 1.12.x, >=1.12 <2, 1.2 - 1.5, or * for any version"


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version:
    """The PEP 440 version; raises ConstraintError for any other text. `1.0` equals `1.0.0`; `1.10` is not `1.1`."""
    # 5 ms, which a command that meets no version need not pay
    from packaging.version import Version

    try:
        return Version(text)
    except ValueError as error:  # InvalidVersion, and Python's own limit on the digits of one number
        raise ConstraintError(
            f"{_shorten(text)} is not a version",
            hint="versions follow PEP 440, for example 1.12.0, 2.7.post2, 2.0rc1 or 2.1.0+cpu",
            version=text,
        ) from error


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions between two bounds; None is no bound. A bound that is a pre-release admits those of its release."""

    low: str | None = None
    high: str | None = None
    low_included: bool = True
    high_included: bool = False

    def matches(self, version: str) -> bool:
        found = parse_version(version)
        if not _low_point(self) < (0, _public(found), 1, found, 1) < _high_point(self):
            return False
        return not found.is_prerelease or _release_of(found) in _named(self)

    def __str__(self) -> str:
        if self.low is not None and self.low == self.high:
            return f"={self.low}"
        low = "" if self.low is None else (">=" if self.low_included else ">") + self.low
        high = "" if self.high is None else ("<=" if self.high_included else "<") + self.high
        return f"{low} {high}".strip() or "*"


@dataclass(frozen=True, slots=True)
class VersionConstraint:
    """Alternatives of ranges, in order and merged where they touch. Equal if the ranges are: `text` is as written.

    `str()` is the canonical text, which parses to an equal value. `is_empty` says that the bounds exclude each other.
    """

    text: str = field(compare=False)
    ranges: tuple[VersionRange, ...]

    @property
    def is_empty(self) -> bool:
        return not self.ranges

    def matches(self, version: str) -> bool:
        """Raises ConstraintError if `version` is not a PEP 440 version."""
        parse_version(version)
        return any(one.matches(version) for one in self.ranges)

    def __str__(self) -> str:
        return " || ".join(str(one) for one in self.ranges) or _NOTHING


# No version at all: below 0 there are only pre-releases of 0, which this does not name.
_NOTHING = "<0.0.0"


def both(first: VersionConstraint, second: VersionConstraint) -> VersionConstraint:
    """The constraint that matches exactly the versions both match."""
    pairs = ((a, b, _named(a) & _named(b)) for a in first.ranges for b in second.ranges)
    ranges = _merged(one for a, b, named in pairs for one in _settled(_crossed(a, b), named))
    met = VersionConstraint("", ranges)
    return VersionConstraint(str(met), ranges)


def newest(versions: Iterable[str], constraint: VersionConstraint) -> str | None:
    """The newest version that matches, as it was written; None if none does. Text that is no version is passed over."""
    readable = [text for text in versions if _is_version(text)]
    return max(filter(constraint.matches, readable), key=lambda text: (parse_version(text), text), default=None)


def parse_constraint(text: str) -> VersionConstraint:
    """Raises ConstraintError with the fields `constraint`, `found` and `position` (in characters, from 1).

    A contradiction (`>2 <1`) is no error here: it parses to a constraint that `is_empty`.
    """
    if text.strip().lower() in ("", "latest"):
        return VersionConstraint(text, (VersionRange(),))
    if len(text) > _LONGEST:
        raise ConstraintError(
            f"the version constraint {_shorten(text)} has {len(text)} characters; at most {_LONGEST} are read",
            hint=f"write the range in a shorter way, {_EXAMPLES}",
            constraint=text[:_LONGEST],
            found="",
            position=_LONGEST + 1,
        )
    reader = _Reader(text)
    ranges: list[VersionRange] = []
    while True:
        ranges += reader.alternative()
        if not reader.take("bar"):
            return VersionConstraint(text, _merged(ranges))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


@dataclass(frozen=True, slots=True)
class _Term:
    """A version as a constraint writes it. `numbers` are the leading ones; a partial one has others to be filled in."""

    numbers: tuple[int, ...]
    epoch: int
    is_partial: bool
    exact: str | None = None

    @property
    def low(self) -> str:
        return self.exact or _write(self.numbers, self.epoch)

    def below(self, index: int) -> str:
        """Before every version, pre-releases too, whose number at `index` is one higher."""
        return _write((*self.numbers[:index], self.numbers[index] + 1), self.epoch) + ".dev0"

    @property
    def named(self) -> frozenset[Version]:
        version = parse_version(self.low)
        return frozenset([_release_of(version)]) if version.is_prerelease else frozenset()


class _Reader:
    """Reads one constraint from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def take(self, kind: str) -> _Token | None:
        token = self._tokens[self._next]
        if token.kind != kind:
            return None
        self._next += 1
        return token

    def alternative(self) -> list[VersionRange]:
        """Comparisons that must all hold, up to `||` or the end."""
        ranges, named = self._comparison()
        while (comma := self.take("comma")) or self._tokens[self._next].kind not in ("bar", "end"):
            if comma and self._tokens[self._next].kind in ("comma", "bar", "end"):
                self._fail(comma, "no comparison follows", "remove it, or write what should follow")
            more, also_named = self._comparison()
            named |= also_named
            ranges = [one for a in ranges for b in more for one in [_crossed(a, b)] if not _is_void(one)]
        return [one for range_ in ranges for one in _settled(range_, named)]

    def _comparison(self) -> tuple[list[VersionRange], frozenset[Version]]:
        """The ranges of one comparison, and the releases whose pre-releases it names."""
        sign = self.take("sign")
        word = self.take("word")
        if word is None:
            self._unexpected(sign)
        term = self._term(word)
        if sign is None and self._tokens[self._next].text == "-":
            hyphen = self.take("word")
            last = self.take("word")
            if hyphen is None or last is None:
                self._fail(hyphen or word, "no version follows", "write both ends of the range, such as 1.2 - 1.5")
            end = self._term(last)
            return [_crossed(*_compare(">=", term), *_compare("<=", end))], term.named | end.named
        symbol = sign.text if sign else ""
        symbol = _SIGNS.get(symbol, symbol)
        if symbol == "~=" and (len(term.numbers) < 2 or (term.is_partial and word.text[-1] in "xX*")):
            self._fail(word, "'~=' needs two numbers or more and no wildcard", "write ~=1.4, or ~1 for 1.x")
        return _compare(symbol, term), frozenset() if symbol == "!=" else term.named

    def _term(self, word: _Token) -> _Term:
        if word.text.lower() == "latest":
            return _Term((), 0, is_partial=True)
        numbers = _NUMBERS.fullmatch(word.text)
        if numbers is None:
            return self._full_term(word)
        parts = numbers["parts"].split(".")
        leading = [part for part in parts if part.isdecimal()]
        if parts[: len(leading)] != leading:
            self._fail(word, "a number follows a wildcard", "write 1.x or 1.2.x, not 1.x.3")
        if len(leading) == len(parts) >= 3:
            return self._full_term(word)
        epoch = numbers["epoch"] or "0"
        self._readable(word, f"{epoch}!{'.'.join(leading) or '0'}")
        return _Term(tuple(map(int, leading)), int(epoch), is_partial=True)

    def _full_term(self, word: _Token) -> _Term:
        version = self._readable(word, word.text)
        return _Term(version.release, version.epoch, is_partial=False, exact=_canonical(version))

    def _readable(self, word: _Token, version: str) -> Version:
        try:
            return parse_version(version)
        except ConstraintError:
            hint = _EXAMPLES
            ends = word.text.split("-")
            if len(ends) == 2 and all(_is_version(end) for end in ends):
                hint = f"put spaces round the hyphen of a range: {ends[0]} - {ends[1]}"
            self._fail(word, "that is not a version", hint)

    def _unexpected(self, sign: _Token | None) -> NoReturn:
        token = self._tokens[self._next]
        if sign and token.kind == "sign":
            self._fail(
                token, f"a second sign follows {sign.text!r}", "write one sign before each version, such as >=1.2"
            )
        if sign:
            self._fail(sign, "no version follows", f"write the version after it, {_EXAMPLES}")
        hints = {"|": "write || between alternatives", "&": "write a space, a comma or 'and' between comparisons"}
        self._fail(token, "a comparison should stand here", hints.get(token.text, _EXAMPLES))

    def _fail(self, token: _Token, problem: str, hint: str) -> NoReturn:
        found = _shorten(token.text) if token.text else "the end"
        raise ConstraintError(
            f"the version constraint {_shorten(self._text)} is not understood at character {token.position} "
            f"({found}): {problem}",
            hint=hint,
            constraint=self._text,
            found=token.text,
            position=token.position,
        )


def _tokens(text: str) -> Iterator[_Token]:
    words = {"and": "comma", "or": "bar"}
    for match in _TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup or "other"
        found = match[kind]
        yield _Token(words.get(found.lower(), kind), found, match.start(kind) + 1)
    yield _Token("end", "", len(text.rstrip()) + 1)


def _compare(symbol: str, term: _Term) -> list[VersionRange]:
    """The ranges of one comparison, before the rule about pre-releases; a partial version is filled as npm does."""
    if not term.numbers:
        return [] if symbol in ("<", ">", "!=") else [VersionRange()]
    low, last = term.low, len(term.numbers) - 1
    if symbol in ("^", "~", "~="):
        first_not_zero = next((index for index, number in enumerate(term.numbers) if number), last)
        index = {"^": first_not_zero, "~": min(1, last), "~=": last - 1}[symbol]
        return [VersionRange(low, term.below(index))]
    if not term.is_partial:
        return {
            "=": [VersionRange(low, low, high_included=True)],
            "!=": [VersionRange(high=low), VersionRange(low, low_included=False)],
            ">": [VersionRange(low, low_included=False)],
            ">=": [VersionRange(low)],
            "<": [VersionRange(high=low)],
            "<=": [VersionRange(high=low, high_included=True)],
        }[symbol]
    start, end = low + ".dev0", term.below(last)
    return {
        "=": [VersionRange(low, end)],
        "!=": [VersionRange(high=start), VersionRange(end)],
        ">": [VersionRange(end)],
        ">=": [VersionRange(low)],
        "<": [VersionRange(high=start)],
        "<=": [VersionRange(high=end)],
    }[symbol]


def _settled(one: VersionRange, named: frozenset[Version]) -> list[VersionRange]:
    """The range with bounds that say by themselves which pre-releases it admits; no range if it holds nothing.

    Between a pre-release and its release lie only pre-releases of that release. So a bound whose pre-releases are not
    `named` can move up to the release, and a release whose pre-releases are admitted always shows in a bound.
    """
    if _is_void(one):
        return []
    low, low_included, high, high_included = one.low, one.low_included, one.high, one.high_included
    if low is not None and _is_prerelease(low) and _release_of(parse_version(low)) not in named:
        low, low_included = _canonical(_release_of(parse_version(low))), True
    if high is not None and _is_prerelease(high):
        release = _release_of(parse_version(high))
        is_first = not high_included and parse_version(high) == parse_version(f"{release}.dev0")
        if is_first or release not in named:
            high, high_included = _canonical(release), False
    settled = VersionRange(low, high, low_included, high_included)
    is_below_all = str(settled) == _NOTHING
    return [] if is_below_all or _is_void(settled) else [settled]


def _crossed(a: VersionRange, b: VersionRange) -> VersionRange:
    low, high = max(a, b, key=_low_point), min(a, b, key=_high_point)
    return VersionRange(low.low, high.high, low.low_included, high.high_included)


def _merged(ranges: Iterable[VersionRange]) -> tuple[VersionRange, ...]:
    """In order, neighbours joined, but not where a bound that admits pre-releases would be lost."""
    merged: list[VersionRange] = []
    for one in sorted(set(ranges), key=lambda each: (_low_point(each), _high_point(each))):
        last = merged[-1] if merged else None
        if last is None or _low_point(one) > _high_point(last) or _is_prerelease(last.high) or _is_prerelease(one.low):
            merged.append(one)
        elif _high_point(one) >= _high_point(last):
            merged[-1] = VersionRange(last.low, one.high, last.low_included, one.high_included)
        elif _is_prerelease(one.high):
            merged.append(one)
    return tuple(merged)


def _is_void(one: VersionRange) -> bool:
    return _low_point(one) >= _high_point(one)


def _named(one: VersionRange) -> frozenset[Version]:
    """The releases whose pre-releases the range admits."""
    bounds = [parse_version(bound) for bound in (one.low, one.high) if bound is not None]
    return frozenset(_release_of(bound) for bound in bounds if bound.is_prerelease)


def _low_point(one: VersionRange) -> _Point:
    return (-1,) if one.low is None else _point(one.low, not one.low_included)


def _high_point(one: VersionRange) -> _Point:
    return (1,) if one.high is None else _point(one.high, one.high_included)


@lru_cache(maxsize=4096)
def _point(bound: str, is_after: bool) -> _Point:
    version = parse_version(bound)
    if version.local is not None:
        return 0, _public(version), 1, version, 2 if is_after else 0
    return 0, version, 2 if is_after else 0, version, 0


def _is_prerelease(bound: str | None) -> bool:
    return bound is not None and parse_version(bound).is_prerelease


def _public(version: Version) -> Version:
    return parse_version(version.public)


def _release_of(version: Version) -> Version:
    """What a pre-release leads up to: 2.0 for 2.0rc1 and 2.0.dev3, 2.0.post1 for 2.0.post1.dev3."""
    is_of_post = version.pre is None and version.post is not None
    return parse_version(f"{version.base_version}.post{version.post}" if is_of_post else version.base_version)


def _canonical(version: Version) -> str:
    """At least three numbers, so that the text is never read as a partial version; no zeros after the third."""
    numbers = list(version.release)
    while len(numbers) > 3 and numbers[-1] == 0:
        numbers.pop()
    suffix = str(version).removeprefix(version.base_version)
    return _write(tuple(numbers), version.epoch) + suffix


def _write(numbers: tuple[int, ...], epoch: int) -> str:
    filled = (*numbers, 0, 0, 0)[: max(3, len(numbers))]
    return (f"{epoch}!" if epoch else "") + ".".join(map(str, filled))


def _is_version(text: str) -> bool:
    try:
        parse_version(text)
    except ConstraintError:
        return False
    return True


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
