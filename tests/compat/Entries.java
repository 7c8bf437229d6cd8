import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.CanalEntry.EntryType;
import com.alibaba.otter.canal.protocol.CanalEntry.RowChange;
import com.alibaba.otter.canal.protocol.CanalEntry.TransactionBegin;
import com.alibaba.otter.canal.protocol.CanalEntry.TransactionEnd;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;

/**
 * Canal's own Java client, once for each PORT:DESTINATION, printing each entry as a line: the number of the argument, a tab,
 * and the entry as JSON with what is in it parsed. A field is there as soon as it was on the wire, be it empty or zero.
 */
public class Entries {
    private static PrintStream out;

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, true, "UTF-8");
        for (int number = 0; number < arguments.length; number++) {
            String[] place = arguments[number].split(":");
            String prefix = number + "\t";
            new Thread(() -> read(place[0], place[1], prefix)).start();
        }
    }

    private static void read(String port, String destination, String prefix) {
        try {
            InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(port));
            CanalConnector connector = CanalConnectors.newSingleConnector(address, destination, "", "");
            connector.connect();
            connector.subscribe("");
            while (true) {
                Message message = connector.getWithoutAck(1000);
                if (message.getId() == -1) {
                    Thread.sleep(10);
                    continue;
                }
                for (Entry entry : message.getEntries()) out.println(prefix + text(entry));
                connector.ack(message.getId());
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static String text(Entry entry) throws Exception {
        StringBuilder text = new StringBuilder("{");
        putFields(text, entry, "storeValue");
        text.append(",\"storeValue\":");
        if (entry.getEntryType() == EntryType.TRANSACTIONBEGIN) put(text, TransactionBegin.parseFrom(entry.getStoreValue()));
        else if (entry.getEntryType() == EntryType.TRANSACTIONEND) put(text, TransactionEnd.parseFrom(entry.getStoreValue()));
        else put(text, RowChange.parseFrom(entry.getStoreValue()));
        return text.append("}").toString();
    }

    private static void putFields(StringBuilder text, com.google.protobuf.Message message, String... without) {
        String separator = "";
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            boolean there = field.isRepeated() ? message.getRepeatedFieldCount(field) > 0 : message.hasField(field);
            if (!there || Arrays.asList(without).contains(field.getName())) continue;
            text.append(separator).append('"').append(field.getName()).append("\":");
            put(text, message.getField(field));
            separator = ",";
        }
    }

    private static void put(StringBuilder text, Object value) {
        if (value instanceof com.google.protobuf.Message) {
            text.append("{");
            putFields(text, (com.google.protobuf.Message) value);
            text.append("}");
        } else if (value instanceof List) {
            String separator = "[";
            for (Object each : (List<?>) value) {
                text.append(separator);
                put(text, each);
                separator = ",";
            }
            text.append("]");
        } else if (value instanceof Boolean || value instanceof Number) text.append(value);
        else if (value instanceof EnumValueDescriptor) quote(text, ((EnumValueDescriptor) value).getName());
        else if (value instanceof ByteString) quote(text, ((ByteString) value).toStringUtf8());
        else quote(text, (String) value);
    }

    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (char each : value.toCharArray()) {
            if (each < ' ' || each == '"' || each == '\\' || each > '~') text.append(String.format("\\u%04x", (int) each));
            else text.append(each);
        }
        text.append('"');
    }
}
