"""Programs to try things on, by name: families of the paper. Making one imports what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ZooProgram:
    """A program of the zoo."""

    name: str
    family: str
    make: Callable[[], Made]
    """The callable and its arguments."""


def _keras(model: str) -> Callable[[], Made]:
    def make() -> Made:
        from tpugraphs.program.zoo.keras_models import inference

        return inference(model)

    return make


def _transformer() -> Made:
    from tpugraphs.program.zoo.transformer import encoder

    return encoder()


PROGRAMS: Mapping[str, ZooProgram] = MappingProxyType(
    {
        "resnet50": ZooProgram("resnet50", "ResNet", _keras("ResNet50")),
        "efficientnetb0": ZooProgram("efficientnetb0", "EfficientNet", _keras("EfficientNetB0")),
        "mobilenetv2": ZooProgram("mobilenetv2", "MobileNet", _keras("MobileNetV2")),
        "transformer": ZooProgram("transformer", "Transformer", _transformer),
    }
)
