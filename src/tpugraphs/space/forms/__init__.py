"""All forms by name, in the order in which they are offered. Each is a small function with a rule of where it holds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tpugraphs.space.forms import convolution, dot, indexing, power, selection, window
from tpugraphs.space.forms.form import Form

__all__ = ["FORMS", "Form"]

FORMS: Mapping[str, Form] = MappingProxyType(
    {form.name: form for room in (convolution, dot, window, indexing, selection, power) for form in room.FORMS}
)
