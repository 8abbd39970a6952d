"""Write the micro-batches of ``foreachBatch`` into a live table; keep nothing between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddbio.spark.registration import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


def write_batch(table: str, **options: Any) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that writes each micro-batch into a table.

    Parameters
    ----------
    table
        Name or ARN.
    **options
        Those of ``df.write.format("dynamodb")``, in any spelling.
    """
    texts = {name: str(value) for name, value in options.items() if value is not None}

    def write(frame: DataFrame, _: int) -> None:
        register(frame.sparkSession)
        frame.write.format("dynamodb").mode("append").options(**texts).save(table)

    return write
