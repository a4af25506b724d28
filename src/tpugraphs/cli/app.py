"""The command line's verbs, in the order that `--help` lists them."""

from __future__ import annotations

from cyclopts import App

from tpugraphs import __version__
from tpugraphs.cli.data_verbs import evaluate, export, import_, info, synth, verify
from tpugraphs.cli.measuring_verbs import collect, doctor, merge, pack, runs
from tpugraphs.cli.program_verbs import forms, graph, kernels, programs, tune

_VERBS = (
    *(tune, graph, forms, kernels, programs, collect, runs, pack, merge, doctor),
    *(import_, export, info, verify, evaluate, synth),
)

app = App(
    name="tpugraphs",
    help="Tensor programs as graphs, how their compilation may vary, what was measured, and which choice is fast.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` has a word to say about it
    help_epilogue="Collections are kept under --root, by default $TPUGRAPHS_ROOT or ~/.cache/tpugraphs.",
)
for _place, _verb in enumerate(_VERBS):
    app.command(_verb, sort_key=_place)
