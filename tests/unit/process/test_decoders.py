import sys
from io import BytesIO

import cv2
import numpy as np
import pytest
from PIL import Image

from mlmodelscope.core.errors import EnvironmentMissingError, InputError
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import Crop, Decode, Layout
from mlmodelscope.process.input import input_pipeline


def encode(array, kind="PNG", **options):
    stream = BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def pipeline(*steps, element_type="float32"):
    return input_pipeline(ModelInput(type="image", element_type=element_type, steps=steps))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"])
@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY"])
def test_decode_is_the_library_call(kind, decoder, color):
    data = encode(noise(19, 23), kind)
    if decoder == "pillow":
        expected = np.asarray(Image.open(BytesIO(data)).convert("L" if color == "GRAY" else "RGB"))
        expected = expected[:, :, ::-1] if color == "BGR" else expected
    else:
        flags = cv2.IMREAD_GRAYSCALE if color == "GRAY" else cv2.IMREAD_COLOR
        expected = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        expected = expected[:, :, ::-1] if color == "RGB" else expected
    found = pipeline(Decode(decoder=decoder, color_layout=color), element_type="uint8").prepare(data)[0]
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
def test_orientation_tags_are_ignored(decoder):
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = pipeline(Decode(decoder=decoder), element_type="uint8").prepare(encode(noise(8, 12), "JPEG", exif=exif))
    assert turned.shape == (1, 8, 12, 3)


def test_special_images_decode_as_documented():
    def decoded(array, decoder, color="RGB"):
        return pipeline(Decode(decoder=decoder, color_layout=color), element_type="uint8").prepare(encode(array))[0]

    deep = np.array([[0, 255, 256, 511, 65535]], np.uint16)
    assert decoded(deep, "pillow")[0, :, 0].tolist() == [0, 255, 255, 255, 255]
    assert decoded(deep, "opencv")[0, :, 0].tolist() == [0, 0, 1, 1, 255]
    clear = np.array([[[10, 20, 30, 0], [10, 20, 30, 128]]], np.uint8)
    for decoder in ("pillow", "opencv"):
        assert decoded(clear, decoder)[0].tolist() == [[10, 20, 30], [10, 20, 30]]


def test_palette_with_transparency_warns_nobody():
    stream = BytesIO()
    palette = Image.fromarray(noise(4, 5)).convert("P")
    palette.save(stream, "PNG", transparency=bytes(range(len(palette.palette.colors))))
    found = pipeline(Decode(), element_type="uint8").prepare(stream.getvalue())
    assert found.shape == (1, 4, 5, 3)


def test_cmyk_is_converted():
    stream = BytesIO()
    Image.fromarray(noise(8, 8)).convert("CMYK").save(stream, "JPEG")
    found = pipeline(Decode(), element_type="uint8").prepare(stream.getvalue())
    np.testing.assert_array_equal(found[0], np.asarray(Image.open(BytesIO(stream.getvalue())).convert("RGB")))


@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_truncated_images_are_refused(decoder, kind, share, capfd):
    data = encode(noise(64, 64), kind)
    with pytest.raises(InputError, match="cannot decode the image"):
        pipeline(Decode(decoder=decoder)).prepare(data[: int(len(data) * share)])


@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + b"0" * 50, b"\xff\xd8\xff\xe0"])
def test_what_is_no_image_is_refused(decoder, data, capfd):
    with pytest.raises(InputError) as caught:
        pipeline(Decode(decoder=decoder)).prepare(data)
    assert "BytesIO" not in caught.value.message
    assert caught.value.fields["size_bytes"] == len(data)


@pytest.mark.parametrize("pixels", [16, 49])
def test_too_many_pixels_are_refused(monkeypatch, pixels):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pixels)
    with pytest.raises(InputError, match="refusing"):
        pipeline(Decode()).prepare(encode(noise(8, 9)))


@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("color", ["RGB", "BGR"])
def test_pixels_given_as_an_array_equal_those_of_the_file(decoder, color):
    pixels = noise(11, 13)
    compiled = pipeline(Decode(decoder=decoder, color_layout=color), Crop(percentage=50), Layout(to="CHW"))
    np.testing.assert_array_equal(compiled.prepare(pixels), compiled.prepare(encode(pixels)))
    gray = np.repeat(pixels[:, :, :1], 3, axis=2)
    np.testing.assert_array_equal(compiled.prepare(pixels[:, :, 0]), compiled.prepare(gray))


def test_pixels_given_as_an_array_become_gray_as_the_library_mixes_them():
    pixels = noise(11, 13)
    found = {
        decoder: pipeline(Decode(decoder=decoder, color_layout="GRAY"), element_type="uint8").prepare(pixels)[
            0, :, :, 0
        ]
        for decoder in ("pillow", "opencv")
    }
    np.testing.assert_array_equal(found["pillow"], np.asarray(Image.fromarray(pixels).convert("L")))
    np.testing.assert_array_equal(found["opencv"], cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))


@pytest.mark.parametrize("shape", [(4, 4, 4), (0, 4, 3), (4,)])
def test_arrays_that_are_no_image_are_refused(shape):
    with pytest.raises(InputError, match="height x width x 3"):
        pipeline(Decode()).prepare(np.zeros(shape, np.uint8))
    with pytest.raises(InputError, match="float32"):
        pipeline(Decode()).prepare(np.zeros((4, 4, 3), np.float32))


def test_missing_opencv_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(EnvironmentMissingError, match="OpenCV"):
        pipeline(Decode(decoder="opencv"))
