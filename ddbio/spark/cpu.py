"""Add up the processor time of everything a Spark engine uses: driver, workers and JVM."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ddbio.spark.session import is_local

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext

    from ddbio.spark.task import ProcessTime

_NANOSECONDS = 1e9


class CpuMeter:
    """Count user + system seconds since it was made, or of the whole session where the engine started that.

    A worker counts by its highest mark, so that one used again is not counted twice. Local mode reads the JVM's own
    process time; on a cluster that is the driver's, and the executors answer by their stages' task time.
    """

    def __init__(self, context: SparkContext, *, whole_session: bool, began_seconds: float) -> None:
        self._context = context
        self._whole_session = whole_session
        self._driver_began = began_seconds
        self._jvm_began = 0.0 if whole_session else jvm_seconds(context)
        self._marks: dict[tuple[str, int], tuple[float, float]] = {}
        self._stages: set[int] = set()

    def add(self, times: Iterable[ProcessTime]) -> None:
        """Count what workers report."""
        for each in times:
            # What the session's processes did before is ours only if the session is.
            before = each.ended_seconds if each.began_seconds is None else each.began_seconds
            new = 0.0 if self._whole_session else before
            began, ended = self._marks.get(each.process, (new, 0.0))
            self._marks[each.process] = (began, max(ended, each.ended_seconds))

    def add_stages(self, stages: Iterable[int]) -> None:
        """Count the executors' time of these stages; in local mode the JVM's process time holds it already."""
        if not is_local(self._context):
            self._stages.update(stages)

    def seconds(self) -> float:
        """Return the sum so far."""
        driver = time.process_time() - self._driver_began
        workers = sum(ended - began for began, ended in self._marks.values())
        jvm = jvm_seconds(self._context) - self._jvm_began
        return driver + workers + jvm + self._executor_seconds()

    def _executor_seconds(self) -> float:
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - the Python status tracker has no times
        return sum(float(store.lastStageAttempt(stage).executorCpuTime()) for stage in self._stages) / _NANOSECONDS


def jvm_seconds(context: SparkContext) -> float:
    """Return user + system seconds of the JVM beside this process."""
    # https://docs.oracle.com/en/java/javase/17/docs/api/jdk.management/com/sun/management/OperatingSystemMXBean.html
    # The bean's class is hidden by its module, so its public interface is asked for the method.
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark's door to the JVM
    gateway: Any = context._gateway  # noqa: SLF001
    bean = jvm.java.lang.management.ManagementFactory.getOperatingSystemMXBean()
    interface = jvm.java.lang.Class.forName("com.sun.management.OperatingSystemMXBean")
    method = interface.getMethod("getProcessCpuTime", gateway.new_array(jvm.java.lang.Class, 0))
    return float(method.invoke(bean, gateway.new_array(jvm.java.lang.Object, 0))) / _NANOSECONDS
