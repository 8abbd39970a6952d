"""Show the options of a function in its signature and help, as if each were written out.

Type checkers read the options from ``Unpack`` of a class in :mod:`ddbio.api.keywords`; ``help`` and notebooks read them
here.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, ForwardRef, TypeVar

from ddbio.api import keywords
from ddbio.options import descriptions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")


def takes(options: type[Any]) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator for a function whose ``**options`` are fields of an options class.

    The function itself is returned; its ``__signature__`` names each option, and its docstring describes them.
    """
    types = getattr(keywords, options.__name__.removesuffix("Options") + "Keywords").__annotations__
    described = descriptions_of(options)

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        fields = [field for field in dataclasses.fields(options) if field.name in types]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *(_parameter(field, types[field.name]) for field in fields)]
        )
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n" + "\n".join(
            ["Other Parameters", "----------------", *_described(fields, types, described)]
        )
        return function

    return decorate


def _parameter(field: dataclasses.Field[Any], hint: ForwardRef) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint.__forward_arg__
    )


def _described(
    fields: list[dataclasses.Field[Any]], types: dict[str, ForwardRef], described: dict[str, str]
) -> Iterator[str]:
    for field in fields:
        yield f"{field.name} : {types[field.name].__forward_arg__}"
        yield f"    {' '.join(described[field.name].split())}"
