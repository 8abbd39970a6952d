package ddbio.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import java.util.stream.Collectors;
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
    return new Factory(python.createReaderFactory(), PROPERTY + "." + UUID.randomUUID());
  }

  private record Factory(PartitionReaderFactory python, String sums) implements PartitionReaderFactory {
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
      return new Reader(python.createReader(partition), counts, sums);
    }
  }

  private static final class Reader implements PartitionReader<InternalRow> {
    private final PartitionReader<InternalRow> python;
    private final Path counts;
    private final String sums;
    // Spark may ask in another thread than the task's.
    private final TaskContext task = TaskContext.get();
    private final CustomMetric[] metrics = metrics();
    private long[] found = new long[metrics.length];
    private long lookedAt = System.nanoTime();
    private boolean added;

    /**
     * Make a reader of one partition.
     *
     * @param sums the property of the task that has the counts of all partitions that it has read: where partitions are
     *     coalesced, Spark shows the counts of one reader of a task alone
     */
    Reader(PartitionReader<InternalRow> python, Path counts, String sums) {
      this.python = python;
      this.counts = counts;
      this.sums = sums;
    }

    private long[] parsed(String text) {
      String[] words = text == null ? new String[0] : text.trim().split(" ");
      return words.length == metrics.length
          ? Arrays.stream(words).mapToLong(Long::parseLong).toArray()
          : new long[metrics.length];
    }

    @Override
    public boolean next() throws IOException {
      boolean more = python.next();
      if (!more) {
        add();
      }
      return more;
    }

    @Override
    public InternalRow get() {
      return python.get();
    }

    /** Return Python's counts; Spark asks each hundred rows, and once at the end. */
    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      if (task.isCompleted() || System.nanoTime() - lookedAt > LOOK_NANOSECONDS) {
        look();
      }
      long[] all = all();
      List<CustomTaskMetric> values = new ArrayList<>(Arrays.asList(python.currentMetricsValues()));
      for (int at = 0; at < metrics.length; at++) {
        values.add(new Value(metrics[at].name(), all[at]));
      }
      return values.toArray(new CustomTaskMetric[0]);
    }

    @Override
    public void initMetricsValues(CustomTaskMetric[] values) {
      python.initMetricsValues(values);
    }

    /** Return the counts of all partitions of the task that it has read, and of this one so far. */
    private long[] all() {
      long[] all = parsed(task.getLocalProperty(sums));
      for (int at = 0; at < all.length && !added; at++) {
        all[at] += found[at];
      }
      return all;
    }

    private void add() {
      look();
      if (!added) {
        String text = Arrays.stream(all()).mapToObj(Long::toString).collect(Collectors.joining(" "));
        task.getLocalProperties().setProperty(sums, text);
        added = true;
      }
    }

    private void look() {
      lookedAt = System.nanoTime();
      if (counts == null || added) {
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
      add();
      if (counts != null) {
        Files.deleteIfExists(counts);
      }
      python.close();
    }
  }

  private record Value(String name, long value) implements CustomTaskMetric {}
}
