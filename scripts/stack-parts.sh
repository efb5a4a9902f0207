# shellcheck shell=bash disable=SC2154
# The parts of a stack as processes: how each is configured and run, and how one is found, signalled and waited for.
# Sourced by scripts/stack and scripts/setup after lib.sh. The caller has set `stack_dir` (absolute) and, for run_part,
# called tools_find.
#
# A part is kafka1..3, mongo1..3 or redis. Under stack_dir:
#   data/PART      its data           log/PART.log   its output
#   run/PART.pid   "PID START": the process and its start time from /proc, so that a pid which was given to another
#                  process since is never signalled; written by the process itself before it becomes the program
#   run/PART.off   why it is not running on purpose ("stopped", "killed")

# process_read PID: sets process_state and process_start (fields 3 and 22 of /proc/PID/stat).
process_read() {
  local stat fields
  process_state='' process_start=''
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"   # the name before it may hold blanks
  process_state=${fields[0]} process_start=${fields[19]}
}

# part_alive PART: whether its process runs (or is paused); sets part_pid. A zombie that nobody reaps is gone.
part_alive() {
  local start
  part_pid=''
  { read -r part_pid start <"$stack_dir/run/$1.pid"; } 2>/dev/null || return 1
  process_read "$part_pid" && [ "$process_start" = "$start" ] && [ "$process_state" != Z ] && [ "$process_state" != X ]
}

# part_state PART: prints up, paused, stopped, killed or died.
part_state() {
  local why
  if part_alive "$1"; then
    case $process_state in T|t) echo paused ;; *) echo up ;; esac
  elif { read -r why <"$stack_dir/run/$1.off"; } 2>/dev/null; then echo "$why"
  else echo died
  fi
}

# part_signal SIGNAL PART: 0 also when it ended just now.
part_signal() {
  part_alive "$2" || return 0
  kill -s "$1" "$part_pid" 2>/dev/null || ! part_alive "$2" || die 1 "$2: no right to signal its process $part_pid"
}

# spawn PART FOLDER COMMAND...: COMMAND runs in FOLDER, in a session of its own, with nothing of the caller but the environment.
spawn() {
  local part=$1 folder=$2; shift 2
  rm -f "$stack_dir/run/$part.off"
  (
    exec </dev/null >>"$stack_dir/log/$part.log" 2>&1
    process_read "$BASHPID"
    printf '%s %s\n' "$BASHPID" "$process_start" >"$stack_dir/run/$part.pid.new"
    mv "$stack_dir/run/$part.pid.new" "$stack_dir/run/$part.pid"
    cd "$folder" || exit
    # No inherited descriptor: a lock or the caller's pipe would be held for as long as the part runs.
    for fd in /proc/"$BASHPID"/fd/*; do
      fd=${fd##*/}
      [ "$fd" -le 2 ] || eval "exec $fd>&-"
    done
    export LC_ALL=C   # mongod does not start under a locale that is not installed
    exec setsid "$@"  # the same pid: a background process leads no group, so setsid need not fork
  ) &
  # The command of a part that just starts must be known before anybody asks for it.
  while [ ! -f "$stack_dir/run/$part.pid" ] && kill -0 $! 2>/dev/null; do sleep 0.005; done
}

# --- configuration -------------------------------------------------------------------------------------------------

# kafka_config DATA NODE BROKERS LISTEN CONTROLLER VOTERS: prints server.properties.
kafka_config() {
  local data=$1 node=$2 brokers=$3 listen=$4 controller=$5 voters=$6 isr
  isr=$(( brokers > 1 ? 2 : 1 ))
  cat <<EOF
process.roles=broker,controller
node.id=$node
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$listen,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$listen
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=$data
auto.create.topics.enable=false
default.replication.factor=$brokers
min.insync.replicas=$isr
offsets.topic.replication.factor=$brokers
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=$brokers
transaction.state.log.min.isr=$isr
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=$brokers
share.coordinator.state.topic.min.isr=$isr
share.coordinator.state.topic.num.partitions=4
# Tests use short sessions and wait for nobody.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Records of any age stay.
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=4194304
EOF
  # Tests take rights away by ACLs; what no ACL speaks of is allowed to everybody. With one broker only: several
  # controllers would have to ask for rights before they have found together.
  [ "$brokers" -gt 1 ] || cat <<'EOF'
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
EOF
}

kafka_log_config() {
  cat <<'EOF'
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
# Every setting at its value, several times per start.
logger.config.name=org.apache.kafka.common.config
logger.config.level=WARN
logger.values.name=kafka.server.KafkaConfig
logger.values.level=WARN
EOF
}

# kafka_java MEGABYTES: sets kafka_command up to the main class. The first compiler tier and the class archive start a
# broker in 0.9 s instead of 2.2 s. KAFKA_JVM_OPTS comes last and can undo it.
kafka_java() {
  local classpath own=()
  classpath=$(printf '%s:' "$tool_kafka_libs"/*.jar)
  read -ra own <<<"${KAFKA_JVM_OPTS:-}"
  kafka_command=("$tool_java" "-Xmx${1}m" -Xms64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
  [ ! -s "$tool_kafka_warm/classes.jsa" ] || kafka_command+=("-XX:SharedArchiveFile=$tool_kafka_warm/classes.jsa")
  kafka_command+=("${own[@]}" -Dlog4j2.configurationFile="$stack_dir/data/log4j2.properties" -cp "$classpath")
}

# kafka_format DATA NODE: as `StorageTool format` leaves it; the bootstrap file is StorageTool's own, made by scripts/setup.
kafka_format() {
  mkdir -p "$1"
  cp "$tool_kafka_warm/bootstrap.checkpoint" "$1/"
  printf 'version=1\ncluster.id=%s\nnode.id=%s\n' "$stack_cluster_id" "$2" >"$1/meta.properties"
}

# --- the parts -----------------------------------------------------------------------------------------------------
# The caller has read the stack's shape: stack_brokers, stack_mongods, stack_cluster_id, part_port[PART] and, for a
# broker's controller, part_port[PART.controller].

run_kafka() {
  local part=$1 node=${1#kafka} folder=$stack_dir/data/$1 voters='' i
  for ((i = 1; i <= stack_brokers; i++)); do voters+=${voters:+,}$i@127.0.0.1:${part_port[kafka$i.controller]}; done
  mkdir -p "$folder"
  [ -f "$folder/log/meta.properties" ] || kafka_format "$folder/log" "$node"
  kafka_log_config >"$stack_dir/data/log4j2.properties"
  kafka_config "$folder/log" "$node" "$stack_brokers" "${part_port[$part]}" "${part_port[$part.controller]}" "$voters" \
    >"$folder/server.properties"
  kafka_java $(( stack_brokers > 1 ? 256 : 512 ))
  spawn "$part" "$folder" "${kafka_command[@]}" kafka.Kafka "$folder/server.properties"
}

run_mongo() {
  local part=$1 folder=$stack_dir/data/$1 cache=1
  [ "$stack_mongods" = 1 ] || cache=0.25
  mkdir -p "$folder"
  # The shutdown timeout: a primary would else wait up to 15 s for a successor that there may not be.
  spawn "$part" "$folder" "$tool_mongod" --replSet rs0 --bind_ip 127.0.0.1 --port "${part_port[$part]}" --dbpath "$folder" \
    --nounixsocket --wiredTigerCacheSizeGB "$cache" --oplogSize 256 --setParameter enableTestCommands=1 \
    --setParameter shutdownTimeoutMillisForSignaledShutdown=100 --setParameter diagnosticDataCollectionEnabled=false
}

run_redis() {
  local folder=$stack_dir/data/redis
  mkdir -p "$folder"
  # The append-only file brings the data back after kill -9; it is not fsynced, this survives programs, not power cuts.
  spawn redis "$folder" "$tool_redis" --port "${part_port[redis]}" --bind 127.0.0.1 --dir "$folder" --save '' \
    --appendonly yes --appendfsync no --daemonize no
}

run_part() {
  case $1 in
    kafka*) run_kafka "$1" ;;
    mongo*) run_mongo "$1" ;;
    redis) run_redis ;;
  esac
}
