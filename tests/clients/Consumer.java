import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.client.impl.ClusterCanalConnector;
import com.alibaba.otter.canal.client.impl.SimpleCanalConnector;
import com.alibaba.otter.canal.protocol.CanalEntry.Column;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.CanalEntry.EntryType;
import com.alibaba.otter.canal.protocol.CanalEntry.Header;
import com.alibaba.otter.canal.protocol.CanalEntry.RowChange;
import com.alibaba.otter.canal.protocol.CanalEntry.RowData;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Canal's own Java client, led by commands on the standard input, whose words are separated by tabs. Each is answered by
 * lines on the standard output, the last of which is "ok" or "error" and a text.
 */
public class Consumer {
    private static CanalConnector connector;
    private static PrintStream out;

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                run(line.split("\t", -1));
                out.println("ok");
            } catch (Throwable error) {
                StringBuilder text = new StringBuilder();
                for (Throwable cause = error; cause != null; cause = cause.getCause()) text.append(cause).append(' ');
                out.println("error\t" + text.toString().replaceAll("\\s+", " "));
            }
            out.flush();
        }
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "connect": // addresses, destination, user, password, "lazy" or nothing
                connect(words[1].split(","), words[2], words[3], words[4], words[5].equals("lazy"));
                break;
            case "find": // hosts of ZooKeeper, destination: the servers are found there
                use(CanalConnectors.newClusterConnector(words[1], words[2], "", ""));
                break;
            case "disconnect":
                connector.disconnect();
                break;
            case "subscribe":
                connector.subscribe(words[1]);
                break;
            case "unsubscribe":
                connector.unsubscribe();
                break;
            case "get": // size, and timeout and unit or nothing: acked by the client
                show(words.length == 2 ? connector.get(size(words)) : connector.get(size(words), wait(words), unit(words)));
                break;
            case "getWithoutAck":
                show(words.length == 2
                    ? connector.getWithoutAck(size(words))
                    : connector.getWithoutAck(size(words), wait(words), unit(words)));
                break;
            case "ack":
                connector.ack(Long.parseLong(words[1]));
                break;
            case "rollback":
                if (words.length == 1) connector.rollback();
                else connector.rollback(Long.parseLong(words[1]));
                break;
            case "drain": // size, rows: what is there, batch after batch, each acked, until so many rows have come
                drain(size(words), Long.parseLong(words[2]));
                break;
            case "collect": // size, file, offset: likewise until that place, lazily: rows are counted when the clock has stopped
                collect(size(words), words[2], Long.parseLong(words[3]));
                break;
            case "beats": // size, timeout in ms or -1 for none, rows: the age of each row of (id, due in us) when it is here, in us
                beats(size(words), wait(words), Integer.parseInt(words[3]));
                break;
            default:
                throw new IllegalArgumentException("no command " + words[0]);
        }
    }

    private static void connect(String[] addresses, String destination, String user, String password, boolean lazy) {
        List<SocketAddress> places = new ArrayList<>();
        for (String address : addresses) {
            String[] parts = address.split(":");
            places.add(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])));
        }
        if (places.size() == 1) {
            SimpleCanalConnector simple = new SimpleCanalConnector(places.get(0), user, password, destination);
            simple.setLazyParseEntry(lazy);
            use(simple);
        } else {
            use(CanalConnectors.newClusterConnector(places, destination, user, password));
        }
    }

    private static void use(CanalConnector chosen) {
        if (connector != null) connector.disconnect();
        connector = chosen;
        if (connector instanceof ClusterCanalConnector) ((ClusterCanalConnector) connector).setRetryInterval(200);
        connector.connect();
    }

    private static int size(String[] words) {
        return Integer.parseInt(words[1]);
    }

    private static Long wait(String[] words) {
        return Long.valueOf(words[2]);
    }

    private static TimeUnit unit(String[] words) {
        return TimeUnit.valueOf(words[3]);
    }

    /** A line with the id of the batch, and one for each row or other entry: file, offset, type, table, values. */
    private static void show(Message message) throws Exception {
        out.println("batch\t" + message.getId());
        for (Entry entry : entries(message)) {
            String head = entry.getHeader().getLogfileName() + "\t" + entry.getHeader().getLogfileOffset() + "\t";
            if (entry.getEntryType() != EntryType.ROWDATA) {
                out.println(head + entry.getEntryType() + "\t");
                continue;
            }
            RowChange change = RowChange.parseFrom(entry.getStoreValue());
            String table = entry.getHeader().getSchemaName() + "." + entry.getHeader().getTableName();
            if (change.getRowDatasCount() == 0) out.println(head + change.getEventType() + "\t" + table);
            for (RowData row : change.getRowDatasList()) {
                List<Column> columns = row.getAfterColumnsCount() > 0 ? row.getAfterColumnsList() : row.getBeforeColumnsList();
                String values = columns.stream().map(Column::getValue).collect(Collectors.joining("\t"));
                out.println(head + change.getEventType() + "\t" + table + "\t" + values);
            }
        }
    }

    private static List<Entry> entries(Message message) throws Exception {
        if (!message.isRaw()) return message.getEntries();
        List<Entry> entries = new ArrayList<>();
        for (ByteString raw : message.getRawEntries()) entries.add(Entry.parseFrom(raw));
        return entries;
    }

    private static void drain(int size, long rows) throws Exception {
        long found = 0, gets = 0;
        long begin = System.nanoTime();
        while (found < rows) {
            Message message = connector.getWithoutAck(size);
            gets++;
            if (message.getId() == -1) {
                Thread.sleep(1);
                continue;
            }
            for (Entry entry : entries(message)) {
                if (entry.getEntryType() == EntryType.ROWDATA) found += RowChange.parseFrom(entry.getStoreValue()).getRowDatasCount();
            }
            connector.ack(message.getId());
        }
        out.println("drained\t" + found + "\t" + gets + "\t" + (System.nanoTime() - begin) / 1e9);
    }

    private static void collect(int size, String file, long offset) throws Exception {
        List<Message> messages = new ArrayList<>();
        long gets = 0;
        long begin = System.nanoTime();
        for (boolean found = false; !found;) {
            Message message = connector.getWithoutAck(size);
            gets++;
            if (message.getId() == -1) {
                Thread.sleep(1);
                continue;
            }
            messages.add(message);
            connector.ack(message.getId());
            List<ByteString> entries = message.getRawEntries();
            Header last = Entry.parseFrom(entries.get(entries.size() - 1)).getHeader();
            int order = last.getLogfileName().compareTo(file);
            found = order > 0 || order == 0 && last.getLogfileOffset() + last.getEventLength() >= offset;
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        long rows = 0;
        for (Message message : messages) {
            for (Entry entry : entries(message)) {
                if (entry.getEntryType() == EntryType.ROWDATA) rows += RowChange.parseFrom(entry.getStoreValue()).getRowDatasCount();
            }
        }
        out.println("drained\t" + rows + "\t" + gets + "\t" + seconds);
    }

    private static void beats(int size, long timeout, int rows) throws Exception {
        StringBuilder ages = new StringBuilder("beats");
        int found = 0;
        while (found < rows) {
            Message message = timeout < 0 ? connector.getWithoutAck(size) : connector.getWithoutAck(size, timeout, TimeUnit.MILLISECONDS);
            if (message.getId() == -1) {
                if (timeout < 0) Thread.sleep(1);
                continue;
            }
            long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
            for (Entry entry : entries(message)) {
                if (entry.getEntryType() != EntryType.ROWDATA) continue;
                for (RowData row : RowChange.parseFrom(entry.getStoreValue()).getRowDatasList()) {
                    ages.append('\t').append(now - Long.parseLong(row.getAfterColumns(1).getValue()));
                    found++;
                }
            }
            connector.ack(message.getId());
        }
        out.println(ages);
    }
}
