"""Contract tests for several backends, each with its known gaps."""

from __future__ import annotations

BACKENDS = ("fake", "moto", "ministack", "endpoint")


def build_classes(
    contract: type, backends: tuple[str, ...] = BACKENDS, **gaps: dict[str, tuple[str, ...]]
) -> tuple[type, ...]:
    """Return a test class for each backend.

    Parameters
    ----------
    contract
        The class with the tests.
    backends
        The tested backends. The last is the unknown endpoint in the environment: it may have the gaps of all others.
    **gaps
        The tests that a backend is known to fail, by reason.

    Returns
    -------
    tuple of type
        The classes, in the order of the backends.
    """
    all_gaps = {
        f"{backend}: {reason}": names
        for backend, names_by_reason in gaps.items()
        for reason, names in names_by_reason.items()
    }
    classes = []
    for backend in backends:
        is_certain = backend != "endpoint"
        members = {
            "__doc__": f"Contract of the backend {backend}.",
            "__module__": contract.__module__,
            "backend": backend,
            "gaps": gaps.get(backend, {}) if is_certain else all_gaps,
            "gaps_are_certain": is_certain,
        }
        classes.append(type(f"Test{backend.capitalize()}", (contract,), members))
    return tuple(classes)
