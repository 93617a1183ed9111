"""Shapes of the parameters of published models, for accounts of what is sent; nothing is built."""

from __future__ import annotations

from dtjax.core import checks

_BLOCKS = (3, 4, 6, 3)  # of the four stages
_WIDENING = 4  # channels that a block returns, over those in its middle


def resnet50(classes: int = 1001) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """List the 161 parameter tensors of ResNet-50, from the input on.

    53 convolutions without bias, a scale and a bias of batch normalisation after each, and the
    kernel and bias of the last layer. Running means and variances are no parameters.

    Args:
        classes: of the last layer, 1 or more. The papers that publish 25,559,081 parameters have
            1,001 (ImageNet and a background class); 1,000 are 2,049 fewer.

    Returns:
        (name, shape) of each tensor; kernels as (height, width, in, out) or (in, out).

    Raises:
        ValueError: if `classes` is no integer or below 1.

    Example:
        >>> import math
        >>> shapes = resnet50()
        >>> len(shapes), sum(math.prod(shape) for _, shape in shapes)
        (161, 25559081)
        >>> shapes[0]
        ('stem/conv/kernel', (7, 7, 3, 64))

    Reference:
        He et al., "Deep residual learning for image recognition", CVPR 2016, table 1.
    """
    classes = checks.integer("resnet50", "classes", classes, low=1)
    tensors = _convolution("stem/conv", 7, 3, 64)
    entering = 64
    for stage, blocks in enumerate(_BLOCKS):
        middle = 64 * 2**stage
        leaving = _WIDENING * middle
        for block in range(blocks):
            name = f"stage{stage + 1}/block{block + 1}"
            tensors += _convolution(f"{name}/conv1", 1, entering, middle)
            tensors += _convolution(f"{name}/conv2", 3, middle, middle)
            tensors += _convolution(f"{name}/conv3", 1, middle, leaving)
            if not block:  # the only ones whose input has another shape than their output
                tensors += _convolution(f"{name}/shortcut", 1, entering, leaving)
            entering = leaving
    tensors += [("head/kernel", (entering, classes)), ("head/bias", (classes,))]
    return tuple(tensors)


def _convolution(
    name: str, size: int, entering: int, leaving: int
) -> list[tuple[str, tuple[int, ...]]]:
    """List the tensors of a convolution and of the batch normalisation after it."""
    return [
        (f"{name}/kernel", (size, size, entering, leaving)),
        (f"{name}/norm/scale", (leaving,)),
        (f"{name}/norm/bias", (leaving,)),
    ]
