"""The names stand where the release has the columns."""

from __future__ import annotations

import pytest

from tpugraphs.graph import LAYOUT_CONFIG_FEATURES, NODE_FEATURES, OPCODES, TILE_CONFIG_FEATURES, opcode_name


def test_there_are_as_many_names_as_columns() -> None:
    assert (len(NODE_FEATURES), len(LAYOUT_CONFIG_FEATURES), len(TILE_CONFIG_FEATURES)) == (140, 18, 24)
    for names in (NODE_FEATURES, LAYOUT_CONFIG_FEATURES, TILE_CONFIG_FEATURES, OPCODES):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (0, "is_root"),
        (2, "element_type_invalid"),
        (20, "element_type_token"),
        (21, "shape_dim_0"),
        (28, "shape_dim_product"),
        (30, "parameter_number"),
        (37, "window_size_0"),
        (45, "window_stride_0"),
        (85, "window_reversal_0"),
        (93, "convolution_input_batch_dim"),
        (107, "feature_group_count"),
        (109, "slice_start_0"),
        (113, "slice_stride_0"),
        (117, "slice_limit_0"),
        (125, "padding_low_0"),
        (133, "is_stable"),
        (139, "layout_minor_to_major_5"),
    ],
)
def test_columns_stand_where_the_release_has_them(column: int, name: str) -> None:
    assert NODE_FEATURES[column] == name


@pytest.mark.parametrize(
    ("opcode", "name"), [(0, "unknown"), (26, "convolution"), (34, "dot"), (75, "reshape"), (120, "tan")]
)
def test_opcodes_have_the_releases_ids(opcode: int, name: str) -> None:
    assert opcode_name(opcode) == name


def test_an_opcode_beyond_the_table_keeps_its_number() -> None:
    assert opcode_name(200) == "opcode-200"
