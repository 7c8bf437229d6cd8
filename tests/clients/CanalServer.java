import com.alibaba.otter.canal.common.zookeeper.ZkClientx;
import com.alibaba.otter.canal.common.zookeeper.ZookeeperPathUtils;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningData;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningListener;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningMonitor;
import com.alibaba.otter.canal.common.zookeeper.running.ServerRunningMonitors;
import com.alibaba.otter.canal.connector.core.spi.CanalMQProducer;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.instance.core.CanalMQConfig;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.server.CanalMQStarter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.io.File;
import java.io.FileReader;
import java.io.Reader;
import java.net.InetSocketAddress;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Canal's server on a conf folder: CONF. Its deployer, which reads such a folder, is not to be had from a registry; this does
 * what that does with the keys that tests and measurements use. What is not said there stands as in the files that Canal is
 * shipped with, but for the history of tables, which is off. Destinations run from the start, and, with canal.zkServers,
 * wherever Canal's monitor wins them. It ends in good order when the standard input does.
 */
public class CanalServer {
    private static final CanalServerWithEmbedded EMBEDDED = CanalServerWithEmbedded.instance();
    private static File folder;
    private static Properties main;

    public static void main(String[] arguments) throws Exception {
        folder = new File(arguments[0]);
        main = read(new File(folder, "canal.properties"));
        String zookeeper = main.getProperty("canal.zkServers", "").trim();
        String address = "127.0.0.1:" + main.getProperty("canal.port");
        EMBEDDED.setCanalInstanceGenerator(CanalServer::instance);
        CanalServerWithNetty netty = CanalServerWithNetty.instance();
        netty.setIp("127.0.0.1");
        netty.setPort(Integer.parseInt(main.getProperty("canal.port")));
        ZkClientx nodes = zookeeper.isEmpty() ? null : ZkClientx.getZkClient(zookeeper);
        if (nodes != null) {
            nodes.createPersistent(ZookeeperPathUtils.DESTINATION_ROOT_NODE, true);
            nodes.createPersistent(ZookeeperPathUtils.CANAL_CLUSTER_ROOT_NODE, true);
            nodes.createEphemeral(ZookeeperPathUtils.getCanalClusterNode(address));
        }
        ServerRunningData data = new ServerRunningData(address);
        ServerRunningMonitors.setServerData(data);
        Map<String, ServerRunningMonitor> monitors = new HashMap<>();
        for (String destination : main.getProperty("canal.destinations").split(",")) {
            monitors.put(destination, monitor(destination, data, nodes, address));
        }
        ServerRunningMonitors.setRunningMonitors(monitors);
        EMBEDDED.start();
        monitors.values().forEach(ServerRunningMonitor::start);
        boolean queue = main.getProperty("canal.serverMode", "tcp").equals("kafka");
        CanalMQStarter starter = queue ? new CanalMQStarter(producer()) : null;
        if (queue) starter.start(main.getProperty("canal.destinations"));
        else netty.start();
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        if (queue) starter.destroy();
        else netty.stop();
        monitors.values().forEach(ServerRunningMonitor::stop);
        if (nodes != null) nodes.delete(ZookeeperPathUtils.getCanalClusterNode(address));
        System.exit(0);
    }

    private static CanalMQProducer producer() {
        CanalMQProducer producer = new CanalKafkaProducer();
        producer.init(main);
        return producer;
    }

    private static ServerRunningMonitor monitor(String destination, ServerRunningData data, ZkClientx nodes, String address) {
        String registered = ZookeeperPathUtils.getDestinationClusterNode(destination, address);
        ServerRunningMonitor monitor = new ServerRunningMonitor(data);
        monitor.setDestination(destination);
        monitor.setListener(new ServerRunningListener() {
            public void processActiveEnter() {
                EMBEDDED.start(destination);
            }

            public void processActiveExit() {
                EMBEDDED.stop(destination);
            }

            public void processStart() {
                if (nodes == null) return;
                nodes.createPersistent(ZookeeperPathUtils.getDestinationClusterRoot(destination), true);
                nodes.createEphemeral(registered);
            }

            public void processStop() {
                if (nodes != null) nodes.delete(registered);
            }
        });
        if (nodes != null) monitor.setZkClient(nodes);
        monitor.init();
        return monitor;
    }

    /** What the deployer's instances have besides: where the messages of a destination go. */
    private static class Instance extends CanalInstanceWithManager {
        Instance(Canal canal, String filter, String topic) {
            super(canal, filter);
            mqConfig = new CanalMQConfig();
            mqConfig.setTopic(topic);
            mqConfig.setPartition(0);
        }
    }

    private static CanalInstanceWithManager instance(String destination) {
        Properties own = new Properties();
        own.putAll(main);
        own.putAll(read(new File(folder, destination + "/instance.properties")));
        CanalParameter parameter = new CanalParameter();
        String[] source = own.getProperty("canal.instance.master.address").split(":");
        parameter.setDbAddresses(Collections.singletonList(new InetSocketAddress(source[0], Integer.parseInt(source[1]))));
        parameter.setDbUsername(own.getProperty("canal.instance.dbUsername"));
        parameter.setDbPassword(own.getProperty("canal.instance.dbPassword"));
        String file = own.getProperty("canal.instance.master.journal.name", "");
        if (!file.isEmpty()) {
            String offset = own.getProperty("canal.instance.master.position", "4");
            String gtids = own.getProperty("canal.instance.master.gtid", "");
            String place = "{\"journalName\":\"" + file + "\",\"position\":" + offset + ",\"gtid\":\"" + gtids + "\"}";
            parameter.setPositions(Collections.singletonList(place));
        }
        parameter.setGtidEnable(Boolean.parseBoolean(own.getProperty("canal.instance.gtidon")));
        parameter.setSlaveId(Long.parseLong(own.getProperty("canal.instance.mysql.slaveId", main.getProperty("canal.port"))));
        parameter.setSourcingType(CanalParameter.SourcingType.MYSQL);
        parameter.setStorageMode(CanalParameter.StorageMode.MEMORY);
        setMeta(parameter, own.getProperty("canal.instance.global.spring.xml", "file-instance.xml"));
        parameter.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        parameter.setStorageBatchMode(
            CanalParameter.BatchMode.valueOf(own.getProperty("canal.instance.memory.batch.mode", "MEMSIZE"))
        );
        // As CanalStarter does for flat messages, which else would be parsed twice.
        boolean flat = main.getProperty("canal.serverMode", "tcp").equals("kafka")
            && Boolean.parseBoolean(main.getProperty("canal.mq.flatMessage", "true"));
        parameter.setMemoryStorageRawEntry(!flat);
        parameter.setMemoryStorageBufferSize(16384);
        parameter.setMemoryStorageBufferMemUnit(1024);
        parameter.setReceiveBufferSize(16384);
        parameter.setSendBufferSize(16384);
        parameter.setTransactionSize(1024);
        parameter.setFallbackIntervalInSeconds(60);
        parameter.setDefaultConnectionTimeoutInSeconds(30);
        parameter.setConnectionCharset("UTF-8");
        parameter.setConnectionCharsetNumber((byte) 33);
        parameter.setParallel(true);
        parameter.setDetectingEnable(false);
        parameter.setTsdbEnable(false);
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(destination);
        canal.setCanalParameter(parameter);
        String filter = own.getProperty("canal.instance.filter.regex", ".*\\..*");
        return new Instance(canal, filter, own.getProperty("canal.mq.topic", destination));
    }

    /** What the files of beans say of cursors, and of where a destination begins; "parse" is Canal's node of that name. */
    private static void setMeta(CanalParameter parameter, String beans) {
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        parameter.setMetaMode(CanalParameter.MetaMode.LOCAL_FILE);
        parameter.setDataDir(main.getProperty("canal.file.data.dir", folder.getPath()));
        parameter.setMetaFileFlushPeriod(100);
        parameter.setZkClusters(Collections.singletonList(main.getProperty("canal.zkServers", "")));
        if (beans.endsWith("memory-instance.xml")) parameter.setMetaMode(CanalParameter.MetaMode.MEMORY);
        if (beans.endsWith("default-instance.xml")) parameter.setMetaMode(CanalParameter.MetaMode.MIXED);
        if (main.getProperty("test.parse") != null) parameter.setIndexMode(CanalParameter.IndexMode.ZOOKEEPER);
    }

    private static Properties read(File file) {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(file)) {
            properties.load(reader);
        } catch (java.io.IOException error) {
            throw new IllegalArgumentException(error);
        }
        return properties;
    }
}
