package ddbio.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The data source dynamodb-pushdown: it learns which columns, rows and how many of them a query needs, and has ddbio's
 * Python data source read just those.
 *
 * <p>Nothing is decided here. What Spark offers goes to Python as JSON in one option, and Spark applies every filter and
 * limit again. Each scan has a Python data source of its own, so that nothing leaks from one query into another.
 */
public final class PushdownSource implements TableProvider, DataSourceRegister {
  private static final String NAME = "dynamodb-pushdown";

  /** The Python data source that reads; no other connector has this name. */
  private static final String PYTHON_NAME = "ddbio";

  /** The option by which Python is told what was pushed down. */
  private static final String OPTION = "ddbio.pushed";

  private static final String RESCUE = "_rescue";

  private static final Set<String> CATALOG_PROPERTIES =
      Set.of(
          TableCatalog.PROP_LOCATION,
          TableCatalog.PROP_IS_MANAGED_LOCATION,
          TableCatalog.PROP_EXTERNAL,
          TableCatalog.PROP_COMMENT,
          TableCatalog.PROP_PROVIDER,
          TableCatalog.PROP_OWNER);

  private static final Set<DataType> FIXED_SIZE =
      Set.of(
          DataTypes.BooleanType,
          DataTypes.ByteType,
          DataTypes.ShortType,
          DataTypes.IntegerType,
          DataTypes.LongType,
          DataTypes.FloatType,
          DataTypes.DoubleType,
          DataTypes.DateType,
          DataTypes.TimestampType,
          DataTypes.TimestampNTZType);

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return python().inferSchema(merged(Map.of(), options, "{\"ask\": \"schema\"}"));
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new DynamoDBTable(schema, Map.copyOf(properties));
  }

  private static PythonDataSourceV2 python() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(PYTHON_NAME);
    return source;
  }

  private static Table pythonTable(StructType schema) {
    return python().getTable(schema, new Transform[0], Map.of());
  }

  /** Return the options of a table and of a query of it, the latter first, and what was pushed down, if anything. */
  private static CaseInsensitiveStringMap merged(
      Map<String, String> properties, Map<String, String> options, String pushed) {
    Map<String, String> all = new LinkedHashMap<>();
    for (Map<String, String> given : List.of(properties, options)) {
      given.forEach(
          (name, value) -> {
            String lower = name.toLowerCase(Locale.ROOT);
            // A catalog has each option a second time behind this prefix, and properties of its own.
            if (!lower.startsWith(TableCatalog.OPTION_PREFIX) && !CATALOG_PROPERTIES.contains(lower)) {
              all.put(lower, value);
            }
          });
    }
    // Catalogs give each table a folder of the warehouse, and DynamoDB's names of tables have no slash.
    String path = all.get("path");
    if (path != null && path.contains("/") && !path.startsWith("arn:")) {
      all.remove("path");
    }
    if (pushed != null) {
      all.put(OPTION, pushed);
    }
    return new CaseInsensitiveStringMap(all);
  }

  private static final class DynamoDBTable implements SupportsRead, SupportsWrite {
    private final StructType schema;
    private final Map<String, String> properties;
    private Metadata counted;

    DynamoDBTable(StructType schema, Map<String, String> properties) {
      this.schema = schema;
      this.properties = properties;
    }

    @Override
    public String name() {
      return NAME;
    }

    @Override
    public StructType schema() {
      return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new PushingScanBuilder(this, options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      LogicalWriteInfo own = new WriteInfo(info, merged(properties, info.options(), null));
      return ((SupportsWrite) pythonTable(info.schema())).newWriteBuilder(own);
    }

    /** Return the items and bytes that DescribeTable counts, asked for once. */
    synchronized Metadata counted(CaseInsensitiveStringMap options) {
      if (counted == null) {
        StructType answer = python().inferSchema(merged(properties, options, "{\"ask\": \"statistics\"}"));
        counted = answer.fields()[0].metadata();
      }
      return counted;
    }
  }

  private record WriteInfo(LogicalWriteInfo given, CaseInsensitiveStringMap options) implements LogicalWriteInfo {
    @Override
    public String queryId() {
      return given.queryId();
    }

    @Override
    public StructType schema() {
      return given.schema();
    }

    @Override
    public Optional<StructType> rowIdSchema() {
      return given.rowIdSchema();
    }

    @Override
    public Optional<StructType> metadataSchema() {
      return given.metadataSchema();
    }
  }

  private static final class PushingScanBuilder
      implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit {
    private final DynamoDBTable table;
    private final CaseInsensitiveStringMap options;
    private StructType columns;
    private Predicate[] predicates = new Predicate[0];
    private int limit = -1;

    PushingScanBuilder(DynamoDBTable table, CaseInsensitiveStringMap options) {
      this.table = table;
      this.options = options;
      this.columns = table.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
      // Columns stay whole, for an attribute is read and decoded whole.
      Set<String> names = Set.of(required.fieldNames());
      List<StructField> kept = new ArrayList<>();
      for (StructField field : table.schema().fields()) {
        if (names.contains(field.name())) {
          kept.add(field);
        }
      }
      if (kept.isEmpty()) {
        kept.add(counting());
      }
      columns = new StructType(kept.toArray(new StructField[0]));
    }

    /** Return the column that is read where only rows are counted: the first of a simple type. */
    private StructField counting() {
      StructField[] fields = table.schema().fields();
      for (StructField field : fields) {
        boolean simple = isFixedSize(field.dataType()) || field.dataType().equals(DataTypes.StringType);
        if (simple && !field.name().equals(RESCUE)) {
          return field;
        }
      }
      return fields[0];
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] given) {
      predicates = given;
      return given;
    }

    @Override
    public Predicate[] pushedPredicates() {
      return predicates;
    }

    @Override
    public boolean pushLimit(int rows) {
      limit = rows;
      return true;
    }

    @Override
    public boolean isPartiallyPushed() {
      return true;
    }

    @Override
    public Scan build() {
      return new PushingScan(table, options, columns, predicates, predicates.length == 0 ? limit : -1);
    }
  }

  private static final class PushingScan implements SupportsReportStatistics {
    private final DynamoDBTable table;
    private final CaseInsensitiveStringMap options;
    private final StructType columns;
    private final Predicate[] predicates;
    private final int limit;
    private Scan scan;
    private Batch batch;

    PushingScan(
        DynamoDBTable table,
        CaseInsensitiveStringMap options,
        StructType columns,
        Predicate[] predicates,
        int limit) {
      this.table = table;
      this.options = options;
      this.columns = columns;
      this.predicates = predicates;
      this.limit = limit;
    }

    /** Return what Python is told of this scan, as JSON. */
    public String pushed() {
      String filters = Arrays.stream(predicates).map(PushdownSource::json).collect(Collectors.joining(","));
      String bound = limit < 0 ? "null" : Integer.toString(limit);
      return "{\"schema\":" + table.schema().json() + ",\"filters\":[" + filters + "],\"limit\":" + bound + "}";
    }

    private synchronized Scan scan() {
      if (scan == null) {
        scan =
            ((SupportsRead) pythonTable(columns))
                .newScanBuilder(merged(table.properties, options, pushed()))
                .build();
      }
      return scan;
    }

    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public String description() {
      String hints = Arrays.stream(predicates).map(Predicate::toString).collect(Collectors.joining(", "));
      return NAME
          + " columns: ["
          + String.join(", ", columns.fieldNames())
          + "], hints: ["
          + hints
          + "], limit: "
          + (limit < 0 ? "none" : limit);
    }

    @Override
    public synchronized Batch toBatch() {
      if (batch == null) {
        batch = new CountedBatch(scan().toBatch());
      }
      return batch;
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      List<CustomMetric> all = new ArrayList<>(Arrays.asList(scan().supportedCustomMetrics()));
      all.addAll(Arrays.asList(CountedBatch.metrics()));
      return all.toArray(new CustomMetric[0]);
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return scan().reportDriverMetrics();
    }

    @Override
    public Scan.ColumnarSupportMode columnarSupportMode() {
      return scan().columnarSupportMode();
    }

    /** Return a bound: filters are not counted, nor are columns left out that may hold little of an item. */
    @Override
    public Statistics estimateStatistics() {
      Metadata counted = table.counted(options);
      long items = counted.getLong("items");
      long bytes = counted.getLong("bytes");
      if (items <= 0 || bytes <= 0) {
        return new Counted(OptionalLong.empty(), OptionalLong.empty());
      }
      long rows = limit < 0 ? items : Math.min(items, limit);
      boolean fixed = Arrays.stream(columns.fields()).allMatch(field -> isFixedSize(field.dataType()));
      double rowBytes = fixed ? 8.0 + columns.defaultSize() : (double) bytes / items;
      return new Counted(OptionalLong.of((long) Math.ceil(rows * rowBytes)), OptionalLong.of(rows));
    }
  }

  private record Counted(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}

  private static boolean isFixedSize(DataType type) {
    return FIXED_SIZE.contains(type) || type instanceof DecimalType;
  }

  /** Return an expression as JSON; what Python could not know exactly is an empty object. */
  private static String json(Expression expression) {
    if (expression instanceof NamedReference reference) {
      String names = Arrays.stream(reference.fieldNames()).map(PushdownSource::quoted).collect(Collectors.joining(","));
      return "{\"column\":[" + names + "]}";
    }
    if (expression instanceof Literal<?> literal) {
      return json(literal);
    }
    if (expression instanceof GeneralScalarExpression call) {
      String arguments = Arrays.stream(call.children()).map(PushdownSource::json).collect(Collectors.joining(","));
      return "{\"call\":" + quoted(call.name()) + ",\"arguments\":[" + arguments + "]}";
    }
    return "{}";
  }

  private static String json(Literal<?> literal) {
    String value = null;
    if (literal.value() != null) {
      value = text(literal.value());
      if (value == null) {
        return "{}";
      }
    }
    String type = literal.dataType().equals(DataTypes.StringType) ? "string" : literal.dataType().catalogString();
    return "{\"type\":" + quoted(type) + ",\"value\":" + (value == null ? "null" : quoted(value)) + "}";
  }

  /** Return the text of a value in Spark's own form: times are microseconds, dates are days. */
  private static String text(Object value) {
    if (value instanceof UTF8String utf8) {
      // Bytes that are no text would become other ones.
      String text = utf8.toString();
      return Arrays.equals(text.getBytes(StandardCharsets.UTF_8), utf8.getBytes()) ? text : null;
    }
    if (value instanceof Decimal decimal) {
      return decimal.toJavaBigDecimal().toPlainString();
    }
    if (value instanceof byte[] bytes) {
      return HexFormat.of().formatHex(bytes);
    }
    if (value instanceof Number || value instanceof Boolean) {
      return value.toString();
    }
    return null;
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char each : text.toCharArray()) {
      if (each < ' ' || each > '~' || each == '"' || each == '\\') {
        out.append(String.format("\\u%04x", (int) each));
      } else {
        out.append(each);
      }
    }
    return out.append('"').toString();
  }
}
