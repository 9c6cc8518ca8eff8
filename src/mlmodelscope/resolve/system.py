"""Turns a text of system requirements (`memory>=8GB, arch=amd64`) into clauses, and says which a machine does not meet.

`docs/reference/system-requirements.md` holds the language and a table of cases that is run as a test. A fact that a
machine does not know meets no clause, not even a negative one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, NoReturn

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.system import SystemFacts

__all__ = ["KEYS", "Clause", "SystemRequirements", "format_size", "parse_requirements", "parse_size"]

_EXAMPLE = 'for example memory>=8GB, arch=amd64, cpus>=4, cpu~"EPYC", feature=avx2'
_SIGNS = {"==": "=", "≥": ">=", "≤": "<=", "≠": "!="}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "!=": operator.ne,
}
_COMPARISON_WORDS = {
    ">=": "at least ",
    "<=": "at most ",
    ">": "more than ",
    "<": "less than ",
    "=": "exactly ",
    "!=": "other than ",
}
_ORDERED = tuple(_COMPARISONS)
_EQUAL = ("=", "!=")
_UNITS = {"B": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for ending, base in (("B", 1000), ("iB", 1024))
}
_UNIT_OF = {unit.lower(): unit for unit in _UNITS}
_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64", "armv8": "arm64"}
_DEVICES = ("cpu", "gpu")
_TOKEN = re.compile(
    r"\s*(?:(?P<comma>,)|(?P<bar>\|)|(?P<sign>>=|<=|==|!=|!~|[<>=~≥≤≠])"
    r'|"(?P<quoted>[^"]*)"|(?P<word>[^\s,|<>=!~≥≤≠"]+)|(?P<other>\S))'
)
_LONGEST = 1000


@dataclass(frozen=True, slots=True)
class _Key:
    """One fact that may be required: what people call it, which signs it takes, how a value of it is written."""

    title: str
    signs: tuple[str, ...]
    kind: str
    example: str


KEYS: dict[str, _Key] = {
    "accelerator": _Key("accelerator", ("~", "!~"), "text", 'accelerator~"V100"'),
    "arch": _Key("architecture", _EQUAL, "architecture", "arch=amd64"),
    "cores": _Key("number of cores", _ORDERED, "count", "cores>=4"),
    "cpu": _Key("processor", ("~", "!~"), "text", 'cpu~"EPYC"'),
    "cpus": _Key("number of usable processors", _ORDERED, "count", "cpus>=4"),
    "device": _Key("device", ("=",), "device", "device=gpu"),
    "feature": _Key("processor feature", _EQUAL, "feature", "feature=avx2"),
    "kernel": _Key("kernel", _ORDERED, "version", "kernel>=5.10"),
    "memory": _Key("memory", _ORDERED, "size", "memory>=8GB"),
    "os": _Key("operating system", ("~", "!~"), "text", "os~debian"),
}


@dataclass(frozen=True, slots=True)
class Clause:
    """One requirement: a key, a sign and the alternatives that would do, as written in their canonical form."""

    key: str
    sign: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.sign}{'|'.join(_quoted(value) for value in self.values)}"

    def unmet(self, facts: SystemFacts) -> str | None:
        """A sentence that says what is required and what is there; None where the machine will do."""
        match KEYS[self.key].kind:
            case "size" | "count":
                return self._unmet_number(facts)
            case "version":
                return self._unmet_kernel(facts)
            case "feature":
                return self._unmet_feature(facts)
            case "device":
                return self._unmet_device(facts)
            case _:
                return self._unmet_text(facts)

    def _unmet_number(self, facts: SystemFacts) -> str | None:
        if self.key == "memory":
            limit = facts.memory_limit_bytes
            # what a group forbids is not there for the worker, whatever the machine holds
            have: int | None = facts.memory_bytes if limit is None else min(limit, facts.memory_bytes)
            shown, wanted = format_size(have or 0), _size(self.values[0])
        else:
            have = facts.usable_cpus if self.key == "cpus" else facts.cores
            shown, wanted = str(have), Fraction(self.values[0])
        if have is not None and _COMPARISONS[self.sign](have, wanted):
            return None
        return self._sentence(_COMPARISON_WORDS[self.sign], None if have is None else shown)

    def _unmet_kernel(self, facts: SystemFacts) -> str | None:
        wanted = _numbers(self.values[0])
        have = _numbers(facts.kernel)
        # as exact as it was written: 6.1 speaks of every 6.1.x
        have_cut = (have + (0,) * len(wanted))[: len(wanted)]
        if have and _COMPARISONS[self.sign](have_cut, wanted):
            return None
        return self._sentence(_COMPARISON_WORDS[self.sign], facts.kernel or None)

    def _unmet_feature(self, facts: SystemFacts) -> str | None:
        known = {feature.lower() for feature in facts.cpu_features}
        has = any(value in known for value in self.values)
        if known and has == (self.sign == "="):
            return None
        if not known:
            return f"{self} is required, but the features of this machine's processor are not known"
        names = " or ".join(self.values)
        return f"{self} is required, but this machine's processor {'has' if has else 'does not have'} {names}"

    def _unmet_device(self, facts: SystemFacts) -> str | None:
        if "cpu" in self.values or facts.accelerators:
            return None
        return f"{self} is required, but this machine has no accelerator that we can see"

    def _unmet_text(self, facts: SystemFacts) -> str | None:
        if self.key == "arch":
            have: str | None = facts.architecture
            found = have in self.values
        else:
            have = _described(self.key, facts)
            found = have is not None and any(value.lower() in have.lower() for value in self.values)
        if have is not None and found == (self.sign in ("=", "~")):
            return None
        words = {"=": "", "!=": "other than ", "~": "like ", "!~": "not like "}
        return self._sentence(words[self.sign], have)

    def _sentence(self, comparison: str, have: str | None) -> str:
        title = KEYS[self.key].title
        wanted = f"{comparison}{' or '.join(self.values)}"
        if have is None:
            return f"{self} is required, but the {title} of this machine is not known"
        return f"the {title} must be {wanted}; this machine has {have or 'none'}"


@dataclass(frozen=True, slots=True)
class SystemRequirements:
    """Clauses that must all be met; none at all is met by every machine. Its text parses to an equal value."""

    clauses: tuple[Clause, ...] = ()

    def __str__(self) -> str:
        return ", ".join(str(clause) for clause in self.clauses)

    def unmet(self, facts: SystemFacts) -> list[str]:
        """A sentence for each clause that the machine does not meet, in the order they were written."""
        return [sentence for clause in self.clauses if (sentence := clause.unmet(facts)) is not None]


def parse_requirements(text: str) -> SystemRequirements:
    """The requirements in `text`; empty: none. Raises ConstraintError with the `position` of the first mistake."""
    if len(text) > _LONGEST:
        raise ConstraintError(
            f"the system requirements have {len(text)} characters; at most {_LONGEST} are read",
            hint=_EXAMPLE,
            constraint=text[:_LONGEST],
            found="",
            position=_LONGEST + 1,
        )
    if not text.strip():
        return SystemRequirements()
    reader = _Reader(text)
    clauses = [reader.clause()]
    while reader.take("comma"):
        clauses.append(reader.clause())
    reader.expect_end()
    return SystemRequirements(tuple(clauses))


def parse_size(text: str) -> int:
    """Bytes from a size with a unit: 4GB, 500MiB."""
    size = _canonical("size", text.strip())
    if size is None:
        raise ConstraintError(f"{text!r} is not a size", hint=_EXPECTED["size"], text=text)
    return int(_size(size))


def format_size(size_bytes: int) -> str:
    """The size in the largest unit that leaves at least one before the point: 25.3GB."""
    unit = max(
        (u for u in _UNITS if not u.endswith("iB") and _UNITS[u] <= size_bytes), key=_UNITS.__getitem__, default="B"
    )
    return f"{size_bytes / _UNITS[unit]:.4g}{unit}"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Reader:
    """The tokens of a text, read clause by clause."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [
            _Token(kind, match[kind], match.start(kind) + 1)
            for match in _TOKEN.finditer(text)
            if (kind := match.lastgroup) is not None
        ]
        self._tokens.append(_Token("end", "", len(text) + 1))
        self._next = 0

    def take(self, *kinds: str) -> _Token | None:
        token = self._tokens[self._next]
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def expect_end(self) -> None:
        if not self.take("end"):
            hint = 'a value with spaces needs quotes, for example cpu~"AMD EPYC"'
            self._fail(self._tokens[self._next], "a comma is expected between requirements", hint)

    def clause(self) -> Clause:
        word = self.take("word")
        if word is None:
            self._fail(self._tokens[self._next], "the name of a requirement is expected", _EXAMPLE)
        name = word.text.lower()
        if name not in KEYS:
            near = get_close_matches(name, KEYS, n=2, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"names: {', '.join(KEYS)}"
            self._fail(word, "no requirement has this name", hint)
        key = KEYS[name]
        sign = self.take("sign")
        if sign is None:
            self._fail(self._tokens[self._next], f"one of {' '.join(key.signs)} is expected after {name}", key.example)
        written = _SIGNS.get(sign.text, sign.text)
        if written not in key.signs:
            self._fail(sign, f"{name} takes {' '.join(key.signs)}", f"for example {key.example}")
        values = [self._value(name, key)]
        while bar := self.take("bar"):
            if key.kind in ("size", "count", "version"):
                self._fail(bar, "alternatives are for names, not for numbers", f"for example {key.example}")
            values.append(self._value(name, key))
        return Clause(name, written, tuple(dict.fromkeys(values)))

    def _value(self, name: str, key: _Key) -> str:
        token = self.take("word", "quoted")
        if token is None or not token.text.strip():
            self._fail(
                token or self._tokens[self._next], f"a value for {name} is expected", f"for example {key.example}"
            )
        text = token.text.strip()
        if key.kind == "size" and text[-1].isdecimal() and (unit := self.take("word")):
            text += unit.text
        value = _canonical(key.kind, text)
        if value is None:
            self._fail(token, _EXPECTED[key.kind], f"for example {key.example}")
        return value

    def _fail(self, token: _Token, problem: str, hint: str) -> NoReturn:
        found = repr(token.text) if token.text else "the end" if token.kind == "end" else "nothing"
        raise ConstraintError(
            f"the system requirements {self._text!r} are not understood at character {token.position} "
            f"({found}): {problem}",
            hint=hint,
            constraint=self._text,
            found=token.text,
            position=token.position,
        )


_EXPECTED = {
    "size": f"a size needs a number and a unit ({', '.join(_UNITS)})",
    "count": "a whole number is expected",
    "version": "a version is numbers with dots",
    "device": f"a device is {' or '.join(_DEVICES)}",
    "architecture": "an architecture is one word",
    "feature": "a feature is one word",
    "text": "a text is expected",
}


def _canonical(kind: str, text: str) -> str | None:
    """The value in the one form that is stored and compared; None where the text is no such value."""
    match kind:
        case "size":
            match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text, re.ASCII)
            unit = _UNIT_OF.get(match[2].lower()) if match else None
            return f"{match[1]}{unit}" if match and unit else None
        case "count":
            return str(int(text)) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None
        case "version":
            return text if re.fullmatch(r"\d{1,9}(?:\.\d{1,9})*", text, re.ASCII) else None
        case "device":
            return text.lower() if text.lower() in _DEVICES else None
        case "architecture":
            return _ARCHITECTURES.get(text.lower(), text.lower()) if re.fullmatch(r"[\w-]+", text, re.ASCII) else None
        case "feature":
            return text.lower() if re.fullmatch(r"[\w.-]+", text, re.ASCII) else None
        case _:
            return text


def _described(key: str, facts: SystemFacts) -> str | None:
    if key == "cpu":
        # the vendor is part of most names, and of those where it is not, people write it all the same
        model, vendor = facts.cpu_model, facts.cpu_vendor
        return f"{vendor} {model}" if model and vendor and not model.startswith(vendor) else model
    if key == "os":
        return facts.operating_system
    return ", ".join(facts.accelerators)


def _size(text: str) -> Fraction:
    number = text.rstrip("BiKMGT")
    unit: int = _UNITS[text[len(number) :]]
    return Fraction(number) * unit


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _quoted(value: str) -> str:
    return value if re.fullmatch(r'[^\s,|<>=!~≥≤≠"]+', value) else f'"{value}"'
