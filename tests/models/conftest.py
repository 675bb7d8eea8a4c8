"""Some of what is here needs torch, which comes with the extra `local`."""

from importlib.util import find_spec

_NEED_TORCH = [
    "test_local_model.py",
    "test_local_reasoning.py",
    "test_model_build.py",
    "test_smollm2.py",
]
collect_ignore = [] if find_spec("torch") else _NEED_TORCH
