#!/usr/bin/env bash
# A broker of Kafka for the tests, kafka or kafka39, downloaded once into ${SLUICE_CACHE:-~/.cache/sluice}/servers/NAME.
#
#   kafka.sh NAME fetch                          prints the version
#   kafka.sh NAME format CONFIG ID [OPTION...]   prepares the folder of a broker's data
#   kafka.sh NAME run CONFIG                     runs a broker in the foreground
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$1
shift
# shellcheck source=tests/servers/downloads.sh
source "$here/downloads.sh"
dist=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/servers/$name

fetch_kafka() { # 4.1.1
  fetch_maven "$dist" \
    org.hdrhistogram:HdrHistogram:2.2.2 22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8 \
    net.sourceforge.argparse4j:argparse4j:0.7.0 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56 \
    com.github.ben-manes.caffeine:caffeine:3.2.0 ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7 \
    commons-beanutils:commons-beanutils:1.9.4 7d938c81789028045c08c065e94be75fc280527620d5bd62b519d5838532368a \
    commons-collections:commons-collections:3.2.2 eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8 \
    commons-digester:commons-digester:2.1 e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d \
    commons-logging:commons-logging:1.3.2 6b858424f518015f32bfcd1183a373f4a827d72d026b6031da0c91cf0e8f3489 \
    commons-validator:commons-validator:1.9.0 c3c14748e2d78db58df88808740711bd643b32c45ffa7b8a739f00fb467cd7d7 \
    com.dynatrace.hash4j:hash4j:0.22.0 23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e \
    com.fasterxml.jackson.core:jackson-annotations:2.19.0 ead60e9cac0e42b57092b9e2d087ff43536e9477d4486ba393037a8cc156cda7 \
    com.fasterxml.jackson.core:jackson-core:2.19.0 da8e859bac94874528116a25f20c68560e4287acbf27628711b8a4f96b028430 \
    com.fasterxml.jackson.core:jackson-databind:2.19.0 ceda311f476c3b18e1d2b240c94e2dcb9c8d44e70f8afa9facab88bac4ddc03a \
    com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.19.0 bec1150426b0616bb488149b952b45a0dcb16d9416b017c38f6455ad9389bc68 \
    com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.19.0 46e54dcbd39d4d12cda18ec9276e7b888e08fc765ea0c77e71662306f0d4abc4 \
    com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.19.0 04f1a3f9da8155995dd00098d6847cdb9b7af67f4a3028c94031eff017c8e3e5 \
    net.sf.jopt-simple:jopt-simple:5.0.4 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28 \
    org.bitbucket.b_c:jose4j:0.9.6 7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef \
    org.jspecify:jspecify:1.0.0 1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab \
    org.apache.kafka:kafka-clients:4.1.1 00247122a572c3d3ae4eb60a50192a5811bc0181f51923d13018600f892e821d \
    org.apache.kafka:kafka-coordinator-common:4.1.1 2072fc1ce7e0505149bba22a463a5909a899c6235c4fa696f15c21194a7baf60 \
    org.apache.kafka:kafka-group-coordinator:4.1.1 3eb5a673b69d5992cfa86c5436f39adbf4ce284046a4c999ec6af0a8e31c5589 \
    org.apache.kafka:kafka-group-coordinator-api:4.1.1 3d1801d2329dcf7d273796a034d61e6c7e0f851f384d0afbdd3a2e6cbd17a968 \
    org.apache.kafka:kafka-metadata:4.1.1 a689665751415b6456de1ecb013042cb7ba99ac68fd8c3e8bf28e098feb43218 \
    org.apache.kafka:kafka-raft:4.1.1 4810c93d93d1935dd54de61c5ba130f501c7fe11bc49ccd3ee05ec857818a72a \
    org.apache.kafka:kafka-server:4.1.1 9f6aff422855491aad54326eca8d604163d6d3a6507cc48ffe3ce6de73caf79a \
    org.apache.kafka:kafka-server-common:4.1.1 207edecd8322cf6c13d76d84addea7fd0ec441dc8d698cf69df43210ccdc0a94 \
    org.apache.kafka:kafka-share-coordinator:4.1.1 e6bec53428c77bf6579321836d482542a93575f7c08e860a26c9f2c7f6059dac \
    org.apache.kafka:kafka-storage:4.1.1 1f85b82853eaec0143efbef7e3a4d4be8929ff83a386326431e0c2d0a557e58c \
    org.apache.kafka:kafka-storage-api:4.1.1 8c0a712472185d706c6bf5ae24bf5d84a8e396fd4745c708e6146a415f7fa7f7 \
    org.apache.kafka:kafka-tools-api:4.1.1 542b08fe20cf872a2d866acdff61ea338b469219dc2ebfae727a1d9ea5737e1a \
    org.apache.kafka:kafka-transaction-coordinator:4.1.1 a261b5730ac9e3205df7af5d45180d851e9d5f729ce1275c67511a6f51f73755 \
    org.apache.kafka:kafka_2.13:4.1.1 e89428126cc7630a802123ba27aac4442816840b66d60670226feaff65f24fd1 \
    org.apache.logging.log4j:log4j-api:2.24.3 5b4a0a0cd0e751ded431c162442bdbdd53328d1f8bb2bae5fc1bbeee0f66d80f \
    org.apache.logging.log4j:log4j-core:2.24.3 7eb4084596ae25bd3c61698e48e8d0ab65a9260758884ed5cbb9c6e55c44a56a \
    org.lz4:lz4-java:1.8.0 d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef \
    com.yammer.metrics:metrics-core:2.2.0 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c \
    org.pcollections:pcollections:4.0.2 2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef \
    com.google.re2j:re2j:1.8 7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7 \
    org.scala-lang:scala-library:2.13.16 1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1 \
    com.typesafe.scala-logging:scala-logging_2.13:3.9.5 87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545 \
    org.scala-lang:scala-reflect:2.13.16 fb49ccd9cac7464486ab993cda20a3c1569d8ef26f052e897577ad2a4970fb1d \
    org.slf4j:slf4j-api:1.7.36 d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0 \
    org.slf4j:slf4j-simple:1.7.36 2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f \
    org.yaml:snakeyaml:2.4 ef779af5d29a9dde8cc70ce0341f5c6f7735e23edff9685ceaa9d35359b7bb7f \
    org.xerial.snappy:snappy-java:1.1.10.7 4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36 \
    com.github.luben:zstd-jni:1.5.6-10 b6c3237e24b8252a5a9c3a0e1ae30ef8f323412e74bd358548b7a9e527d676df
}

fetch_kafka39() { # 3.9.1
  fetch_maven "$dist" \
    net.sourceforge.argparse4j:argparse4j:0.7.0 65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56 \
    com.github.ben-manes.caffeine:caffeine:2.9.3 1e0a7bbef1dd791653143f3f05d0e489934bf5481e58a87c9e619cd46b68729b \
    commons-beanutils:commons-beanutils:1.9.4 7d938c81789028045c08c065e94be75fc280527620d5bd62b519d5838532368a \
    commons-collections:commons-collections:3.2.2 eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8 \
    commons-digester:commons-digester:2.1 e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d \
    commons-logging:commons-logging:1.2 daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636 \
    commons-validator:commons-validator:1.7 4d74f4ce4fb68b2617edad086df6defdf9338467d2377d2c62e69038e1c4f02f \
    com.fasterxml.jackson.core:jackson-annotations:2.16.2 d1cdd269ebaa753d1842933194e17d61958f058952d63e03dbfb3d1d78a6926e \
    com.fasterxml.jackson.core:jackson-core:2.16.2 4f43e2f1430b2d2413e8e5a3d79138e57e891d6a961b18c28ac90859639d8664 \
    com.fasterxml.jackson.core:jackson-databind:2.16.2 53b6025d98c357068296e4b134242443a248c2c582800879f1c4ea93b54bafa6 \
    com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.16.2 01a04610def154c50369e8bcd7c5ae1401579f591aa55e88f05093447e24d490 \
    com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.16.2 3e9b1b59f638b487b5ae0e2f4190fc98f72b0bf661324e7dfc71a69f6b9d4e29 \
    net.sf.jopt-simple:jopt-simple:5.0.4 df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28 \
    org.bitbucket.b_c:jose4j:0.9.4 9012aa4c20319d35159030c3bdecade66863030a98338bfdf73a5238849fb9d9 \
    org.apache.kafka:kafka-clients:3.9.1 7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9 \
    org.apache.kafka:kafka-group-coordinator:3.9.1 fd30310533df51b17d14beb8eb8c9006a9ebb90b536c319776429e413f622a69 \
    org.apache.kafka:kafka-group-coordinator-api:3.9.1 cb267d841def1172d8db24a830936f1c6aaf29c3de5bdbc5bbc42b67d8cb82c0 \
    org.apache.kafka:kafka-metadata:3.9.1 35c35118d4abb0b747ad68d1e0be00d5bd02206b462ad76ebbcd85b33436f13a \
    org.apache.kafka:kafka-raft:3.9.1 0d4236cf868f8668c74c49bec4bed41e400bb13d6d381a0f8e9843585b2f159f \
    org.apache.kafka:kafka-server:3.9.1 02b5a92645865e3152e9d1d829f6d4c4b4272f637b7fe4a2b00cabcbcd8df6f4 \
    org.apache.kafka:kafka-server-common:3.9.1 99f1f5f81e9d39cfbe5c96ab8e3854be8deca465937192c9a6e2f231678d31f6 \
    org.apache.kafka:kafka-storage:3.9.1 a3041e6192a37e5508519d776f8af93b74d3fd23174b03e270c0394f1c77b59f \
    org.apache.kafka:kafka-storage-api:3.9.1 f466777625641d4bca1314d80206eafa9e2494326496ad626489ba0a0ef479fc \
    org.apache.kafka:kafka-tools-api:3.9.1 c365c872ffc9a04886f248c5fd90067829ed4064fcd8fe5e12611b163cd053b4 \
    org.apache.kafka:kafka-transaction-coordinator:3.9.1 45b852f2e6e501d4dbdd43b97c4057e6cb6827b76e5aabcffcae8b8e2918554f \
    org.apache.kafka:kafka_2.13:3.9.1 5631c61356d55611c158291a69ad028f3c4fed5d0a610c62a0853c65c89d10f6 \
    org.lz4:lz4-java:1.8.0 d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef \
    com.yammer.metrics:metrics-core:2.2.0 6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c \
    org.pcollections:pcollections:4.0.1 1f82766d7c3221930854033bebff5073ea46b43f27326074bbe15d148c18bfb3 \
    org.scala-lang.modules:scala-java8-compat_2.13:1.0.2 90d5b13656be93fb779b8d7c723efa2498a34af06273bb5204afb65f85a20c1b \
    org.scala-lang:scala-library:2.13.15 8e4dbc3becf70d59c787118f6ad06fab6790136a0699cd6412bc9da3d336944e \
    com.typesafe.scala-logging:scala-logging_2.13:3.9.5 87a3017d3f43e6ace7566fe4c3d615134c6914ff871c8d64bb32ca1d996d0545 \
    org.scala-lang:scala-reflect:2.13.15 78d0cc350e1ee42d87c6e11cf5b0dc7bf0b70829c00aa38f27bfb019d439dc11 \
    org.slf4j:slf4j-api:1.7.36 d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0 \
    org.slf4j:slf4j-simple:1.7.36 2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f \
    org.xerial.snappy:snappy-java:1.1.10.5 0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b \
    org.apache.zookeeper:zookeeper:3.8.4 2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97 \
    org.apache.zookeeper:zookeeper-jute:3.8.4 93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284 \
    com.github.luben:zstd-jni:1.5.6-4 793ca8734aa15687e7e64564eab8b6ae9ee2720eae27aa663074682144b1c386
}

run() {
  exec java -Xmx320m -Xms96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$dist/*" "$@"
}

case $1 in
  fetch)
    mkdir -p /usr/share/man/man1 # Java's packages write there, and small images of Debian leave it out
    need java default-jre-headless
    once "$dist" "fetch_$name"
    jars=("$dist"/kafka_*.jar)
    basename "${jars[0]##*-}" .jar
    ;;
  format) run kafka.tools.StorageTool format --ignore-formatted -c "$2" -t "${@:3}" ;;
  run) run kafka.Kafka "$2" ;;
  *) say "fetch, format or run, not $1"; exit 2 ;;
esac
