"""Mask R-CNN on a ResNet feature pyramid (He 2017, 1703.06870), every number of boxes fixed beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tpugraphs.program.zoo import boxes, resnet_fpn
from tpugraphs.program.zoo.made import Made
from tpugraphs.program.zoo.resnet_fpn import affine_convolve, affine_parameters, dense
from tpugraphs.program.zoo.training import sgd_step
from tpugraphs.program.zoo.values import Values

_STRIDES = (4, 8, 16, 32, 64)
"""Of the levels P2 to P6. Boxes are pooled from all but the last."""
_ANCHOR_SIZES = (32, 64, 128, 256, 512)
_RATIOS = (0.5, 1.0, 2.0)
_PROPOSAL_OVERLAP, _DETECTION_OVERLAP, _LOWEST_SCORE = 0.7, 0.5, 0.05
_CANDIDATES_PER_DETECTION = 10
_BOX_SCALES = (10, 10, 5, 5)
"""The box head's deltas are this much larger, so that its losses weigh alike."""
_BOX_BINS, _MASK_BINS = 7, 14
_ANCHOR_SAMPLES = 256
_POSITIVE_SHARE = 0.25
"""Of the regions that the heads are trained on."""


def make(
    values: Values,
    *,
    mode: str,
    batch: int,
    size: int = 800,
    depth: int = 50,
    channels: int = 256,
    proposals: int = 1000,
    detections: int = 100,
    classes: int = 91,
    objects: int = 8,
    samples: int = 512,
) -> Made:
    """Images are size x size, a multiple of 32; class 0 is the background; frozen batch norms are not weights.

    The pyramid and the heads have `channels`, the hidden layers for boxes four times as many. Training has `objects`
    true boxes in each image, and trains the heads on `samples` of its proposals.
    """
    weights, frozen = _parameters(values, depth, channels, classes)
    image = values.normal(batch, size, size, 3)
    if mode == "inference":
        function = partial(_infer, proposals=proposals, detections=detections)
        return Made(function, (weights, frozen, image), weights=weights)
    truth = {
        "boxes": values.uniform(batch, objects, 4, low=0.2, high=0.8),
        "classes": values.integers(classes - 1, batch, objects),
        "masks": values.integers(2, batch, objects, size, size),
    }
    loss = partial(_loss, proposals=proposals, samples=samples)
    return sgd_step(values, loss, weights, frozen, image, truth)


def _parameters(values: Values, depth: int, channels: int, classes: int) -> tuple[dict[str, Any], Any]:
    backbone, frozen = resnet_fpn.resnet_parameters(values, depth)
    kinds, hidden = len(_RATIOS), 4 * channels
    weights = {
        "backbone": backbone,
        "pyramid": resnet_fpn.pyramid_parameters(values, resnet_fpn.STAGE_CHANNELS, channels),
        "regions": {
            "convolution": affine_parameters(values, 3, 3, channels, channels),
            "objectness": affine_parameters(values, 1, 1, channels, kinds),
            "deltas": affine_parameters(values, 1, 1, channels, kinds * 4),
        },
        "boxes": {
            "hidden": [
                affine_parameters(values, _BOX_BINS**2 * channels, hidden),
                affine_parameters(values, hidden, hidden),
            ],
            "classes": affine_parameters(values, hidden, classes),
            "deltas": affine_parameters(values, hidden, classes * 4),
        },
        "masks": {
            "convolutions": [affine_parameters(values, 3, 3, channels, channels) for _ in range(4)],
            "upsample": affine_parameters(values, 2, 2, channels, channels),
            "classes": affine_parameters(values, 1, 1, channels, classes),
        },
    }
    return weights, frozen


def _infer(weights: Any, frozen: Any, image: jax.Array, *, proposals: int, detections: int) -> dict[str, jax.Array]:
    """The best boxes of each image with class, score and mask, the best first; empty places have the score 0."""
    size = image.shape[1]
    levels = _levels(weights, frozen, image)
    regions = jax.vmap(partial(_propose, size=size, count=proposals))(*_regions(weights["regions"], levels))
    logits, deltas = _box_head(weights["boxes"], _pool(levels, regions, size, _BOX_BINS))
    found = jax.vmap(partial(_detect, size=size, count=detections))(regions, logits, deltas)
    masks = _mask_head(weights["masks"], _pool(levels, found["boxes"], size, _MASK_BINS))
    masks = jnp.take_along_axis(masks, found["classes"][:, :, None, None, None], axis=-1)[..., 0]
    return {**found, "masks": jax.nn.sigmoid(masks)}


def _levels(weights: Any, frozen: Any, image: jax.Array) -> list[jax.Array]:
    """P2 to P6, the last of every second pixel of P5."""
    features = resnet_fpn.resnet(weights["backbone"], frozen, image)
    levels = resnet_fpn.pyramid(weights["pyramid"], features)
    return [*levels, levels[-1][:, ::2, ::2]]


def _regions(weights: Any, levels: Sequence[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
    """For each level the objectness [batch, anchors] and deltas [batch, anchors, 4], by the same layers."""
    hidden = [jax.nn.relu(affine_convolve(weights["convolution"], x)) for x in levels]
    batch = levels[0].shape[0]
    objectness = [affine_convolve(weights["objectness"], x).reshape(batch, -1) for x in hidden]
    deltas = [affine_convolve(weights["deltas"], x).reshape(batch, -1, 4) for x in hidden]
    return objectness, deltas


def _anchors(size: int) -> list[jax.Array]:
    """For each level, one size in three shapes around each pixel."""
    return [
        boxes.anchors(-(-size // stride), stride, [anchor], _RATIOS)
        for stride, anchor in zip(_STRIDES, _ANCHOR_SIZES, strict=True)
    ]


def _propose(objectness: list[jax.Array], deltas: list[jax.Array], *, size: int, count: int) -> jax.Array:
    """The boxes of one image that are most likely something: the best of each level, then the best of all."""
    scores, regions, groups = [], [], []
    for level, anchors in enumerate(_anchors(size)):
        best, index = jax.lax.top_k(objectness[level], min(count, len(anchors)))
        scores.append(best)
        regions.append(boxes.clip(boxes.decode(deltas[level][index], anchors[index]), size))
        groups.append(jnp.full(len(index), level))
    candidates = jnp.concatenate(regions)
    kept, there = boxes.suppress(
        candidates, jnp.concatenate(scores), jnp.concatenate(groups), threshold=_PROPOSAL_OVERLAP, count=count
    )
    return candidates[kept] * there[:, None]


def _pool(levels: Sequence[jax.Array], regions: jax.Array, size: int, bins: int) -> jax.Array:
    """From P2 to P5: [batch, n, bins, bins, channels]."""
    return jax.vmap(partial(boxes.pyramid_align, size=size, bins=bins))(levels[:-1], regions)


def _box_head(weights: Any, pooled: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Class logits [batch, n, classes], and deltas for each class [batch, n, classes, 4]."""
    x = pooled.reshape(*pooled.shape[:2], -1)
    for layer in weights["hidden"]:
        x = jax.nn.relu(dense(layer, x))
    return dense(weights["classes"], x), dense(weights["deltas"], x).reshape(*x.shape[:2], -1, 4)


def _detect(regions: jax.Array, logits: jax.Array, deltas: jax.Array, *, size: int, count: int) -> dict[str, jax.Array]:
    """The best pairs of region and class in one image, boxes of the same class not overlapping."""
    scores = jax.nn.softmax(logits)[:, 1:]
    candidates = min(count * _CANDIDATES_PER_DETECTION, scores.size)
    score, index = jax.lax.top_k(scores.reshape(-1), candidates)
    region, kind = index // scores.shape[1], index % scores.shape[1] + 1
    found = boxes.clip(boxes.decode(deltas[region, kind], regions[region], _BOX_SCALES), size)
    kept, there = boxes.suppress(
        found, jnp.where(score > _LOWEST_SCORE, score, -jnp.inf), kind, threshold=_DETECTION_OVERLAP, count=count
    )
    return {"boxes": found[kept], "classes": kind[kept], "scores": score[kept] * there}


def _mask_head(weights: Any, pooled: jax.Array) -> jax.Array:
    """Logits for each class at twice the resolution: [batch, n, 28, 28, classes]."""
    x = pooled.reshape(-1, *pooled.shape[2:])
    for layer in weights["convolutions"]:
        x = jax.nn.relu(affine_convolve(layer, x))
    upsample = weights["upsample"]
    x = jax.lax.conv_transpose(x, upsample["kernel"], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    logits = affine_convolve(weights["classes"], jax.nn.relu(x + upsample["bias"]))
    return logits.reshape(*pooled.shape[:2], *logits.shape[1:])


def _loss(
    weights: Any, frozen: Any, image: jax.Array, truth: dict[str, Any], *, proposals: int, samples: int
) -> jax.Array:
    """The five losses: class and box of anchors, class and box of the sampled regions, masks of the positive ones."""
    size = image.shape[1]
    levels = _levels(weights, frozen, image)
    objectness, deltas = _regions(weights["regions"], levels)
    true_boxes = boxes.from_fractions(truth["boxes"], size)
    region_loss = jax.vmap(partial(_region_loss, size=size))(objectness, deltas, true_boxes)

    propose = jax.vmap(partial(_propose, size=size, count=proposals))
    regions = propose(*jax.lax.stop_gradient((objectness, deltas)))
    regions = jnp.concatenate([regions, true_boxes], axis=1)
    choose = partial(_sample, count=samples, share=_POSITIVE_SHARE, low=0.5, high=0.5, rescue=False)
    sample = jax.vmap(choose)(regions, true_boxes)
    regions = jnp.take_along_axis(regions, sample.picked[..., None], axis=1)
    logits, box_deltas = _box_head(weights["boxes"], _pool(levels, regions, size, _BOX_BINS))
    box_loss = jax.vmap(_box_loss)(logits, box_deltas, regions, sample, true_boxes, truth["classes"])

    positives = int(samples * _POSITIVE_SHARE)
    regions, sample = jax.tree.map(lambda x: x[:, :positives], (regions, sample))
    masks = _mask_head(weights["masks"], _pool(levels, regions, size, _MASK_BINS))
    mask_loss = jax.vmap(_mask_loss)(masks, regions, sample, truth["classes"], truth["masks"])
    return (region_loss + box_loss + mask_loss).mean()


class _Sample(NamedTuple):
    """Regions to train on, places for positive ones first: all [n]."""

    picked: jax.Array
    truth: jax.Array
    """The number of the matching truth."""
    positive: jax.Array
    there: jax.Array
    """Whether the place is taken."""


def _sample(
    regions: jax.Array, true_boxes: jax.Array, *, count: int, share: float, low: float, high: float, rescue: bool
) -> _Sample:
    """Those that overlap most, of the positive and of the negative regions; the paper draws them at random."""
    truth, positive, negative = boxes.match(regions, true_boxes, low=low, high=high, rescue=rescue)
    positives = int(count * share)
    chosen = [jax.lax.top_k(positive, positives), jax.lax.top_k(negative, count - positives)]
    overlap, index = (jnp.concatenate(parts) for parts in zip(*chosen, strict=True))
    there = overlap >= 0
    return _Sample(index, truth[index], there & (jnp.arange(count) < positives), there)


def _region_loss(
    objectness: Sequence[jax.Array], deltas: Sequence[jax.Array], true_boxes: jax.Array, *, size: int
) -> jax.Array:
    """Of the anchors of one image."""
    anchors = jnp.concatenate(_anchors(size))
    sample = _sample(anchors, true_boxes, count=_ANCHOR_SAMPLES, share=0.5, low=0.3, high=0.7, rescue=True)
    class_loss = _binary_cross_entropy(jnp.concatenate(objectness)[sample.picked], sample.positive)
    goal = boxes.encode(true_boxes[sample.truth], anchors[sample.picked])
    box_loss = boxes.smooth_l1(jnp.concatenate(deltas)[sample.picked] - goal)
    return _mean(class_loss * sample.there + box_loss * sample.positive, sample.there)


def _box_loss(
    logits: jax.Array,
    deltas: jax.Array,
    regions: jax.Array,
    sample: _Sample,
    true_boxes: jax.Array,
    true_classes: jax.Array,
) -> jax.Array:
    """Of the sampled regions of one image."""
    label = _label(sample, true_classes)[:, None]
    class_loss = -jnp.take_along_axis(jax.nn.log_softmax(logits), label, axis=1)[:, 0]
    goal = boxes.encode(true_boxes[sample.truth], regions, _BOX_SCALES)
    box_loss = boxes.smooth_l1(jnp.take_along_axis(deltas, label[..., None], axis=1)[:, 0] - goal)
    return _mean(class_loss * sample.there + box_loss * sample.positive, sample.there)


def _mask_loss(
    logits: jax.Array, regions: jax.Array, sample: _Sample, true_classes: jax.Array, true_masks: jax.Array
) -> jax.Array:
    """Of the positive regions of one image: the mask of the true class against the true mask seen through the box."""
    bins, size = logits.shape[1], true_masks.shape[1]
    label = _label(sample, true_classes)[:, None, None, None]
    pixels = true_masks.reshape(-1, 1).astype(jnp.float32)
    goal = boxes.roi_align(pixels, sample.truth * size**2, jnp.full(len(regions), size), regions, bins)
    loss = _binary_cross_entropy(jnp.take_along_axis(logits, label, axis=3), goal).mean(axis=(1, 2, 3))
    return _mean(loss * sample.positive, sample.positive)


def _label(sample: _Sample, true_classes: jax.Array) -> jax.Array:
    """The classes of things come after that of the background."""
    return jnp.where(sample.positive, true_classes[sample.truth] + 1, 0)


def _binary_cross_entropy(logits: jax.Array, goal: jax.Array) -> jax.Array:
    return jax.nn.softplus(logits) - logits * goal


def _mean(losses: jax.Array, there: jax.Array) -> jax.Array:
    return losses.sum() / jnp.maximum(there.sum(), 1)
