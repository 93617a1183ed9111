"""Published payloads of ResNet-50 come out of its shapes, with plain arithmetic."""

from __future__ import annotations

import math

import pytest

from dtjax.training.models import resnet50_shapes

SIZES = [math.prod(shape) for _, shape in resnet50_shapes()]


def test_tensors_and_parameters() -> None:
    assert len(SIZES) == 161
    assert sum(SIZES) == 25_559_081
    thousand = resnet50_shapes(1000)
    assert sum(math.prod(shape) for _, shape in thousand) == 25_557_032  # torchvision's
    names = [name for name, _ in resnet50_shapes()]
    assert len(set(names)) == 161
    kernels = [shape for name, shape in resnet50_shapes() if name.endswith("kernel")]
    assert len(kernels) == 54 and sum(len(shape) == 4 for shape in kernels) == 53
    assert max(SIZES) == 3 * 3 * 512 * 512 and min(SIZES) == 64


def test_channels_follow_each_other() -> None:
    shapes = dict(resnet50_shapes())
    entering = shapes["stem/conv/kernel"][-1]
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(1, blocks + 1):
            first, second, third = (
                shapes[f"stage{stage}/block{block}/conv{i}/kernel"] for i in (1, 2, 3)
            )
            assert first[:3] == (1, 1, entering)
            assert second == (3, 3, first[-1], first[-1])
            assert third == (1, 1, second[-1], 4 * second[-1])
            shortcut = shapes.get(f"stage{stage}/block{block}/shortcut/kernel")
            assert shortcut == ((1, 1, entering, third[-1]) if block == 1 else None)
            entering = third[-1]
    assert shapes["head/kernel"] == (entering, 1001)


def test_published_bytes() -> None:
    entries = sum(SIZES)
    assert 4 * entries == 102_236_324
    for share, published in ((0.01, 2_044_264), (0.1, 20_446_616), (0.25, 51_118_160)):
        assert 8 * sum(max(1, int(share * size)) for size in SIZES) == published
    assert 4 * sum(max(1, int(0.01 * size)) for size in SIZES) == 1_022_132  # shared seed
    assert math.ceil(entries / 8) == 3_194_886
    assert math.ceil(2 * entries / 8) == 6_389_771


@pytest.mark.parametrize("classes", [0, 2.0])
def test_errors(classes: int) -> None:
    with pytest.raises(ValueError, match="resnet50: classes must be an integer 1 or more, got"):
        resnet50_shapes(classes)
