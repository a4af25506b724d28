"""Compilers' options by backend, as data: what can be chosen, and which options of the compiler make it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

DISABLED_PASSES = "xla_disable_hlo_passes"


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose for a whole program."""

    name: str
    meaning: str
    settings: Mapping[str, Mapping[str, str]]
    """By value: the compiler's options that make it so; none for its own way, which comes first."""
    may_change_results: str = ""
    """Why results may differ beyond the order of sums; empty where they do not."""

    @property
    def default(self) -> str:
        return next(iter(self.settings))

    @property
    def alternatives(self) -> tuple[str, ...]:
        """All values but the default."""
        return tuple(self.settings)[1:]


def _switch(name: str, flag: str, meaning: str, default: str = "on", *, changes: str = "") -> Option:
    """An option that is on or off."""
    other, text = ("off", "False") if default == "on" else ("on", "True")
    return _choice(name, flag, meaning, default, {other: text}, changes=changes)


def _choice(
    name: str, flag: str, meaning: str, default: str, alternatives: Mapping[str, str], *, changes: str = ""
) -> Option:
    """An option of several values, with what each sets one flag to."""
    settings = {default: {}, **{value: {flag: text} for value, text in alternatives.items()}}
    return Option(name, meaning, settings, changes)


def _number(name: str, flag: str, meaning: str, default: str, *alternatives: str) -> Option:
    """An option whose values are what the flag takes."""
    return _choice(name, flag, meaning, default, {value: value for value in alternatives})


def _pass(name: str, pass_name: str, meaning: str, *, changes: str = "") -> Option:
    """A pass of the compiler that can be left out."""
    return _choice(name, DISABLED_PASSES, meaning, "on", {"off": pass_name}, changes=changes)


def _library(*names: str) -> str:
    return ",".join(f"LIBRARY_FUSION_TYPE_{name}" for name in names)


_ROUNDING = "in low precision, intermediate results are rounded in other places"
_FUNCTIONS = "elementary functions are approximated in another way"
_FAST_MATH = {"xla_cpu_enable_fast_math": "True"}
_NO_NANS = {"xla_cpu_fast_math_honor_nans": "False"}
_NO_INFINITIES = {"xla_cpu_fast_math_honor_infs": "False"}

_CPU = (
    _choice(
        "fusion_library",
        "xla_cpu_experimental_ynn_fusion_type",
        "which operations go to the library YNNPACK: single dots, single convolutions and reductions by default",
        "on",
        {
            "off": "",
            "individual-dot": _library("INDIVIDUAL_DOT"),
            "individual-convolution": _library("INDIVIDUAL_CONVOLUTION"),
            "reduce": _library("REDUCE"),
            "dot": _library("DOT"),
            "eltwise": _library("ELTWISE"),
            "without-dot": _library("INDIVIDUAL_CONVOLUTION", "REDUCE"),
            "without-convolution": _library("INDIVIDUAL_DOT", "REDUCE"),
            "without-reduce": _library("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"),
            "grouped-dot": _library("DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE"),
            "with-eltwise": _library("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE", "ELTWISE"),
            "all": _library("DOT", "INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE", "ELTWISE"),
        },
        changes=_ROUNDING,
    ),
    Option(  # one option, since together the two give wrong results
        "fusion",
        "loops over the same elements become one, written by MLIR; or stay apart; or are written by LLVM directly",
        {
            "on": {},
            "off": {DISABLED_PASSES: "fusion"},
            "without-emitters": {"xla_cpu_use_fusion_emitters": "False"},
        },
        _ROUNDING,
    ),
    _switch(
        "tiling_propagation",
        "xla_cpu_experimental_enable_tiling_propagation",
        "tiles are propagated through fused loops; experimental",
        "off",
    ),
    _number(
        "vector_width", "xla_cpu_prefer_vector_width", "bits of the vectors that loops prefer", "256", "128", "512"
    ),
    _number("optimization_level", "xla_backend_optimization_level", "how much LLVM optimises", "3", "1", "2"),
    _choice(
        "preset",
        "xla_cpu_opt_preset",
        "a bundle of other options",
        "default",
        {"fast-compile": "CPU_OPT_PRESET_FAST_COMPILE"},
        changes=_FUNCTIONS,
    ),
    _choice(
        "scheduler",
        "xla_cpu_scheduler_type",
        "in which order operations run",
        "default",
        {"memory": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
    ),
    _choice(
        "copy_insertion",
        "xla_cpu_copy_insertion_use_region_analysis",
        "how it is found which buffers of loops and branches must be copied",
        "ordering",
        {"regions": "True"},
    ),
    _pass("parallel_tasks", "cpu-parallel-task-assigner", "large loops are split among threads"),
    _pass("tree_reductions", "tree_reduction_rewriter", "long sums are taken in stages"),
    _pass("gemv_rewriting", "gemv-rewriter", "products with a vector become products of matrices"),
    _pass("transpose_folding", "transpose-folding", "dots read transposed operands in place"),
    _pass("reshape_moving", "reshape-mover", "reshapes move behind elementwise operations"),
    _pass("batch_dots", "batch-dot-simplification", "dots lose batch dimensions of size 1"),
    _pass("loop_invariants", "while-loop-invariant-code-motion", "what is the same in each turn moves out of a loop"),
    _number(
        "scan_block",
        "xla_reduce_window_rewrite_base_length",
        "how many elements a block has where running sums are taken block by block",
        "16",
        "8",
        "32",
        "128",
    ),
    Option(
        "fast_math",
        "floating point is simplified as if it were exact, then also as if NaN or infinity never occurred",
        {
            "off": {},
            "on": _FAST_MATH,
            "no-nans": {**_FAST_MATH, **_NO_NANS},
            "finite": {**_FAST_MATH, **_NO_NANS, **_NO_INFINITIES},
        },
        "operations are simplified as in exact arithmetic; with no-nans and finite, special values may come out wrong",
    ),
    _switch(
        "platform_math",
        "xla_cpu_enable_platform_dependent_math",
        "approximations that this processor is fastest at",
        changes=_FUNCTIONS,
    ),
    _switch(
        "excess_precision",
        "xla_allow_excess_precision",
        "intermediate results may keep more precision than their type",
        changes=_ROUNDING,
    ),
    _switch(
        "strict_dots",
        "xla_cpu_strict_dot_conv_math",
        "dots and convolutions of float16 are computed in float16, not in float32",
        "off",
        changes="float16 is no longer widened to float32 in dots and convolutions",
    ),
)

_GPU = (
    _switch("triton_gemm", "xla_gpu_enable_triton_gemm", "dots may be compiled by Triton", changes=_ROUNDING),
    _switch("cublas_fallback", "xla_gpu_cublas_fallback", "cuBLAS is tried beside Triton for fused dots"),
    _switch("cublas_lt", "xla_gpu_enable_cublaslt", "dots go to cuBLASLt where they can", "off", changes=_ROUNDING),
    _number("cudnn_fusion", "xla_gpu_cudnn_gemm_fusion_level", "how much cuDNN fuses with a dot", "0", "1", "2", "3"),
    _switch(
        "cudnn_layer_norm",
        "xla_gpu_enable_cudnn_layer_norm",
        "layer normalisations become calls of cuDNN",
        "off",
        changes=_ROUNDING,
    ),
    _choice(
        "autotuning",
        "xla_gpu_autotune_level",
        "whether XLA tries several algorithms for dots and convolutions",
        "on",
        {"off": "0"},
    ),
    _switch(
        "tiling_search", "xla_gpu_exhaustive_tiling_search", "every tiling of a dot is tried, not a selection", "off"
    ),
    _choice(
        "command_buffers",
        "xla_gpu_enable_command_buffer",
        "which kinds of commands are recorded once and launched together",
        "default",
        {
            "none": "",
            "fusions": "FUSION",
            "with-control": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,CONDITIONAL",
        },
    ),
    _number(
        "command_buffer_size",
        "xla_gpu_graph_min_graph_size",
        "how many commands it takes to record them together",
        "5",
        "1",
        "20",
    ),
    _choice(
        "loop_unrolling",
        "xla_gpu_enable_while_loop_unrolling",
        "whether loops are unrolled: where they communicate, by default",
        "auto",
        {
            "none": "WHILE_LOOP_UNROLLING_NO_UNROLL",
            "double": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER",
            "full": "WHILE_LOOP_UNROLLING_FULL_UNROLL",
        },
    ),
    _switch(
        "latency_hiding",
        "xla_gpu_enable_latency_hiding_scheduler",
        "operations are ordered so that transfers overlap with computation",
        "off",
    ),
    _switch(
        "slice_fusion",
        "xla_gpu_enable_dynamic_slice_fusion",
        "library calls read and write slices in place",
        "off",
    ),
)

_TPU = (
    _number(
        "scratch_memory",
        "xla_tpu_scoped_vmem_limit_kib",
        "KiB of fast memory that one operation may use; the rest holds buffers",
        "16384",
        "8192",
        "32768",
        "65536",
        "98304",
    ),
    _switch("dot_dot_fusion", "xla_tpu_dot_dot_fusion", "a dot is fused with a dot that reads it"),
    _switch("multi_output_fusion", "xla_jf_enable_multi_output_fusion", "several readers of a value become one fusion"),
    _switch("reduce_broadcast_fusion", "xla_tpu_rwb_fusion", "reductions are fused with the broadcasts behind them"),
    _switch("dot_reduction", "xla_tpu_enable_dot_strength_reduction", "small dots become products and sums"),
    _number(
        "copy_bandwidth",
        "xla_tpu_async_copy_bandwidth_scaling_factor",
        "what share of the bandwidth prefetching counts on",
        "1",
        "0.5",
        "0.25",
    ),
    _number(
        "prefetch_threshold",
        "xla_tpu_msa_inefficient_use_to_copy_ratio",
        "how often a prefetched byte must be read to earn its place in fast memory",
        "0.5",
        "0",
        "1",
    ),
    _choice(
        "prefetch_freeing",
        "xla_msa_enable_cross_program_prefetch_freeing",
        "buffers that were prefetched ahead of the program are freed after use",
        "on",
        {"off": "disabled"},
    ),
    _switch(
        "latency_hiding",
        "xla_tpu_enable_latency_hiding_scheduler",
        "operations are ordered so that transfers overlap with computation",
    ),
    _choice(
        "memory_scheduler",
        "xla_memory_scheduler",
        "how an order of little memory is searched",
        "default",
        {"list": "kList", "depth-first": "kDfs", "post-order": "kPostOrder", "genetic": "kBrkga"},
    ),
)

_ON = {"on": "true"}
_LLVM_CPU: tuple[Option, ...] = (
    _number("opt_level", "--iree-opt-level", "the level of the whole compilation", "O3", "O2", "O1", "O0"),
    _choice("data_tiling", "--iree-opt-data-tiling", "matrices are packed in tiles beforehand", "off", _ON),
    _choice("im2col", "--iree-global-opt-use-im2col-for-convs", "convolutions as products of patches", "off", _ON),
    _number(
        "microkernels",
        "--iree-llvmcpu-enable-ukernels",
        "kernels written by hand, for packed matrices",
        "default",
        "all",
        "none",
    ),
    _choice(
        "aggressive_fusion",
        "--iree-dispatch-creation-enable-aggressive-fusion",
        "more operations become one kernel",
        "off",
        _ON,
    ),
)

OPTIONS: Mapping[str, tuple[Option, ...]] = MappingProxyType(
    {"cpu": _CPU, "gpu": _GPU, "tpu": _TPU, "llvm-cpu": _LLVM_CPU}
)
"""By backend."""
