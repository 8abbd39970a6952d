"""Hold each backend to a contract, but for what it is known not to keep."""

from __future__ import annotations

BACKENDS = ("fake", "moto", "ministack", "endpoint")


def held(contract: type, backends: tuple[str, ...] = BACKENDS, **gaps: dict[str, tuple[str, ...]]) -> tuple[type, ...]:
    """Return a test class for each backend.

    Parameters
    ----------
    contract
        The statements.
    backends
        The backends that are held to them. The last is the endpoint in the environment, of which nobody knows what it
        is: it is forgiven what any other backend does not keep.
    **gaps
        Which statements a backend is known not to keep, by the reason.

    Returns
    -------
    tuple of type
        The classes, in the order of the backends.
    """
    known = {f"{backend}: {reason}": names for backend, each in gaps.items() for reason, names in each.items()}
    found = []
    for backend in backends:
        is_certain = backend != "endpoint"
        members = {
            "__doc__": f"Hold the backend {backend} to the contract.",
            "__module__": contract.__module__,
            "backend": backend,
            "gaps": gaps.get(backend, {}) if is_certain else known,
            "gaps_are_certain": is_certain,
        }
        found.append(type(f"Test{backend.capitalize()}", (contract,), members))
    return tuple(found)
