package ddbio.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;

/** A number that a scan counts in its tasks, summed in Spark's pages. */
public class CountMetric implements CustomMetric {
  private final String name;
  private final String description;

  /** Spark's listener makes one without a name, to sum what tasks have counted. */
  public CountMetric() {
    this("", "");
  }

  CountMetric(String name, String description) {
    this.name = name;
    this.description = description;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public String aggregateTaskMetrics(long[] values) {
    return String.format(java.util.Locale.ROOT, "%,d", sum(values));
  }

  static long sum(long[] values) {
    return java.util.Arrays.stream(values).sum();
  }
}
