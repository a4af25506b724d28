"""Names of the release's feature columns: 140 a node, 18 a configurable node, 24 a kernel."""

from __future__ import annotations


def _first(name: str, count: int) -> list[str]:
    """The first `count` values of a list, zero padded."""
    return [f"{name}_{i}" for i in range(count)]


def _first_sum_product(name: str, count: int) -> list[str]:
    """The first `count` values, then sum and product over the whole list."""
    return [*_first(name, count), f"{name}_sum", f"{name}_product"]


_ELEMENT_TYPES = ("invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 tuple opaque token").split()

ELEMENT_TYPE_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
"""XLA's numbers of these types; types that came later have no column."""

NODE_FEATURES: tuple[str, ...] = (
    "is_root",
    "element_size_in_bits",
    *(f"element_type_{name}" for name in _ELEMENT_TYPES),
    *_first_sum_product("shape_dim", 6),
    "tuple_elements",
    "parameter_number",
    *_first("dimension", 6),
    *_first_sum_product("window_size", 6),
    *_first_sum_product("window_stride", 6),
    *_first_sum_product("window_padding_low", 6),
    *_first_sum_product("window_padding_high", 6),
    *_first_sum_product("window_dilation", 6),
    *_first_sum_product("base_dilation", 6),
    *_first("window_reversal", 6),
    "window_reversal_true",
    "window_reversal_false",
    "convolution_input_batch_dim",
    "convolution_input_feature_dim",
    *_first("convolution_input_spatial_dim", 4),
    "convolution_kernel_input_feature_dim",
    "convolution_kernel_output_feature_dim",
    *_first("convolution_kernel_spatial_dim", 4),
    "convolution_output_batch_dim",
    "convolution_output_feature_dim",
    "feature_group_count",
    "batch_group_count",
    *_first_sum_product("slice_start", 2),
    *_first_sum_product("slice_stride", 2),
    *_first_sum_product("slice_limit", 2),
    *_first_sum_product("dynamic_slice_size", 2),
    *_first_sum_product("padding_low", 2),
    *_first_sum_product("padding_high", 2),
    "is_stable",
    *_first("layout_minor_to_major", 6),
)

LAYOUT_CONFIG_FEATURES: tuple[str, ...] = (
    *_first("output_layout", 6),
    *_first("input_layout", 6),
    *_first("kernel_layout", 6),
)

TILE_CONFIG_FEATURES: tuple[str, ...] = (
    *_first_sum_product("kernel_bounds", 6),
    *_first_sum_product("output_bounds", 6),
    *_first_sum_product("input_bounds", 6),
)
