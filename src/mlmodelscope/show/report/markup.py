"""Values -> HTML and SVG text in which every plain string is escaped: only what this module made passes unescaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["Content", "Markup", "element", "join", "raw"]

_VOID = frozenset(("br", "hr", "img", "meta"))
# characters that no document may hold, whatever stands around them
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000)), "�")


class Markup(str):
    """Text that is already markup."""

    __slots__ = ()


Content = str | Iterable["Content"] | None


def element(name: str, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element; `class_` is written class and `stroke_width` stroke-width. None and False leave an attribute out."""
    opened = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        opened.append(attribute if value is True else f'{attribute}="{_clean(_shown(value))}"')
    start = f"<{' '.join(opened)}>"
    return Markup(start) if name in _VOID else Markup(f"{start}{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    return Markup("".join(_pieces(content)))


def raw(text: str) -> Markup:
    """For text of our own (style, script), which holds no value from outside."""
    return Markup(text)


def _pieces(content: Content) -> Iterable[str]:
    if content is None:
        return
    if isinstance(content, Markup):
        yield content
    elif isinstance(content, str):
        yield _clean(content)
    else:
        for item in content:
            yield from _pieces(item)


def _clean(text: str) -> str:
    return escape(text.translate(_CONTROL), quote=True)


def _shown(value: str | float) -> str:
    """Numbers short: a tenth of a thousandth of the drawing is less than a pixel."""
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
