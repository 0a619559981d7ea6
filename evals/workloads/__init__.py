"""Generated workloads. They live in ``scout_sglang.replay.synthetic``, so that the command knows
them without ``evals``; this is the name under which notebooks and benchmarks use them."""

from scout_sglang.replay.synthetic import PRESETS, SyntheticTrace, Workload, setting, trace
from scout_sglang.replay.topology import TARGET_R, matrix_predictability, transition_matrix

__all__ = [
    "PRESETS",
    "TARGET_R",
    "SyntheticTrace",
    "Workload",
    "matrix_predictability",
    "setting",
    "trace",
    "transition_matrix",
]
