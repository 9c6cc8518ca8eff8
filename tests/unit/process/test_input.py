"""Every chain of steps against the plain Pillow, OpenCV and NumPy calls it stands for, one after the other."""

import math
from io import BytesIO

import cv2
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from mlmodelscope.core.errors import InputError, ShapeError, StepError
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import (
    Batch,
    Cast,
    Color,
    Crop,
    Decode,
    Layout,
    Mean,
    Normalize,
    Pad,
    Rescale,
    Resize,
    Softmax,
)
from mlmodelscope.process.input import input_pipeline

PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
}
OPENCV = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


def encode(array, kind="PNG", **options):
    stream = BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def element(value, name):
    """One Python number under the rules of cast."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        return dtype.type(value)
    if math.isnan(value):
        return 0
    limits = np.iinfo(dtype)
    if math.isinf(value):
        return limits.max if value > 0 else limits.min
    return min(max(math.trunc(value), limits.min), limits.max)


def cast(array, name):
    values = [element(value, name) for value in array.ravel().tolist()]
    return np.array(values, dtype=name).reshape(array.shape)


class Reference:
    """The state of a sample: pixels as height-width-channel, beside what the manifest calls them."""

    def __init__(self, data, step):
        if step.decoder == "pillow":
            image = Image.open(BytesIO(data)).convert("L" if step.color_layout == "GRAY" else "RGB")
            pixels = np.asarray(image)
            pixels = pixels[:, :, ::-1] if step.color_layout == "BGR" else pixels
        else:
            kind = cv2.IMREAD_GRAYSCALE if step.color_layout == "GRAY" else cv2.IMREAD_COLOR
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), kind | cv2.IMREAD_IGNORE_ORIENTATION)
            pixels = pixels[:, :, ::-1] if step.color_layout == "RGB" else pixels
        self.pixels = cast(pixels.reshape(*pixels.shape[:2], -1), step.element_type)
        self.color = step.color_layout
        self.layout = step.data_layout

    def run(self, steps):
        for step in steps:
            getattr(self, f"do_{step.step}")(step)
        result = self.pixels.transpose(2, 0, 1) if self.layout == "CHW" else self.pixels
        return np.ascontiguousarray(result)

    def do_crop(self, step):
        height, width = self.pixels.shape[:2]
        rows, columns = step.size or (
            max(1, math.floor(height * step.percentage / 100 + 0.5)),
            max(1, math.floor(width * step.percentage / 100 + 0.5)),
        )
        top, left = ((height - rows) // 2, (width - columns) // 2) if step.method == "center" else (0, 0)
        self.pixels = self.pixels[top : top + rows, left : left + columns]

    def do_resize(self, step):
        height, width = self.pixels.shape[:2]
        if step.shorter_side:
            scale = step.shorter_side / min(height, width)
        elif step.max_dimension:
            scale = min(1, step.max_dimension / max(height, width))
        elif step.keep_aspect_ratio == "squash":
            scale = None
        else:
            pick = max if step.keep_aspect_ratio == "cover" else min
            scale = pick(step.size[0] / height, step.size[1] / width)
        if scale is None:
            target = step.size
        else:
            target = (max(1, math.floor(height * scale + 0.5)), max(1, math.floor(width * scale + 0.5)))
        self.pixels = self._scaled(step, *target)
        if step.keep_aspect_ratio == "cover":
            top, left = (target[0] - step.size[0]) // 2, (target[1] - step.size[1]) // 2
            self.pixels = self.pixels[top : top + step.size[0], left : left + step.size[1]]
        if step.keep_aspect_ratio == "letterbox":
            self._pad(step.size, step.fill, "center")

    def _scaled(self, step, height, width):
        channels = self.pixels.shape[2]
        if step.resizer == "opencv":
            scaled = cv2.resize(np.ascontiguousarray(self.pixels), (width, height), interpolation=OPENCV[step.method])
            return scaled.reshape(height, width, channels)
        planes = [
            np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((width, height), PILLOW[step.method]))
            for plane in np.moveaxis(self.pixels, 2, 0)
        ]
        return np.stack(planes, axis=2)

    def do_pad(self, step):
        self._pad(step.size, step.value, step.position)

    def _pad(self, size, value, position):
        height, width = self.pixels.shape[:2]
        top, left = ((size[0] - height) // 2, (size[1] - width) // 2) if position == "center" else (0, 0)
        border = ((top, size[0] - height - top), (left, size[1] - width - left), (0, 0))
        self.pixels = np.pad(self.pixels, border, constant_values=element(value, self.pixels.dtype.name))

    def do_color(self, step):
        if step.to == self.color:
            return
        if step.to == "GRAY":
            pixels = self.pixels if self.color == "RGB" else self.pixels[:, :, ::-1]
            if pixels.dtype == np.uint8:
                mixed = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
            else:
                weights = np.array([0.299, 0.587, 0.114], pixels.dtype)
                mixed = pixels[..., 0] * weights[0] + pixels[..., 1] * weights[1] + pixels[..., 2] * weights[2]
            self.pixels = mixed[:, :, None]
        elif self.color == "GRAY":
            self.pixels = np.repeat(self.pixels, 3, axis=2)
        else:
            self.pixels = self.pixels[:, :, ::-1]
        self.color = step.to

    def do_layout(self, step):
        self.layout = step.to

    def do_cast(self, step):
        self.pixels = cast(self.pixels, step.element_type)

    def do_mean(self, step):
        self._arithmetic(np.subtract, step.value)

    def do_rescale(self, step):
        self._arithmetic(np.divide, step.value)

    def do_normalize(self, step):
        self._arithmetic(np.subtract, step.mean)
        self._arithmetic(np.divide, step.rescale)

    def do_batch(self, step):
        pass

    def _arithmetic(self, function, value):
        dtype = self.pixels.dtype
        if dtype.kind == "f":
            self.pixels = function(self.pixels, np.array(value, dtype))
        else:
            self.pixels = cast(function(self.pixels.astype(np.float64), np.array(value)), dtype.name)


IMAGENET = Normalize(mean=(103.939, 116.779, 123.68), rescale=(58.4, 57.1, 57.4))


def pipeline(*steps, element_type="float32"):
    return input_pipeline(ModelInput(type="image", element_type=element_type, steps=steps))


def check(data, *steps, element_type="float32"):
    """The compiled pipeline gives the bits of the plain calls, from the file and from its pixels."""
    expected = Reference(data, steps[0]).run([*steps[1:], Cast(element_type=element_type)])
    compiled = pipeline(*steps, element_type=element_type)
    found = compiled.prepare(data)
    assert found.dtype == expected.dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found[0], expected)
    again = compiled.prepare(data)
    np.testing.assert_array_equal(found, again)
    return found


sizes = st.integers(1, 24)
methods = st.sampled_from(["nearest", "bilinear", "bicubic", "area", "lanczos"])
libraries = st.sampled_from(["pillow", "opencv"])
decodes = st.builds(
    Decode,
    decoder=libraries,
    color_layout=st.sampled_from(["RGB", "BGR", "GRAY"]),
    data_layout=st.sampled_from(["HWC", "CHW"]),
)
resizes = st.one_of(
    st.builds(Resize, shorter_side=sizes, method=methods, resizer=libraries),
    st.builds(Resize, max_dimension=sizes, method=methods, resizer=libraries),
    st.builds(
        Resize,
        size=st.tuples(sizes, sizes),
        method=methods,
        resizer=libraries,
        keep_aspect_ratio=st.sampled_from(["cover", "fit", "letterbox", "squash"]),
        fill=st.sampled_from([0, 114, 300, -3, 0.7]),
    ),
)
crops = st.builds(
    Crop,
    method=st.sampled_from(["center", "top_left"]),
    percentage=st.one_of(st.just(87.5), st.floats(1, 100, allow_subnormal=False)),
)
pads = st.builds(
    Pad, size=st.just((30, 33)), value=st.sampled_from([0, 7, 260]), position=st.sampled_from(["center", "top_left"])
)
colors = st.builds(Color, to=st.sampled_from(["RGB", "BGR"]))
layouts = st.builds(Layout, to=st.sampled_from(["HWC", "CHW"]))
scalars = st.sampled_from([0.0, 1.5, 127.5, -3.0])
arithmetic = st.one_of(
    st.builds(Mean, value=scalars),
    st.builds(Rescale, value=st.sampled_from([1.0, 127.5, 0.017])),
    st.builds(Normalize, mean=scalars, rescale=st.sampled_from([1.0, 58.395])),
)


@settings(max_examples=100, deadline=None)
@given(
    decode=decodes,
    geometry=st.lists(st.one_of(resizes, crops, colors, layouts), max_size=4),
    pad=st.lists(pads, max_size=1),
    element_type=st.sampled_from(["uint8", "float16", "float32", "float64", "int16"]),
    tail=st.lists(st.one_of(arithmetic, layouts, colors), max_size=4),
    shape=st.tuples(sizes, sizes),
    seed=st.integers(0, 9),
)
def test_any_chain_gives_the_bits_of_the_plain_calls(decode, geometry, pad, element_type, tail, shape, seed):
    if decode.color_layout == "GRAY":
        geometry = [step for step in geometry if not isinstance(step, Color)]
        tail = [step for step in tail if not isinstance(step, Color)]
    pad = pad if all(isinstance(s, Crop | Color | Layout) or s.size or s.max_dimension for s in geometry) else []
    data = encode(noise(*shape, seed))
    check(data, decode, *geometry, *pad, Cast(element_type=element_type), *tail, element_type=element_type)


@settings(max_examples=40, deadline=None)
@given(
    decode=st.builds(Decode, decoder=libraries, color_layout=st.sampled_from(["RGB", "BGR"])),
    before=st.lists(st.one_of(colors, layouts), max_size=2),
    resize=resizes,
    after=st.lists(st.one_of(colors, layouts, crops), max_size=3),
    shape=st.tuples(sizes, sizes),
)
def test_channel_constants_follow_the_colour_of_their_step(decode, before, resize, after, shape):
    data = encode(noise(*shape))
    check(data, decode, *before, Cast(element_type="float32"), IMAGENET, resize, *after, IMAGENET)
    check(data, decode, *before, resize, *after, Cast(element_type="float32"), IMAGENET)


def test_samples_may_be_paths_or_arrays(tmp_path):
    steps = (
        Decode(color_layout="BGR"),
        Resize(shorter_side=9),
        Crop(size=(7, 7)),
        Cast(element_type="float32"),
        IMAGENET,
    )
    pixels = noise(20, 30)
    file = tmp_path / "a.png"
    file.write_bytes(encode(pixels))
    compiled = pipeline(*steps)
    expected = compiled.prepare(file.read_bytes())
    for data in (file, str(file), bytearray(file.read_bytes()), pixels):
        np.testing.assert_array_equal(compiled.prepare(data), expected)
    with pytest.raises(InputError, match=r"none\.png"):
        compiled.prepare(tmp_path / "none.png")
    with pytest.raises(InputError, match="not int"):
        compiled.prepare(3)


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
@pytest.mark.parametrize("resizer", ["pillow", "opencv"])
def test_floating_point_is_resized_in_the_order_that_the_manifest_names(method, resizer):
    data = encode(noise(37, 53))
    resize = Resize(size=(90, 111), method=method, resizer=resizer)
    check(data, Decode(element_type="float32"), IMAGENET, resize, Color(to="BGR"), Layout(to="CHW"))


def test_a_sample_array_is_never_written_to():
    pixels = noise(6, 6)
    pixels.setflags(write=False)
    pipeline(Decode(), Cast(element_type="float32"), IMAGENET).prepare(pixels)
    floats = pixels.astype(np.float32)
    floats.setflags(write=False)
    found = pipeline(Mean(value=3.0), Rescale(value=2.0)).prepare(floats)
    np.testing.assert_array_equal(found[0], (floats - np.float32(3)) / np.float32(2))


def test_arrays_without_decode_pass_through_the_arithmetic():
    values = np.arange(6, dtype=np.int64)
    found = pipeline(Cast(element_type="float32"), Rescale(value=4.0)).prepare(values)
    np.testing.assert_array_equal(found, (values.astype(np.float32) / np.float32(4))[None])
    np.testing.assert_array_equal(pipeline(element_type="int32").prepare(values), values.astype(np.int32)[None])
    with pytest.raises(InputError, match="must be an array"):
        pipeline().prepare(b"text")


@pytest.mark.parametrize("color", ["RGB", "BGR"])
@pytest.mark.parametrize("element_type", ["uint8", "float32"])
def test_gray_in_the_middle(color, element_type):
    data = encode(noise(9, 7))
    steps = (Decode(color_layout=color), Cast(element_type=element_type), Color(to="GRAY"), Crop(percentage=80))
    check(data, *steps)
    check(data, *steps, Color(to="BGR"), Layout(to="CHW"))
    check(
        data, Decode(color_layout=color), Resize(shorter_side=5), Color(to="GRAY"), Color(to="RGB"), Pad(size=(30, 30))
    )


def test_integer_arithmetic_saturates_and_cuts():
    pixels = np.array([[[0, 10, 255]]], np.uint8)
    found = pipeline(Decode(), Mean(value=20.5), element_type="uint8").prepare(pixels)
    assert found[0, 0, 0].tolist() == [0, 0, 234]
    found = pipeline(Decode(), Rescale(value=(0.5, 3, 2)), element_type="uint8").prepare(pixels)
    assert found[0, 0, 0].tolist() == [0, 3, 127]


def test_steps_refuse_what_does_not_fit():
    data = encode(noise(10, 20))
    with pytest.raises(StepError, match=r"11x5 .* larger than the image of 10x20") as caught:
        pipeline(Decode(), Crop(size=(11, 5))).prepare(data)
    assert caught.value.fields["size"] == [10, 20]
    with pytest.raises(StepError, match="smaller"):
        pipeline(Decode(decoder="opencv"), Pad(size=(11, 19))).prepare(data)
    with pytest.raises(StepError, match="3 constants"):
        pipeline(Decode(color_layout="GRAY"), IMAGENET).prepare(data)
    with pytest.raises(StepError, match="3 constants"):
        pipeline(Decode(color_layout="GRAY", data_layout="CHW"), Cast(element_type="float32"), IMAGENET).prepare(data)
    with pytest.raises(StepError, match="height x width"):
        pipeline(Crop(size=(1, 1))).prepare(np.zeros(5, np.float32))
    with pytest.raises(StepError, match="height x width"):
        pipeline(Layout(to="CHW")).prepare(np.zeros(5, np.float32))


def test_steps_that_can_never_work_fail_when_the_pipeline_is_made():
    for resizer, element_type in (("pillow", "int16"), ("opencv", "int32"), ("opencv", "bool")):
        with pytest.raises(StepError, match=f"{resizer} resizer cannot scale"):
            pipeline(Decode(element_type=element_type), Resize(size=(2, 2), resizer=resizer))
    with pytest.raises(StepError, match="not defined for elements of type bool"):
        pipeline(Decode(), Cast(element_type="bool"), Mean(value=1))
    with pytest.raises(StepError, match="only be the first"):
        pipeline(Decode(), Decode())
    with pytest.raises(StepError, match="softmax is not a step of an input"):
        pipeline(Decode(), Softmax())


def test_a_batch_of_one_is_not_copied_and_a_batch_is_contiguous():
    compiled = pipeline(Decode(), Cast(element_type="float32"), Batch())
    samples = [compiled.transform(compiled.decode(encode(noise(4, 5, seed)))) for seed in range(3)]
    assert np.shares_memory(compiled.batch(samples[:1]), samples[0])
    batch = compiled.batch(samples)
    assert batch.shape == (3, 4, 5, 3)
    assert batch.flags.c_contiguous
    np.testing.assert_array_equal(batch[2], samples[2])
    with pytest.raises(ShapeError, match=r"\[4, 5, 3\], \[6, 5, 3\]"):
        compiled.batch([samples[0], np.zeros((6, 5, 3), np.float32)])


def test_nearest_conventions_differ_as_documented():
    ramp = np.repeat(np.arange(4, dtype=np.uint8)[None, :, None], 3, axis=2)
    found = {
        resizer: pipeline(Decode(), Resize(size=(1, 2), method="nearest", resizer=resizer), element_type="uint8")
        .prepare(ramp)[0, 0, :, 0]
        .tolist()
        for resizer in ("pillow", "opencv")
    }
    assert found == {"pillow": [1, 3], "opencv": [0, 2]}
    assert cv2.resize(ramp, (2, 1), interpolation=cv2.INTER_NEAREST)[0, :, 0].tolist() == [0, 2]
