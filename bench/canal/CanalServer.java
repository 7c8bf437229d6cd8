import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.net.InetSocketAddress;
import java.util.Collections;

/**
 * Canal's server with one destination, in memory: PORT DESTINATION SOURCE-PORT USER PASSWORD FILTER FILE [OFFSET [GTID-SET]]. It
 * reads a source on this machine from the beginning of a binlog file, from an offset in it, or what is not in a GTID set.
 * What is not a place or a name stands as in the canal.properties and instance.properties that Canal is shipped with; the
 * history of tables is off, for no DDL is measured.
 */
public class CanalServer {
    public static void main(String[] arguments) throws Exception {
        CanalParameter parameter = new CanalParameter();
        parameter.setDbAddresses(Collections.singletonList(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[2]))));
        parameter.setDbUsername(arguments[3]);
        parameter.setDbPassword(arguments[4]);
        String offset = arguments.length > 7 ? arguments[7] : "4";
        String gtids = arguments.length > 8 ? ",\"gtid\":\"" + arguments[8] + "\"" : "";
        String position = "{\"journalName\":\"" + arguments[6] + "\",\"position\":" + offset + gtids + "}";
        parameter.setPositions(Collections.singletonList(position));
        parameter.setGtidEnable(arguments.length > 8);
        parameter.setSlaveId(Long.parseLong(arguments[0]));
        parameter.setSourcingType(CanalParameter.SourcingType.MYSQL);
        parameter.setStorageMode(CanalParameter.StorageMode.MEMORY);
        parameter.setMetaMode(CanalParameter.MetaMode.MEMORY);
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        parameter.setHaMode(CanalParameter.HAMode.HEARTBEAT);
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

        CanalServerWithEmbedded embedded = CanalServerWithEmbedded.instance();
        embedded.setCanalInstanceGenerator(destination -> {
            Canal canal = new Canal();
            canal.setId(1L);
            canal.setName(destination);
            canal.setCanalParameter(parameter);
            return new CanalInstanceWithManager(canal, arguments[5]);
        });
        CanalServerWithNetty netty = CanalServerWithNetty.instance();
        netty.setIp("127.0.0.1");
        netty.setPort(Integer.parseInt(arguments[0]));
        netty.start();
        embedded.start(arguments[1]);
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
