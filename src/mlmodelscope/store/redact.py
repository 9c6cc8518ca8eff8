"""A record -> the same record without credentials, home folders, user and host names, and private variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlmodelscope.core.record import Record
from mlmodelscope.core.variables import recorded_variables

__all__ = ["HIDDEN", "Private", "redact", "redact_text", "redact_urls"]

HIDDEN = "..."

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_LOGIN = re.compile(r"(?<=://)[^/?#]*@")
_PARAMETER = re.compile(
    r"(?P<name>[?&;](?:[\w.%-]*(?:token|secret|passw|signature|credential|auth|key)[\w.%-]*|sig|x-(?:amz|goog)-[\w-]+)=)"
    r"[^&;#,)\]}]+",
    re.IGNORECASE,
)
_PRIVATE_NAME = r"[\w-]{0,40}(?:secret|password|passwd|api[_-]?key|access[_-]?key|credentials?|authorization)"
# `token: x` is what parsers say of a syntax error, so that name counts only before an equals sign
_ASSIGNED = re.compile(
    rf"(?P<name>\b(?:{_PRIVATE_NAME}['\"]?\s{{0,3}}[=:]|[\w-]{{0,40}}token['\"]?\s{{0,3}}=)\s{{0,3}}['\"]?)"
    r"(?:(?:bearer|basic)\s+)?[^\s'\",;&]+",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(rf"{_PRIVATE_NAME}|[\w-]{{0,40}}token", re.IGNORECASE)
# secrets that are known by their form: model hubs, code hosts, cloud and chat services, signed web tokens
_SECRET_FORM = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[abpr]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
)
_ANY_HOME = r"(?:(?<=://)|(?<![\w./~)-]))(?:/(?:home|Users)/[^/\s:;,'\"<>|()\[\]{}]+|/root(?![\w-]|\.\w))"
# names that half of all machines have: they identify nobody, and are words of ordinary messages
_COMMON = {
    "admin", "container", "debian", "docker", "host", "linux", "localhost", "node", "nobody", "root", "runner",
    "server", "test", "ubuntu", "user", "worker",
}  # fmt: skip
# where the machine speaks in its own words; names of models and the like are left alone
_FREE_TEXTS = {"failure", "warnings"}
_FREE_FIELDS = {"base", "location", "origin"}


@dataclass(frozen=True)
class Private:
    """What identifies the user and the machine: the home folders, the account's name, the name of the host."""

    homes: tuple[str, ...] = ()
    user: str | None = None
    host: str | None = None

    @cached_property
    def home_pattern(self) -> re.Pattern[str]:
        homes = sorted({home.rstrip("/") for home in self.homes} - {"", "/root"}, key=len, reverse=True)
        return re.compile("|".join([*(rf"{re.escape(home)}(?![\w-]|\.\w)" for home in homes), _ANY_HOME]))

    @cached_property
    def name_pattern(self) -> re.Pattern[str] | None:
        names = {"user": {self.user or ""}, "host": {self.host or "", (self.host or "").partition(".")[0]}}
        groups = []
        for kind, found in names.items():
            telling = [name for name in found if len(name) > 2 and name.lower() not in _COMMON]
            if telling:
                either = "|".join(re.escape(name) for name in sorted(telling, key=len, reverse=True))
                groups.append(rf"(?P<{kind}>{either})")
        return re.compile(rf"(?<![\w-])(?:{'|'.join(groups)})(?![\w-])") if groups else None


def redact(record: Record, private: Private) -> Record:
    """What may be kept of `record`.

    The text of a manifest loses only the credentials in its URLs, because every other change would change what it
    means; its digest stays that of the original, and a warning says so.
    """
    values = record.model_dump(mode="json")
    cleaned = {key: _clean(value, private, is_free=key in _FREE_TEXTS) for key, value in values.items()}
    warnings = list(cleaned["warnings"])
    for part in ("model", "dataset"):
        manifest = values[part] and values[part]["manifest"]
        if manifest:
            text = redact_urls(manifest["text"])
            cleaned[part]["manifest"]["text"] = text
            if text != manifest["text"]:
                warnings.append(f"credentials were removed from the {part}'s manifest; its digest is of the original")
    if record.software is not None:
        variables = recorded_variables(record.software.variables)
        cleaned["software"]["variables"] = _clean(variables, private, is_free=False)
    return Record.model_validate(cleaned | {"warnings": warnings})


def redact_text(text: str, private: Private) -> str:
    """A free text, such as the end of a log, without all of the above."""
    return _hide_names(_hide_secrets(text, private), private)


def redact_urls(text: str) -> str:
    """`text` whose URLs have lost login and secret parameters; the rest is as it was."""
    return _URL.sub(lambda url: _PARAMETER.sub(rf"\g<name>{HIDDEN}", _LOGIN.sub("", url.group())), text)


def _hide_secrets(text: str, private: Private) -> str:
    text = redact_urls(private.home_pattern.sub("~", _SECRET_FORM.sub(HIDDEN, text)))
    return _ASSIGNED.sub(rf"\g<name>{HIDDEN}", text)


def _hide_names(text: str, private: Private) -> str:
    if private.name_pattern is None:
        return text
    return private.name_pattern.sub(lambda found: f"({found.lastgroup})", text)


def _clean(value: Any, private: Private, *, is_free: bool) -> Any:
    """Every text within `value`, cleaned; in a free text the names of user and host are hidden too."""
    if isinstance(value, str):
        return redact_text(value, private) if is_free else _hide_secrets(value, private)
    if isinstance(value, list):
        return [_clean(item, private, is_free=is_free) for item in value]
    if isinstance(value, dict):
        return {
            _hide_secrets(key, private): HIDDEN
            if isinstance(item, str) and _PRIVATE_KEY.fullmatch(key)
            else _clean(item, private, is_free=is_free or key in _FREE_FIELDS)
            for key, item in value.items()
        }
    return value
