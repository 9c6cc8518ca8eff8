import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.system import SystemFacts
from mlmodelscope.resolve.system import KEYS, SystemRequirements, format_size, parse_requirements, parse_size

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "system-requirements.md"

MACHINE = SystemFacts(
    hostname_digest="0" * 16,
    architecture="amd64",
    cpu_model="AMD EPYC 7763 64-Core Processor",
    cpu_vendor="AMD",
    cpu_features=("avx", "avx2", "sse4_2"),
    cores=64,
    usable_cpus=8,
    memory_bytes=16 * 1024**3,
    memory_limit_bytes=8 * 1024**3,
    kernel="6.1.0-18-amd64",
    operating_system="Debian GNU/Linux 12 (bookworm)",
)
UNKNOWN = SystemFacts(
    hostname_digest="0" * 16, architecture="riscv64", usable_cpus=1, memory_bytes=1, kernel="", operating_system="Linux"
)


def rows(heading: str) -> list[list[str]]:
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`").replace("\\|", "|") for cell in row] for row in cells]


def refusal(text: str) -> ConstraintError | None:
    try:
        parse_requirements(text)
    except ConstraintError as error:
        return error
    return None


@pytest.mark.parametrize(("text", "met"), rows("Cases"))
def test_the_cases_of_the_page(text, met):
    assert met in ("yes", "no")
    assert (parse_requirements(text).unmet(MACHINE) == []) == (met == "yes")


@pytest.mark.parametrize(("text", "position", "hint"), rows("Mistakes"))
def test_the_mistakes_of_the_page(text, position, hint):
    with pytest.raises(ConstraintError) as caught:
        parse_requirements(text)
    assert caught.value.fields["position"] == int(position)
    assert caught.value.fields["constraint"] == text
    assert hint in caught.value.hint


def test_the_page_names_every_key_and_its_signs():
    table = PAGE.read_text().split("## Cases")[0]
    named = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    assert named == {name: " ".join(key.signs) for name, key in KEYS.items()}


def test_the_examples_of_the_hints_can_be_read():
    for name, key in KEYS.items():
        assert parse_requirements(key.example).clauses[0].key == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memory>=12GB", "the memory must be at least 12GB; this machine has 8.59GB"),
        ("cpus>8", "the number of usable processors must be more than 8; this machine has 8"),
        ("arch=aarch64", "the architecture must be arm64; this machine has amd64"),
        ("cpu~Xeon", "the processor must be like Xeon; this machine has AMD EPYC 7763 64-Core Processor"),
        ("feature=avx512f", "feature=avx512f is required, but this machine's processor does not have avx512f"),
        ("feature!=avx2", "feature!=avx2 is required, but this machine's processor has avx2"),
        ("device=gpu", "device=gpu is required, but this machine has no accelerator that we can see"),
        ("accelerator~V100", "the accelerator must be like V100; this machine has none"),
        ("kernel>=6.2", "the kernel must be at least 6.2; this machine has 6.1.0-18-amd64"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(text, sentence):
    assert parse_requirements(text).unmet(MACHINE) == [sentence]


def test_unmet_keeps_the_order_and_leaves_out_what_is_met():
    unmet = parse_requirements("cpus>8, arch=amd64, memory>=12GB").unmet(MACHINE)
    assert [sentence.split(" must")[0] for sentence in unmet] == ["the number of usable processors", "the memory"]


@pytest.mark.parametrize(
    "text", ["cores>=1", "cores!=1", "cpu~a", "cpu!~a", "feature=avx", "feature!=avx", "kernel>=1", "kernel!=1"]
)
def test_an_unknown_fact_meets_nothing(text):
    (sentence,) = parse_requirements(text).unmet(UNKNOWN)
    assert "not known" in sentence


def test_a_gpu_is_an_accelerator_that_is_there():
    facts = MACHINE.model_copy(update={"accelerators": ("NVIDIA Tesla V100-SXM2-16GB",)})
    assert parse_requirements("device=gpu, accelerator~v100").unmet(facts) == []


def test_memory_without_a_group_limit_is_the_machines():
    facts = MACHINE.model_copy(update={"memory_limit_bytes": None})
    assert parse_requirements("memory>=16GiB").unmet(facts) == []


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_text_requires_nothing(text):
    assert parse_requirements(text) == SystemRequirements()
    assert parse_requirements(text).unmet(UNKNOWN) == []


def test_a_very_long_text_is_refused():
    with pytest.raises(ConstraintError, match="at most 1000"):
        parse_requirements("arch=amd64," * 200)


@pytest.mark.parametrize(("size", "text"), [(0, "0B"), (999, "999B"), (25_274_793_984, "25.27GB"), (2 * 10**12, "2TB")])
def test_sizes_are_shown_in_the_largest_fitting_unit(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4 * 10**9), (" 500 MiB ", 500 * 2**20), ("1.5kb", 1500), ("7B", 7), ("0GB", 0)]
)
def test_a_size_alone(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4", "GB", "4XB", "-4GB", "4GB 4GB"])
def test_what_is_no_size(text):
    with pytest.raises(ConstraintError) as caught:
        parse_size(text)
    assert "GiB" in caught.value.hint


words = st.text(st.characters(blacklist_characters='"', blacklist_categories=("Cs",)), min_size=1).filter(str.strip)
texts = st.one_of(
    st.builds(
        "memory{}{}{}".format,
        st.sampled_from(KEYS["memory"].signs),
        st.integers(0, 999),
        st.sampled_from(["KB", "gib"]),
    ),
    st.builds("cpus{}{}".format, st.sampled_from(KEYS["cpus"].signs), st.integers(0, 999)),
    st.builds('cpu~"{}"|"{}"'.format, words, words),
    st.builds("arch={}".format, st.sampled_from(["x86_64", "ARM64", "ppc64le", "amd64|aarch64"])),
)


@given(st.lists(texts, min_size=1, max_size=5).map(" , ".join).filter(lambda text: len(text) < 500))
def test_the_text_of_requirements_parses_to_the_same_requirements(text):
    once = parse_requirements(text)
    assert parse_requirements(str(once)) == once
    assert once.unmet(MACHINE) == parse_requirements(str(once)).unmet(MACHINE)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_position_inside_it(text):
    error = refusal(text)
    assert error is None or (1 <= error.fields["position"] <= len(text) + 1 and error.hint)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_signs_agree_with_numbers(have, wanted):
    facts = MACHINE.model_copy(update={"usable_cpus": have})
    expected = {
        ">=": have >= wanted,
        "<=": have <= wanted,
        ">": have > wanted,
        "<": have < wanted,
        "=": have == wanted,
        "!=": have != wanted,
    }
    met = {sign: not parse_requirements(f"cpus{sign}{wanted}").unmet(facts) for sign in expected}
    assert met == expected
