from __future__ import annotations

import importlib
import pkgutil

from ddbio.advice.warm import warm_here
from ddbio.items import kernel
from ddbio.items.kernel.jit import LOOPS


def test_warming_up_compiles_every_loop():
    """After it there is no loop that its first use would compile."""
    for module in pkgutil.iter_modules(kernel.__path__):
        importlib.import_module(f"{kernel.__name__}.{module.name}")
    warm_here()
    cold = [loop.__name__ for loop in LOOPS if not loop.signatures]
    assert LOOPS
    assert cold == []
