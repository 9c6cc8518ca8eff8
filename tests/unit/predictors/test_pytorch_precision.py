from types import SimpleNamespace

import pytest

from mlmodelscope.predictors.pytorch import _automatic_type


def torch_of(version, is_on):
    """What PyTorch answers when asked whether it casts on its own, and how it may be asked."""
    told = {"cpu": "torch.bfloat16", "cuda": "torch.float16"}
    if version >= (2, 4):
        return SimpleNamespace(is_autocast_enabled=lambda kind: is_on, get_autocast_dtype=told.get)
    return SimpleNamespace(
        is_autocast_enabled=lambda: is_on,
        is_autocast_cpu_enabled=lambda: is_on,
        get_autocast_cpu_dtype=lambda: told["cpu"],
        get_autocast_gpu_dtype=lambda: told["cuda"],
    )


@pytest.mark.parametrize("version", [(2, 0), (2, 13)])
@pytest.mark.parametrize(("kind", "told"), [("cpu", "torch.bfloat16"), ("cuda", "torch.float16")])
def test_every_version_tells_to_what_it_casts(version, kind, told):
    device = SimpleNamespace(type=kind)
    assert _automatic_type(torch_of(version, is_on=True), device) == told
    assert _automatic_type(torch_of(version, is_on=False), device) is None
