"""Damaged archives and images: our typed errors or a result, nothing else, and nothing outside the target folder."""

import io
import os
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from mlmodelscope.core.errors import MLModelScopeError
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import Decode
from mlmodelscope.process.input import input_pipeline
from mlmodelscope.provision.archives import extract

pytestmark = pytest.mark.fuzz

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
NAMES = ["dir/model.bin", "dir/labels.txt", "../out.txt", "/abs.txt", "dir/../../up.txt", "link"]
hostile = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def damage(data: bytes, changes: list[tuple[int, int]], cut: int | None) -> bytes:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    return bytes(damaged[: cut % len(damaged)] if cut is not None else damaged)


def zipped(names: list[str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"content " * 20)
    return stream.getvalue()


def tarred(names: list[str], mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            if name == "link":
                info.type, info.linkname = tarfile.SYMTYPE, "/etc"
                archive.addfile(info)
            else:
                info.size = 160
                archive.addfile(info, io.BytesIO(b"content " * 20))
    return stream.getvalue()


@hostile
@given(
    kind=st.sampled_from(["zip", "tar", "tar.gz", "tar.xz"]),
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    member=st.sampled_from(["dir/model.bin", "dir/", "/", "*.txt", "link"]),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6),
    cut=st.none() | st.integers(0, 10_000),
)
def test_a_damaged_archive_is_refused_or_unpacked_inside_its_folder(kind, names, member, changes, cut):
    whole = zipped(names) if kind == "zip" else tarred(names, {"tar": "w", "tar.gz": "w:gz", "tar.xz": "w:xz"}[kind])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        archive, target = root / f"archive.{kind}", root / "inner" / "target"
        archive.write_bytes(damage(whole, changes, cut))
        target.mkdir(parents=True)
        with suppress(MLModelScopeError):
            extract(archive, member, target)
        outside = {path.name for path in root.iterdir()} | {path.name for path in (root / "inner").iterdir()}
        assert outside == {archive.name, "inner", "target"}
        assert not any(path.is_symlink() for path in target.rglob("*"))


def encoded(form: str) -> bytes:
    pixels = np.random.default_rng(3).integers(0, 256, (24, 31, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


PICTURES = {form: encoded(form) for form in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")}
DECODERS = {
    decoder: input_pipeline(ModelInput(type="image", element_type="uint8", steps=(Decode(decoder=decoder),)))
    for decoder in ("pillow", "opencv")
}


@hostile
@given(
    form=st.sampled_from(sorted(PICTURES)),
    decoder=st.sampled_from(sorted(DECODERS)),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=8),
    cut=st.none() | st.integers(0, 10_000),
)
def test_a_damaged_picture_is_refused_or_decoded(form, decoder, changes, cut):
    pipeline = DECODERS[decoder]
    try:
        array = pipeline.prepare(damage(PICTURES[form], changes, cut))
    except MLModelScopeError:
        return
    assert array.dtype == np.uint8
    assert array.ndim == 4
