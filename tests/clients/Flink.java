import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Reads a topic to its present end as Flink's SQL reads canal-json: Flink SERVERS TOPIC COLUMNS prints each change of a row. */
public class Flink {
  public static void main(String[] arguments) throws Exception {
    TableEnvironment flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    flink.executeSql(
        "CREATE TABLE t (" + arguments[2] + ") WITH ('connector' = 'kafka', 'format' = 'canal-json', 'topic' = '"
            + arguments[1] + "', 'properties.bootstrap.servers' = '" + arguments[0]
            + "', 'properties.isolation.level' = 'read_committed', 'scan.startup.mode' = 'earliest-offset',"
            + " 'scan.bounded.mode' = 'latest-offset')");
    try (CloseableIterator<Row> rows = flink.executeSql("SELECT * FROM t").collect()) {
      while (rows.hasNext()) {
        Row row = rows.next();
        String fields = IntStream.range(0, row.getArity()).mapToObj(i -> "" + row.getField(i)).collect(Collectors.joining("\t"));
        System.out.println(row.getKind().shortString() + "\t" + fields);
      }
    }
  }
}
