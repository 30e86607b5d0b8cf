#!/bin/sh
# A standalone cluster of Spark on this machine: sh cluster.sh start | stop
#
# MASTER_PORT (7077) and PAGE_PORT (8080) may be set. Logs and process ids are in cluster/.
set -eu
: "${MASTER_PORT:=7077}" "${PAGE_PORT:=8080}" "${PYTHON:=python3}"

find_spark() { # what `pip install 'tidemill[spark]'` brought, with a Java if the machine has none
  SPARK_HOME=$("$PYTHON" -c 'import pyspark; print(pyspark.__path__[0])')
  java='from tidemill.spark.java import find_java, java_home; print(java_home(find_java()))'
  JAVA_HOME=$("$PYTHON" -c "$java")
  PYSPARK_PYTHON=$(command -v "$PYTHON")
  export SPARK_HOME JAVA_HOME PYSPARK_PYTHON
}

launch() { # NAME CLASS ARGUMENT...
  name=$1
  shift
  "$SPARK_HOME/bin/spark-class" "$@" >"cluster/$name.log" 2>&1 &
  echo $! >"cluster/$name.pid"
}

wait_for() { # NAME WORDS: until its log says so
  for _ in $(seq 600); do
    grep -q "$2" "cluster/$1.log" && return
    kill -0 "$(cat "cluster/$1.pid")" 2>/dev/null || break
    sleep 0.1
  done
  echo "the $1 did not start: see cluster/$1.log" >&2
  exit 1
}

case "${1:-}" in
start)
  if [ -e cluster/master.pid ]; then
    echo "a cluster was started here: sh cluster.sh stop" >&2
    exit 1
  fi
  find_spark
  mkdir -p cluster
  deploy=org.apache.spark.deploy
  launch master $deploy.master.Master --host 127.0.0.1 --port "$MASTER_PORT" --webui-port "$PAGE_PORT"
  wait_for master "I have been elected leader"
  for number in 1 2; do
    launch "worker-$number" $deploy.worker.Worker --host 127.0.0.1 --webui-port 0 \
      --cores 1 --memory 1g --work-dir "$PWD/cluster/work" "spark://127.0.0.1:$MASTER_PORT"
  done
  for number in 1 2; do
    wait_for "worker-$number" "Successfully registered with master"
  done
  echo "spark://127.0.0.1:$MASTER_PORT runs; its page is http://127.0.0.1:$PAGE_PORT"
  ;;
stop)
  for file in cluster/worker-*.pid cluster/master.pid; do
    [ -e "$file" ] || continue
    kill "$(cat "$file")" 2>/dev/null || true # It may have ended by itself.
    rm "$file"
  done
  ;;
*)
  echo "usage: sh cluster.sh start | stop" >&2
  exit 2
  ;;
esac
