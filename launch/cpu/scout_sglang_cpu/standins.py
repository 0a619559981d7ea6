"""Stand-ins for ``triton`` and ``torchvision``, so that SGLang imports where neither is.

SGLang imports both whatever the device. On a CPU no Triton kernel ever runs and a text model
needs no image transform, so it is enough that the definitions can be read: decorators return
a kernel that refuses to run, names resolve, and anything actually called says what is missing.

The finder sits at the *end* of ``sys.meta_path``. Python asks it only for what no real
package answers to, so an installed Triton or torchvision is never shadowed.
"""

from __future__ import annotations

import sys
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGES = ("triton", "torchvision")


def install() -> None:
    """Let the stand-ins answer for packages that are not installed. Safe to call twice."""
    if not any(isinstance(finder, StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInFinder())


class StandInFinder(MetaPathFinder, Loader):
    """Finds ``triton``, ``torchvision`` and everything below them."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        root, _, below = fullname.partition(".")
        if root not in PACKAGES:
            return None
        if below and not isinstance(sys.modules.get(root), StandIn):
            return None  # a real package that lacks this module: its ImportError stands
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_CONTENTS.get(module.__name__, {}))


class StandIn(ModuleType):
    """A module in which every name resolves: capitalised ones to a class, others to a value."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value: Any = Missing(f"{self.__name__}.{name}")
        if name[0].isupper():
            value = type(name, (), {"__module__": self.__name__})
        setattr(self, name, value)
        return value


class Missing:
    """A value that may be named and looked into but not called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __getitem__(self, grid: object) -> Missing:
        return self

    # Without these two Python would iterate by index, for ever: PyTorch's compiler asks whether
    # "cpu" is among Triton's backends.
    __iter__ = None

    def __contains__(self, item: object) -> bool:
        return False

    def __call__(self, *args: object, **kwargs: object) -> Any:
        package = self._name.partition(".")[0]
        raise RuntimeError(
            f"{self._name} was called, but {package} is not installed: this is the small CPU "
            f"install. Run launch/cpu/setup.sh --full for an environment that has it."
        )

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


class Constexpr:
    """``tl.constexpr``: a value known when a kernel is compiled; an annotation elsewhere."""

    def __init__(self, value: object = None) -> None:
        self.value = value


class Config:
    """``triton.Config``: one launch shape of an autotuned kernel."""

    def __init__(self, kwargs: dict[str, Any] | None = None, **options: object) -> None:
        self.kwargs = kwargs or {}
        vars(self).update(options)


def _jit(function: Any = None, **_options: object) -> Any:
    """``@triton.jit`` with or without arguments: a kernel that refuses to run."""
    if function is None:
        return _jit
    return Missing(f"triton.jit({getattr(function, '__name__', function)})")


def _tuned(*_args: object, **_kwargs: object) -> Any:
    """``@triton.autotune(…)`` and ``@triton.heuristics(…)``: leave the kernel as it is."""
    return lambda kernel: kernel


def _cdiv(dividend: int, divisor: int) -> int:
    return -(dividend // -divisor)


def _next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


class InterpolationMode(Enum):
    """``torchvision.transforms.InterpolationMode``."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_TRANSFORMS = {"InterpolationMode": InterpolationMode}
_CONTENTS: dict[str, dict[str, Any]] = {
    "triton": {
        "__version__": "0.0.0",
        "jit": _jit,
        "autotune": _tuned,
        "heuristics": _tuned,
        "Config": Config,
        "cdiv": _cdiv,
        "next_power_of_2": _next_power_of_2,
    },
    "triton.language": {"constexpr": Constexpr},
    # SGLang watches kernel loads where Triton has hooks for it; some builds have none.
    "triton.knobs": {"runtime": None},
    "torchvision": {"__version__": "0.0.0"},
    # Transformers keys a table by these modes when it is imported.
    "torchvision.transforms": _TRANSFORMS,
    "torchvision.transforms.functional": _TRANSFORMS,
}
