"""What may vary for a program: forms and layouts per node, options per program; and their product.

`space.product` makes the spaces of a program; what is here needs no compiler.
"""

from tpugraphs.space.knobs import Config, Knob, Space

__all__ = ["Config", "Knob", "Space"]
