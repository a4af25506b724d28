"""Boxes as left, top, right, bottom in pixels: anchors, encoding, overlap, matching, suppression, pooling.

The arithmetic of Faster R-CNN (Ren 2015, 1506.01497) and of RoIAlign (He 2017, 1703.06870), at shapes known beforehand:
an empty place among boxes holds a box without area.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

_LARGEST_LOG_RATIO = math.log(1000 / 16)
"""A predicted side is at most so much longer than its anchor's: its exponential must not overflow."""
_CANONICAL_SIDE, _CANONICAL_LEVEL = 224, 4
"""A box of the size of an ImageNet picture is pooled from P4."""


def anchors(side: int, stride: int, sizes: Sequence[float], ratios: Sequence[float]) -> jax.Array:
    """Boxes of each size and ratio of height to width around each cell of a square map: [side * side * kinds, 4]."""
    halves = [(size / math.sqrt(ratio) / 2, size * math.sqrt(ratio) / 2) for ratio in ratios for size in sizes]
    kinds = np.array([(-x, -y, x, y) for x, y in halves], np.float32).round()
    steps = jnp.arange(side, dtype=jnp.float32) * stride
    y, x = jnp.meshgrid(steps, steps, indexing="ij")
    return (jnp.stack([x, y, x, y], axis=-1)[:, :, None] + kinds).reshape(-1, 4)


def encode(boxes: jax.Array, anchors: jax.Array, scales: Sequence[float] = (1, 1, 1, 1)) -> jax.Array:
    """How far each box is from its anchor, in units of the anchor: what `decode` undoes."""
    centre, side = _centre_and_side(boxes)
    anchor_centre, anchor_side = _centre_and_side(anchors)
    # An empty place has no side; what comes out for it is masked later, but must be finite.
    side, anchor_side = jnp.maximum(side, 1), jnp.maximum(anchor_side, 1)
    deltas = [(centre - anchor_centre) / anchor_side, jnp.log(side / anchor_side)]
    return jnp.concatenate(deltas, axis=-1) * np.array(scales, np.float32)


def decode(deltas: jax.Array, anchors: jax.Array, scales: Sequence[float] = (1, 1, 1, 1)) -> jax.Array:
    shift, log_ratio = jnp.split(deltas / np.array(scales, np.float32), 2, axis=-1)
    centre, side = _centre_and_side(anchors)
    centre = centre + shift * side
    side = side * jnp.exp(jnp.minimum(log_ratio, _LARGEST_LOG_RATIO))
    return jnp.concatenate([centre - side / 2, centre + side / 2], axis=-1)


def _centre_and_side(boxes: jax.Array) -> tuple[jax.Array, jax.Array]:
    low, high = jnp.split(boxes, 2, axis=-1)
    return (low + high) / 2, high - low


def clip(boxes: jax.Array, size: float) -> jax.Array:
    """To a square image."""
    return jnp.clip(boxes, 0, size)


def from_fractions(boxes: jax.Array, size: float) -> jax.Array:
    """From centre and sides, each as a fraction of the image."""
    centre, side = jnp.split(boxes * size, 2, axis=-1)
    return clip(jnp.concatenate([centre - side / 2, centre + side / 2], axis=-1), size)


def area(boxes: jax.Array) -> jax.Array:
    return jnp.prod(jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0), axis=-1)


def overlap(a: jax.Array, b: jax.Array) -> jax.Array:
    """Intersection over union of each of a with each of b: [n, m]."""
    low = jnp.maximum(a[:, None, :2], b[None, :, :2])
    high = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = area(jnp.concatenate([low, high], axis=-1))
    return shared / jnp.maximum(area(a)[:, None] + area(b)[None] - shared, 1e-6)


def match(
    boxes: jax.Array, truths: jax.Array, *, low: float, high: float, rescue: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """For each box its most overlapping truth, and that overlap where the box is positive, and where it is negative.

    Elsewhere these are -1. With `rescue` the best boxes of a truth are positive however little they overlap.
    """
    overlaps = overlap(boxes, truths)
    best = overlaps.max(axis=1)
    positive = best >= high
    if rescue:
        positive |= ((overlaps == overlaps.max(axis=0)) & (overlaps > 0)).any(axis=1)
    negative = (best < low) & ~positive
    return overlaps.argmax(axis=1), jnp.where(positive, best, -1), jnp.where(negative, best, -1)


def smooth_l1(difference: jax.Array, beta: float = 1 / 9) -> jax.Array:
    """Of deltas [n, 4], summed over the four: quadratic where they are smaller than beta."""
    size = jnp.abs(difference)
    return jnp.where(size < beta, size**2 / (2 * beta), size - beta / 2).sum(axis=-1)


def suppress(
    boxes: jax.Array, scores: jax.Array, groups: jax.Array, *, threshold: float, count: int
) -> tuple[jax.Array, jax.Array]:
    """The `count` best boxes that do not overlap a better one of their group, and which of these are there at all."""

    def keep_best(live: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        best = live.argmax()
        beaten = (overlap(boxes[best][None], boxes)[0] > threshold) & (groups == groups[best])
        return jnp.where(beaten, -jnp.inf, live).at[best].set(-jnp.inf), (best, live[best] > -jnp.inf)

    live = jnp.where(area(boxes) > 0, scores, -jnp.inf)
    return jax.lax.scan(keep_best, live, length=count)[1]


def pyramid_align(levels: Sequence[jax.Array], boxes: jax.Array, size: int, bins: int) -> jax.Array:
    """RoIAlign of each box from the level for its size, of maps P2, P3, ... of a square image: [n, bins, bins, c]."""
    sides = np.array([level.shape[0] for level in levels])
    starts = np.cumsum([0, *(sides**2)[:-1]])
    finest = int(math.log2(size // sides[0]))
    scale = jnp.log2(jnp.sqrt(jnp.maximum(area(boxes), 1)) / _CANONICAL_SIDE + 1e-6)
    level = jnp.clip(jnp.floor(_CANONICAL_LEVEL + scale), finest, finest + len(levels) - 1).astype(jnp.int32) - finest
    side = jnp.asarray(sides, jnp.int32)[level]
    pixels = jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in levels])
    return roi_align(pixels, jnp.asarray(starts, jnp.int32)[level], side, boxes * (side / size)[:, None], bins)


def roi_align(
    pixels: jax.Array, start: jax.Array, side: jax.Array, boxes: jax.Array, bins: int, samples: int = 2
) -> jax.Array:
    """The mean of samples x samples points in each of bins x bins cells of each box.

    Box i is in the square map of side[i] x side[i] whose rows begin at pixels[start[i]], in its coordinates.
    """
    count, points = len(boxes), bins * samples
    low = boxes[:, :2]
    extent = jnp.maximum(boxes[:, 2:] - low, 1)
    at = (np.arange(points, dtype=np.float32) + 0.5) / points
    xs, ys = (low[:, axis, None] + at * extent[:, axis, None] for axis in (0, 1))
    rows, columns = _neighbours(ys, side), _neighbours(xs, side)
    sampled = jnp.zeros(())
    for row, row_weight in rows:
        for column, column_weight in columns:
            index = start[:, None, None] + row[:, :, None] * side[:, None, None] + column[:, None, :]
            weight = row_weight[:, :, None] * column_weight[:, None, :]
            sampled += weight[..., None] * pixels.at[index].get(mode="promise_in_bounds")
    return sampled.reshape(count, bins, samples, bins, samples, -1).mean(axis=(2, 4))


def _neighbours(at: jax.Array, side: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """The two whole places around each place along an axis, and their weights in its linear interpolation."""
    last = side[:, None] - 1
    at = jnp.clip(at, 0, last)
    before = jnp.floor(at)
    fraction = at - before
    index = before.astype(jnp.int32)
    return [(index, 1 - fraction), (jnp.minimum(index + 1, last), fraction)]
