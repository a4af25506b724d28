"""Options of the compiler that apply to a whole program; each choice is a set of XLA options."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OPTIONS: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        # The library that XLA:CPU hands groups of operations to. Sums may be added in another order.
        "fusion_library": {"on": {}, "off": {"xla_cpu_experimental_ynn_fusion_type": ""}},
    }
)


def xla_options(chosen: Mapping[str, str]) -> dict[str, str]:
    """The XLA options behind the chosen option values."""
    return {key: value for name, choice in chosen.items() for key, value in OPTIONS[name][choice].items()}
