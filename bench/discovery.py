"""Discovery of the asv benchmarks in this folder, for other runners than asv."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import bench

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIXES = ("time_", "track_", "peakmem_")


@dataclass(frozen=True)
class Benchmark:
    """Method of an asv class with one combination of its parameters."""

    subject: type[Any]
    method: str
    parameters: tuple[Any, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Module, class, method and parameters."""
        module = self.subject.__module__.removeprefix("bench.")
        return (module, self.subject.__name__, self.method, *map(str, self.parameters))

    @property
    def name(self) -> str:
        """Unique name."""
        return "-".join(self.words)


def modules() -> list[str]:
    """Return the names of the modules with classes of asv."""
    return [f"bench.{module.name}" for module in pkgutil.iter_modules(bench.__path__) if not module.ispkg]


def classes() -> Iterator[type[Any]]:
    """Yield the classes that asv would find."""
    for module in map(importlib.import_module, modules()):
        for _, benchmark_class in inspect.getmembers(module, inspect.isclass):
            if benchmark_class.__module__ == module.__name__ and hasattr(benchmark_class, "check"):
                yield benchmark_class


def benchmarks(prefixes: tuple[str, ...] = PREFIXES) -> Iterator[Benchmark]:
    """Yield each benchmark of each class with each combination of its parameters."""
    for benchmark_class in classes():
        methods = [name for name, _ in inspect.getmembers(benchmark_class, callable) if name.startswith(prefixes)]
        for method, parameters in itertools.product(
            methods, itertools.product(*getattr(benchmark_class, "params", ()))
        ):
            yield Benchmark(benchmark_class, method, parameters)
