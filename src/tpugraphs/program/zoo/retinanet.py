"""RetinaNet: a ResNet feature pyramid, two convolutional heads and the focal loss (Lin 2017, 1708.02002)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo import boxes, resnet_fpn
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.resnet_fpn import affine_convolve, affine_parameters
from tpugraphs.program.zoo.training import sgd_step
from tpugraphs.program.zoo.values import Value, Values

_STRIDES = (8, 16, 32, 64, 128)
"""Of the levels P3 to P7."""
_ANCHOR_SIZES = (32, 64, 128, 256, 512)
_OCTAVE = (1, 2 ** (1 / 3), 2 ** (2 / 3))
_RATIOS = (0.5, 1.0, 2.0)
_KINDS = len(_OCTAVE) * len(_RATIOS)
_LAYERS = 4
_PRIOR = 0.01
"""How likely every class is at first: without it the many negatives would drown the first steps."""
_ALPHA, _GAMMA = 0.25, 2
_OVERLAP, _LOWEST_SCORE = 0.5, 0.05


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    size: int = 800,
    depth: int = 50,
    channels: int = 256,
    candidates: int = 1000,
    detections: int = 300,
    classes: int = 91,
    objects: int = 8,
) -> Made:
    """Images are size x size, a multiple of 32, with `objects` true boxes each in training.

    The pyramid and the heads have `channels`. At most `candidates` pairs of box and class are taken from each level.
    Frozen batch norms are not weights.
    """
    backbone, frozen = resnet_fpn.resnet_parameters(values, depth)
    rare = values.full(-math.log((1 - _PRIOR) / _PRIOR), _KINDS * classes)
    weights = {
        "backbone": backbone,
        "pyramid": resnet_fpn.pyramid_parameters(values, resnet_fpn.STAGE_CHANNELS[1:], channels),
        "coarser": [affine_parameters(values, 3, 3, channels, channels) for _ in range(2)],
        "classes": _head_parameters(values, channels, rare),
        "deltas": _head_parameters(values, channels, values.zeros(_KINDS * 4)),
    }
    image = values.normal(batch, size, size, 3)
    if mode == "inference":
        function = partial(_infer, classes=classes, candidates=candidates, detections=detections)
        return Made(function, (weights, frozen, image), weights=weights)
    truth = {
        "boxes": values.uniform(batch, objects, 4, low=0.2, high=0.8),
        "classes": values.integers(classes, batch, objects),
    }
    return sgd_step(values, partial(_loss, classes=classes), weights, frozen, image, truth)


def _head_parameters(values: Values, channels: int, bias: Value) -> dict[str, Any]:
    return {
        "hidden": [affine_parameters(values, 3, 3, channels, channels) for _ in range(_LAYERS)],
        "last": {"kernel": resnet_fpn.kernel(values, 3, 3, channels, bias.shape[0]), "bias": bias},
    }


def _infer(
    weights: Any, frozen: Any, image: jax.Array, *, classes: int, candidates: int, detections: int
) -> dict[str, jax.Array]:
    """The best boxes of each image with class and score, the best first; empty places have the score 0."""
    logits, deltas = _heads(weights, frozen, image, classes)
    detect = partial(_detect, size=image.shape[1], candidates=candidates, count=detections)
    return jax.vmap(detect)(logits, deltas)


def _heads(weights: Any, frozen: Any, image: jax.Array, classes: int) -> tuple[list[jax.Array], list[jax.Array]]:
    """For each level the logits [batch, anchors, classes] and deltas [batch, anchors, 4], by the same two heads."""
    features = resnet_fpn.resnet(weights["backbone"], frozen, image)
    levels = resnet_fpn.pyramid(weights["pyramid"], features[1:])
    levels.append(affine_convolve(weights["coarser"][0], levels[-1], stride=2))
    levels.append(affine_convolve(weights["coarser"][1], jax.nn.relu(levels[-1]), stride=2))
    batch = image.shape[0]
    logits = [_head(weights["classes"], x).reshape(batch, -1, classes) for x in levels]
    deltas = [_head(weights["deltas"], x).reshape(batch, -1, 4) for x in levels]
    return logits, deltas


def _head(weights: Any, x: jax.Array) -> jax.Array:
    for layer in weights["hidden"]:
        x = jax.nn.relu(affine_convolve(layer, x))
    return affine_convolve(weights["last"], x)


def _anchors(size: int) -> list[jax.Array]:
    """For each level, three sizes within an octave in three shapes around each pixel."""
    return [
        boxes.anchors(-(-size // stride), stride, [anchor * step for step in _OCTAVE], _RATIOS)
        for stride, anchor in zip(_STRIDES, _ANCHOR_SIZES, strict=True)
    ]


def _detect(
    logits: Sequence[jax.Array], deltas: Sequence[jax.Array], *, size: int, candidates: int, count: int
) -> dict[str, jax.Array]:
    """The best pairs of box and class in one image, boxes of the same class not overlapping."""
    scores, regions, kinds = [], [], []
    for level, anchors in enumerate(_anchors(size)):
        classes = logits[level].shape[-1]
        best, index = jax.lax.top_k(logits[level].reshape(-1), min(candidates, logits[level].size))
        scores.append(best)
        kinds.append(index % classes)
        anchor = index // classes
        regions.append(boxes.clip(boxes.decode(deltas[level][anchor], anchors[anchor]), size))
    region, kind, score = (jnp.concatenate(parts) for parts in (regions, kinds, scores))
    likely = jnp.where(jax.nn.sigmoid(score) > _LOWEST_SCORE, score, -jnp.inf)
    kept, there = boxes.suppress(region, likely, kind, threshold=_OVERLAP, count=count)
    return {"boxes": region[kept], "classes": kind[kept], "scores": jax.nn.sigmoid(score[kept]) * there}


def _loss(weights: Any, frozen: Any, image: jax.Array, truth: dict[str, Any], *, classes: int) -> jax.Array:
    size = image.shape[1]
    logits, deltas = (jnp.concatenate(parts, axis=1) for parts in _heads(weights, frozen, image, classes))
    true_boxes = boxes.from_fractions(truth["boxes"], size)
    of_image = partial(_image_loss, anchors=jnp.concatenate(_anchors(size)))
    return jax.vmap(of_image)(logits, deltas, true_boxes, truth["classes"]).mean()


def _image_loss(
    logits: jax.Array, deltas: jax.Array, true_boxes: jax.Array, true_classes: jax.Array, *, anchors: jax.Array
) -> jax.Array:
    """Every anchor counts for its class, the positive ones for their boxes; both by the number of positive ones."""
    truth, positive, negative = boxes.match(anchors, true_boxes, low=0.4, high=0.5, rescue=True)
    positive, negative = positive >= 0, negative >= 0
    goal = jax.nn.one_hot(true_classes[truth], logits.shape[-1]) * positive[:, None]
    class_loss = _focal_loss(logits, goal).sum(axis=-1) * (positive | negative)
    box_loss = boxes.smooth_l1(deltas - boxes.encode(true_boxes[truth], anchors)) * positive
    return (class_loss + box_loss).sum() / jnp.maximum(positive.sum(), 1)


def _focal_loss(logits: jax.Array, goal: jax.Array) -> jax.Array:
    """FL(p) = -alpha (1 - p)^gamma log p, where p is the probability given to what is so."""
    sign = 1 - 2 * goal
    miss = jax.nn.sigmoid(sign * logits)
    alpha = _ALPHA * goal + (1 - _ALPHA) * (1 - goal)
    return alpha * miss**_GAMMA * jax.nn.softplus(sign * logits)
