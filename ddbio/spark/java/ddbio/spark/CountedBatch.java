package ddbio.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * A batch of Python's whose tasks show in Spark's pages what they cost.
 *
 * <p>Spark lets no Python data source count. The Python worker of a task, on the same machine, writes its counts over and over
 * into a small file, whose path is a property of the task.
 */
record CountedBatch(Batch python) implements Batch {
  /** The property of a task by which Python is told where its counts go. */
  private static final String PROPERTY = "ddbio.counts";

  private static final long LOOK_NANOSECONDS = 200_000_000L;

  /** Return what is counted, in the order in which Python writes it. */
  static CustomMetric[] metrics() {
    return new CustomMetric[] {
      new CountMetric("ddbioItems", "items read"),
      new CountMetric("ddbioBytes", "bytes received"),
      new UnitsMetric("ddbioReadUnits", "read units consumed"),
      new CountMetric("ddbioThrottles", "throttled requests"),
      new CountMetric("ddbioRescued", "rows with rescued values")
    };
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return python.planInputPartitions();
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(python.createReaderFactory());
  }

  private record Factory(PartitionReaderFactory python) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Properties properties = TaskContext.get().getLocalProperties();
      Path counts = null;
      try {
        counts = Files.createTempFile("ddbio-", ".counts");
        properties.setProperty(PROPERTY, counts.toString());
      } catch (IOException error) {
        // Rows are worth more than counts.
        properties.remove(PROPERTY);
      }
      return new Reader(python.createReader(partition), counts);
    }
  }

  private static final class Reader implements PartitionReader<InternalRow> {
    private final PartitionReader<InternalRow> python;
    private final Path counts;
    // Spark may ask in another thread than the task's.
    private final TaskContext task = TaskContext.get();
    private final CustomMetric[] metrics = metrics();
    private long[] found = new long[metrics.length];

    /** What the task's earlier readers have counted, where Spark shows the counts of its last one alone. */
    private final long[] before = new long[metrics.length];

    private long lookedAt = System.nanoTime();
    private boolean ended;
    private boolean closed;

    Reader(PartitionReader<InternalRow> python, Path counts) {
      this.python = python;
      this.counts = counts;
    }

    private long[] parsed(String text) {
      String[] words = text.trim().split(" ");
      return words.length == metrics.length
          ? Arrays.stream(words).mapToLong(Long::parseLong).toArray()
          : new long[metrics.length];
    }

    @Override
    public boolean next() throws IOException {
      boolean more = python.next();
      ended = !more;
      return more;
    }

    @Override
    public InternalRow get() {
      return python.get();
    }

    /** Return Python's counts; Spark asks each hundred rows, and once at the end. */
    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      if (ended || task.isCompleted() || System.nanoTime() - lookedAt > LOOK_NANOSECONDS) {
        look();
      }
      List<CustomTaskMetric> values = new ArrayList<>(Arrays.asList(python.currentMetricsValues()));
      for (int at = 0; at < metrics.length; at++) {
        values.add(new Value(metrics[at].name(), before[at] + found[at]));
      }
      return values.toArray(new CustomTaskMetric[0]);
    }

    @Override
    public void initMetricsValues(CustomTaskMetric[] values) {
      python.initMetricsValues(values);
      for (CustomTaskMetric value : values) {
        for (int at = 0; at < metrics.length; at++) {
          if (metrics[at].name().equals(value.name())) {
            before[at] = value.value();
          }
        }
      }
    }

    private void look() {
      lookedAt = System.nanoTime();
      if (counts == null || closed) {
        return;
      }
      try {
        found = parsed(Files.readString(counts, StandardCharsets.US_ASCII));
      } catch (IOException | NumberFormatException error) {
        // It is gone, or is just being written: the last counts stay.
        return;
      }
    }

    @Override
    public void close() throws IOException {
      look();
      closed = true;
      if (counts != null) {
        Files.deleteIfExists(counts);
      }
      python.close();
    }
  }

  private record Value(String name, long value) implements CustomTaskMetric {}
}
