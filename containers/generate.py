"""The software stacks that we know (`resolve/stacks.py`) -> one Dockerfile each: `python containers/generate.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlmodelscope.resolve.stacks import RULES, StackRule

FOLDER = Path(__file__).parent
# what the slim image of Python has not, as Debian packages
_SYSTEM_PACKAGES = {
    "cntk": ("libgomp1", "libopenmpi3"),
    "lightgbm": ("libgomp1",),
    "mxnet": ("libgomp1", "libquadmath0"),
    "paddle": ("libgomp1",),
}
# CNTK was linked against an older Open MPI, which names its libraries otherwise
_MORE_LINES = {
    "cntk": (
        "RUN ln -s libmpi.so.40 /usr/lib/x86_64-linux-gnu/libmpi.so.12 \\",
        " && ln -s libmpi_cxx.so.40 /usr/lib/x86_64-linux-gnu/libmpi_cxx.so.1",
    )
}


def pages() -> dict[Path, str]:
    """Every Dockerfile by its path: one per rule that names the version we test."""
    return {
        FOLDER / f"{framework}-{rule.preferred}.Dockerfile": dockerfile(framework, rule)
        for framework, rules in RULES.items()
        for rule in rules
        if rule.preferred is not None
    }


def dockerfile(framework: str, rule: StackRule) -> str:
    requirements = [f"{rule.distribution}=={rule.preferred}", *rule.requirements]
    return "\n".join(
        [
            f"# {framework} {rule.preferred} on Python {rule.python[0]}. Written by containers/generate.py.",
            f"FROM python:{rule.python[0]}-slim",
            "# where the packages come from, if not from pip's own index",
            "ARG PIP_INDEX_URL",
            "ARG PIP_EXTRA_INDEX_URL",
            f'LABEL org.mlmodelscope.framework="{framework}" org.mlmodelscope.version="{rule.preferred}"',
            *_system_lines(_SYSTEM_PACKAGES.get(framework, ())),
            *_MORE_LINES.get(framework, ()),
            *_pip_lines(requirements, rule.bounds),
            "",
        ]
    )


def _system_lines(packages: Sequence[str]) -> list[str]:
    if not packages:
        return []
    return [
        "RUN apt-get update \\",
        f" && apt-get install -y --no-install-recommends {' '.join(packages)} \\",
        " && rm -rf /var/lib/apt/lists/*",
    ]


def _pip_lines(requirements: Sequence[str], bounds: Sequence[str]) -> list[str]:
    install = "python -m pip install --no-cache-dir --disable-pip-version-check"
    if not bounds:
        return [f"RUN {install} {_quoted(requirements)}"]
    return [
        f"RUN printf '%s\\n' {_quoted(bounds)} > /tmp/bounds.txt \\",
        f" && {install} -c /tmp/bounds.txt {_quoted(requirements)} \\",
        " && rm /tmp/bounds.txt",
    ]


def _quoted(words: Sequence[str]) -> str:
    return " ".join(f"'{word}'" for word in words)


if __name__ == "__main__":
    written = pages()
    for path in set(FOLDER.glob("*.Dockerfile")) - set(written):
        path.unlink()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
