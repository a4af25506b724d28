"""What may vary for a program: forms per node and options per program; and their product."""

from tpugraphs.space.knobs import Config, Knob, Space
from tpugraphs.space.product import space_of

__all__ = ["Config", "Knob", "Space", "space_of"]
