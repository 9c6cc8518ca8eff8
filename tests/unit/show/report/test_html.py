"""The page: one file, nothing from elsewhere, nothing from a record as markup, the verdict before any number."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from mlmodelscope.core.record import Record
from mlmodelscope.core.request import Batched, EvaluationRequest
from mlmodelscope.show.report.data import Pictures
from mlmodelscope.show.report.html import format_html
from mlmodelscope.testing.records import (
    example_dataset,
    example_estimate,
    example_launch,
    example_manifest,
    example_model,
    example_performance,
    example_record,
    example_system,
    failed_record,
)

VOID = ("meta", "img", "br", "hr")
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&amp;\u202e\x00${x}"


class Page(HTMLParser):
    """The elements of a page; fails where they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if attributes.get("id")]


def at_batch(size, throughput):
    scenario = Batched(batch_size=size, launches=2)
    request = EvaluationRequest(models=("TinyNet",), dataset="TinySet", scenario=scenario)
    performance = example_performance(throughput=example_estimate(throughput))
    return example_record(scenario=scenario, request=request, performance=performance)


def test_one_record(make_report):
    page = Page(format_html(make_report(example_record())))
    assert page.all("h1") == [{}]
    assert "TinyNet 1.0.0" in page.text
    assert "verdict" not in page.ids
    assert "failures" not in page.ids
    assert {"summary", "accuracy", "latency", "stages", "trust", "records"} <= set(page.ids)


def test_the_verdict_stands_before_any_number(make_report):
    other = example_record(system=example_system(kernel="6.2.0"))
    page = Page(format_html(make_report(example_record(), other)))
    assert page.ids[0] == "verdict"
    assert "A fair comparison: one factor differs." in page.text
    assert "fair: system differs" in page.text
    assert page.text.index("A fair comparison") < page.text.index("10.0 ms")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "A repetition: no factor differs."),
        ({"seed": 3, "system": example_system(kernel="6.2.0")}, "Not a fair comparison: more than one factor differs."),
    ],
)
def test_the_verdict_of_two(make_report, changes, text):
    assert text in Page(format_html(make_report(example_record(), example_record(**changes)))).text


def test_a_failed_record_is_shown_as_such_and_not_compared(make_report):
    page = Page(format_html(make_report(failed_record(), example_record(), example_record())))
    assert "the worker died of signal 11" in page.text
    assert "run it again with --threads 1" in page.text
    assert "Segmentation fault" in page.text
    assert "1 of them failed" in page.text
    assert "Every evaluation is held against 2" in page.text
    assert len([a for a in page.all("div") if a.get("class") == "verdict"]) == 1


def test_failed_records_alone_make_a_page(make_report):
    page = Page(format_html(make_report(failed_record(software=None, system=None, dataset=None))))
    assert {"summary", "failures", "records"} <= set(page.ids)
    assert not {"latency", "accuracy", "stages", "batch", "verdict"} & set(page.ids)


def test_a_record_whose_files_are_lost_says_so(make_report):
    data = make_report(example_record(), gaps=("the artifact 'latencies.npz' is not in the store",))
    assert "the artifact 'latencies.npz' is not in the store" in Page(format_html(data)).text


def test_batch_sizes_name_the_best(make_report):
    page = Page(format_html(make_report(at_batch(1, 100.0), at_batch(2, 160.0), at_batch(4, 161.0))))
    assert "TinyNet on onnxruntime: the best batch size is 2." in page.text
    assert "+60.0 %" in page.text
    assert "batch" not in Page(format_html(make_report(at_batch(2, 100.0)))).ids


def test_layers_and_pictures(make_report, layers, pictures):
    none = Pictures("Elsewhere", (), 5, "its files are not in the cache of this machine")
    page = Page(format_html(make_report(example_record(), pictures=(pictures, none), layers=layers)))
    assert "The slowest 15 of 20 layers" in page.text
    assert "conv_14" in page.text
    assert "conv_15" not in page.text
    assert "✓ cat 0.75" in page.text
    assert "✗ no answer" in page.text
    assert "No pictures of Elsewhere: its files are not in the cache of this machine." in page.text
    (image,) = page.all("img")
    assert base64.b64decode(image["src"].removeprefix("data:image/jpeg;base64,")) == b"\xff\xd8jpeg"


def test_nothing_comes_from_elsewhere(make_report, layers, pictures):
    text = format_html(make_report(example_record(), example_record(), pictures=(pictures,), layers=layers))
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "style"
            if name in ("src", "href", "action", "xlink:href"):
                assert value.startswith(("#", "data:image/jpeg;base64,", "data:application/json;base64,"))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_allows_our_style_and_script_alone(make_report):
    text = format_html(make_report(example_record()))
    policy = next(a["content"] for a in Page(text).all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"


def test_links_inside_the_page_lead_somewhere(make_report, layers, pictures):
    text = format_html(make_report(example_record(), failed_record(), pictures=(pictures,), layers=layers))
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    targets = {a["href"][1:] for a in page.all("a") if a["href"].startswith("#")}
    assert targets <= set(page.ids)


def hostile_record():
    model = example_model(name=HOSTILE, version=HOSTILE, license=HOSTILE, manifest=example_manifest(text=HOSTILE))
    performance = example_performance(percentiles_ns={HOSTILE: example_estimate(1.1e7)}, refused={HOSTILE: HOSTILE})
    launch = example_launch()
    return example_record(
        model=model,
        dataset=example_dataset(name=HOSTILE, version=HOSTILE, sample_ids_digest=HOSTILE),
        system=example_system(cpu_model=HOSTILE, operating_system=HOSTILE),
        performance=performance,
        launches=(launch,),
        warnings=(HOSTILE,),
    )


def test_what_comes_from_a_record_is_never_markup(make_report, layers):
    import dataclasses

    failure = failed_record().failure.model_copy(update={"message": HOSTILE, "hint": HOSTILE, "log_tail": HOSTILE})
    layer = dataclasses.replace(layers[0], name=HOSTILE, operator=HOSTILE)
    shown = Pictures(HOSTILE, (), 3, HOSTILE)
    records = (example_record(), hostile_record(), failed_record(failure=failure))
    text = format_html(make_report(*records, pictures=(shown,), layers=(layer,), gaps=(HOSTILE,)))
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert "<script>alert" not in text
    assert "\x00" not in text
    assert page.text.count("<script>alert(1)</script>") > 15


def test_every_number_is_traceable_to_its_record(make_report):
    records = [example_record(), failed_record()]
    page = Page(format_html(make_report(*records)))
    links = {a["download"]: a["href"] for a in page.all("a") if "download" in a}
    for record in records:
        content = base64.b64decode(links[f"{record.id}.json"].removeprefix("data:application/json;base64,"))
        assert Record.model_validate(json.loads(content)) == record
        assert record.id in page.text
        assert record.model.manifest.digest in page.text
    assert "performance.latency_median_ns" in page.text
    assert "9900000 to 10100000" in page.text
    assert "accuracy.top1" in page.text


def test_twenty_records_have_numbers_of_their_own(make_report):
    page = Page(format_html(make_report(*(example_record() for _ in range(20)))))
    assert {f"record-{number}" for number in range(1, 21)} <= set(page.ids)
    assert "All 19 comparisons are fair" in page.text
