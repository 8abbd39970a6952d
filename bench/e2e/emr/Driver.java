import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.hadoop.dynamodb.DynamoDBItemWritable;
import org.apache.hadoop.dynamodb.read.DynamoDBInputFormat;
import org.apache.hadoop.dynamodb.write.DynamoDBOutputFormat;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapred.JobConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.dynamodb.model.AttributeValue;

/**
 * Runs the EMR DynamoDB connector in one warm JVM: a line of standard input is one job, a line of standard output its
 * CPU seconds, all threads of the process included.
 */
public final class Driver {
  private final SparkSession spark;
  private final JavaSparkContext context;
  private final String endpoint;
  private final int cores;

  private Driver(SparkSession spark, String endpoint, int cores) {
    this.spark = spark;
    this.context = JavaSparkContext.fromSparkContext(spark.sparkContext());
    this.endpoint = endpoint;
    this.cores = cores;
  }

  public static void main(String[] words) throws Exception {
    int cores = Integer.parseInt(words[1]);
    SparkSession.Builder builder =
        SparkSession.builder()
            .master("local[" + cores + "]")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false");
    OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (SparkSession spark = builder.getOrCreate()) {
      Driver driver = new Driver(spark, words[0], cores);
      for (String job = jobs.readLine(); job != null; job = jobs.readLine()) {
        System.gc();
        long began = process.getProcessCpuTime();
        driver.run(job.split("\t"));
        System.out.printf("cpu_seconds %.3f%n", (process.getProcessCpuTime() - began) / 1e9);
      }
    }
  }

  private void run(String[] job) {
    switch (job[0]) {
      case "scan" -> scan(job[1], job[2], Integer.parseInt(job[3]), (StructType) DataType.fromJson(job[4]));
      case "load" -> load(job[1], job[2]);
      case "write" -> write(job[1], Integer.parseInt(job[2]), Integer.parseInt(job[3]));
      default -> throw new IllegalArgumentException(job[0]);
    }
  }

  /** Item → Row → DataFrame → Parquet, every value in the column's own type. */
  private void scan(String table, String folder, int segments, StructType schema) {
    JobConf conf = settings();
    conf.set("dynamodb.input.tableName", table);
    conf.set("dynamodb.throughput.read.percent", "1.5");
    conf.set("dynamodb.scan.segments", Integer.toString(segments));
    conf.set("dynamodb.max.map.tasks", Integer.toString(cores));
    conf.set("mapred.input.format.class", DynamoDBInputFormat.class.getName());
    JavaRDD<Row> rows =
        context
            .hadoopRDD(conf, DynamoDBInputFormat.class, Text.class, DynamoDBItemWritable.class)
            .map(pair -> row(pair._2().getItem(), schema));
    spark
        .createDataFrame(rows, schema)
        .write()
        .mode("overwrite")
        .option("compression", "zstd")
        // Its own level is 3; the other way's is 1.
        .option("parquet.compression.codec.zstd.level", "1")
        .parquet(folder);
  }

  /** As many items as are asked for, made on the way, a task per core. */
  private void write(String table, int count, int textBytes) {
    JobConf conf = settings();
    conf.set("dynamodb.output.tableName", table);
    conf.set("dynamodb.throughput.write.percent", "1.5");
    conf.set("mapred.output.format.class", DynamoDBOutputFormat.class.getName());
    String text = "x".repeat(textBytes);
    List<Integer> starts = IntStream.range(0, cores).boxed().toList();
    int tasks = cores;
    context
        .parallelize(starts, tasks)
        .flatMapToPair(
            task ->
                IntStream.range((int) ((long) count * task / tasks), (int) ((long) count * (task + 1) / tasks))
                    .mapToObj(number -> new Tuple2<>(new Text(), new DynamoDBItemWritable(item(number, text))))
                    .iterator())
        .saveAsHadoopDataset(conf);
  }

  /** Parquet → Row → item, a task per file group of Spark; nulls and our column of misfits are left out. */
  private void load(String table, String folder) {
    JobConf conf = settings();
    conf.set("dynamodb.output.tableName", table);
    conf.set("dynamodb.throughput.write.percent", "1.5");
    conf.set("mapred.output.format.class", DynamoDBOutputFormat.class.getName());
    spark
        .read()
        .parquet(folder)
        .drop("_rescue")
        .javaRDD()
        .mapToPair(row -> new Tuple2<>(new Text(), new DynamoDBItemWritable(members(row))))
        .saveAsHadoopDataset(conf);
  }

  private static Map<String, AttributeValue> members(Row row) {
    Map<String, AttributeValue> found = new HashMap<>();
    StructField[] fields = row.schema().fields();
    for (int at = 0; at < fields.length; at++) {
      if (!row.isNullAt(at)) {
        found.put(fields[at].name(), value(row.get(at)));
      }
    }
    return found;
  }

  private static AttributeValue value(Object given) {
    AttributeValue.Builder made = AttributeValue.builder();
    if (given instanceof String text) {
      return made.s(text).build();
    }
    if (given instanceof Number number) {
      return made.n(number instanceof BigDecimal exact ? exact.toPlainString() : number.toString()).build();
    }
    if (given instanceof Boolean flag) {
      return made.bool(flag).build();
    }
    if (given instanceof byte[] bytes) {
      return made.b(SdkBytes.fromByteArray(bytes)).build();
    }
    if (given instanceof Row row) {
      return made.m(members(row)).build();
    }
    return made.l(CollectionConverters.asJava((scala.collection.Seq<?>) given).stream().map(Driver::value).toList()).build();
  }

  private JobConf settings() {
    JobConf conf = new JobConf(context.hadoopConfiguration());
    conf.set("dynamodb.endpoint", endpoint);
    conf.set("dynamodb.regionid", "eu-west-1");
    conf.set("dynamodb.servicename", "dynamodb");
    conf.set("dynamodb.awsAccessKeyId", "bench");
    conf.set("dynamodb.awsSecretAccessKey", "bench");
    conf.set("dynamodb.yarn.enabled", "false");
    return conf;
  }

  private static Map<String, AttributeValue> item(int number, String text) {
    return Map.of(
        "pk", AttributeValue.builder().s(String.format("customer-%010d", number)).build(),
        "amount", AttributeValue.builder().n(Integer.toString(number)).build(),
        "version", AttributeValue.builder().n(Integer.toString(number % 7)).build(),
        "text", AttributeValue.builder().s(String.format("%08d", number) + text).build());
  }

  private static Row row(Map<String, AttributeValue> item, StructType type) {
    StructField[] fields = type.fields();
    Object[] values = new Object[fields.length];
    for (int at = 0; at < fields.length; at++) {
      AttributeValue value = item.get(fields[at].name());
      values[at] = value == null || Boolean.TRUE.equals(value.nul()) ? null : convert(value, fields[at].dataType());
    }
    return RowFactory.create(values);
  }

  private static Object convert(AttributeValue value, DataType type) {
    if (type.equals(DataTypes.StringType)) {
      return value.s();
    }
    if (type.equals(DataTypes.LongType)) {
      return Long.parseLong(value.n());
    }
    if (type instanceof DecimalType) {
      return new BigDecimal(value.n());
    }
    if (type.equals(DataTypes.BooleanType)) {
      return value.bool();
    }
    if (type.equals(DataTypes.BinaryType)) {
      return value.b().asByteArray();
    }
    if (type instanceof StructType struct) {
      return row(value.m(), struct);
    }
    DataType element = ((ArrayType) type).elementType();
    if (value.hasSs()) {
      return value.ss().toArray();
    }
    return value.l().stream().map(each -> convert(each, element)).toArray();
  }
}
