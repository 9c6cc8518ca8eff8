"""The preprocess function in docs/guides/write-a-manifest.md works as printed, on the bytes of one picture."""

import io
import re
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from mlmodelscope.process.portable import call_function, load_function

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "write-a-manifest.md"


def test_the_function_of_the_guide_makes_the_array_of_one_input():
    [text] = re.findall(r"```yaml\n(preprocess:.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    source = yaml.safe_load(text)["preprocess"]
    file = io.BytesIO()
    Image.new("RGB", (320, 200), (255, 127, 0)).save(file, "png")
    array = call_function("preprocess", load_function("preprocess", "fun", source), {}, file.getvalue())
    assert (array.shape, array.dtype) == ((3, 224, 224), np.float32)
    assert array[:, 0, 0].tolist() == [1.0, 0.0, -127 / 128]
