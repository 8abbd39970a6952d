package ddbio.spark;

import java.util.Locale;

/** Capacity units, which tasks count in tenths, for a unit can be had by halves. */
public final class UnitsMetric extends CountMetric {
  /** See CountMetric. */
  public UnitsMetric() {}

  UnitsMetric(String name, String description) {
    super(name, description);
  }

  @Override
  public String aggregateTaskMetrics(long[] values) {
    long tenths = sum(values);
    return String.format(Locale.ROOT, "%,d.%d", tenths / 10, tenths % 10);
  }
}
