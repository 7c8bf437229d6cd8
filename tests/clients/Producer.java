import com.alibaba.otter.canal.connector.core.producer.MQDestination;
import com.alibaba.otter.canal.connector.core.util.Callback;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.CanalPacket.Messages;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Canal's own producer for Kafka, led by commands (led.py), on a broker's stand-in that keeps what it is sent.
 *
 * <p>send FLAT DATABASEHASH TOPIC DYNAMICTOPIC TOPICPARTITIONS PARTITION PARTITIONS PARTITIONHASH ID MESSAGES answers the
 * topic, partition and value of each record; MESSAGES and values are in base64.
 */
public class Producer {
  private static final Map<String, Sender> SENDERS = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split("\t", -1);
      try {
        StringBuilder answer = new StringBuilder();
        for (ProducerRecord<String, byte[]> record : send(words)) {
          if (record.key() != null) throw new IllegalStateException("a key");
          answer.append(record.topic()).append('\t').append(record.partition()).append('\t');
          answer.append(Base64.getEncoder().encodeToString(record.value())).append('\n');
        }
        out.println(answer + "ok");
      } catch (Throwable error) {
        out.println("error\t" + error.toString().replaceAll("[\t\r\n]+", " "));
      }
    }
  }

  private static List<ProducerRecord<String, byte[]>> send(String[] words) throws Exception {
    boolean flat = Boolean.parseBoolean(words[1]);
    String key = words[1] + words[2];
    if (!SENDERS.containsKey(key)) SENDERS.put(key, new Sender(words[1], words[2]));
    MQDestination destination = new MQDestination();
    destination.setTopic(words[3]);
    destination.setDynamicTopic(words[4]);
    destination.setDynamicTopicPartitionNum(words[5]);
    destination.setPartition(number(words[6]));
    destination.setPartitionsNum(number(words[7]));
    destination.setPartitionHash(words[8]);
    List<ByteString> raw = Messages.parseFrom(Base64.getDecoder().decode(words[10])).getMessagesList();
    long id = Long.parseLong(words[9]);
    if (!flat) return SENDERS.get(key).send(destination, new Message(id, true, new ArrayList<>(raw)));
    List<Entry> entries = new ArrayList<>();
    for (ByteString each : raw) entries.add(Entry.parseFrom(each));
    return SENDERS.get(key).send(destination, new Message(id, false, entries));
  }

  private static Integer number(String word) {
    return word.isEmpty() ? null : Integer.valueOf(word);
  }

  private static class Sender implements Callback {
    private final CanalKafkaProducer canal = new CanalKafkaProducer();
    private final MockProducer<String, byte[]> broker =
        new MockProducer<>(true, new StringSerializer(), new ByteArraySerializer());
    private boolean committed;

    Sender(String flat, String databaseHash) throws Exception {
      Properties properties = new Properties();
      properties.setProperty("canal.mq.flatMessage", flat);
      properties.setProperty("canal.mq.database.hash", databaseHash);
      properties.setProperty("kafka.bootstrap.servers", "127.0.0.1:9");
      canal.init(properties);
      Field field = CanalKafkaProducer.class.getDeclaredField("producer");
      field.setAccessible(true);
      ((org.apache.kafka.clients.producer.Producer<?, ?>) field.get(canal)).close();
      field.set(canal, broker);
    }

    List<ProducerRecord<String, byte[]>> send(MQDestination destination, Message message) {
      broker.clear();
      committed = false;
      canal.send(destination, message, this);
      if (!committed) throw new IllegalStateException("rolled back");
      return broker.history();
    }

    public void commit() {
      committed = true;
    }

    public void rollback() {}
  }
}
