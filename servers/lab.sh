# lab.sh: what a guest of the lab runs for tools/lab-servers: servers whose memory is on node 0 and whose workers run on
# all nodes, under a load whose answers are checked, before and after somebody moves their memory.
#
# Sourced by `sh`, after the file `environment` that servers/lab.py has written. `serve SERVER WAY` starts a server and prints
#   SERVER SERVER WAY PID                      the server's process; those of its tree have greater numbers, and the next way's greater ones than these
#   LOAD SERVER WAY MOMENT JSON                a load and its answers' checksum; MOMENT is warm, before, middle or after (before, after: a region each)
#   SETTINGS SERVER WAY kept|JSON              whether the kernel's settings, and the affinities, are what they were once the daemon has ended
#   MOVED SERVER WAY PAGES                     pages that the kernel's NUMA balancing has moved since `before`
#   STOP SERVER WAY JSON                       the daemon's last event; all of them are in the file events-SERVER-WAY beside this one
#   KILLED SERVER WAY JSON                     with `kills` above 0: what was found at each kill of the daemon, and after its next start
# WAY is `nothing` (no daemon), `kernel` (its own NUMA balancing), `pid` (balance --pid with the tree of processes) or `cgroup` (balance --cgroup).
# Variables: numapilot, warm, before, middle (requests or transactions of each client), keys, bytes, rows (of each client), kills (moments in seconds).
cd /tmp || exit 1
debug=/sys/kernel/debug/sched/numa_balancing
clients=4
group=/sys/fs/cgroup/server
events=/tmp/events

settings() { cat /proc/sys/kernel/numa_balancing $debug/scan_delay_ms $debug/scan_period_min_ms $debug/scan_period_max_ms | tr '\n' ' '; }
# Of all of the server's threads, by number: the clients' are the load's.
affinities() { for pid in $(cat $group/cgroup.procs); do grep -h Cpus_allowed_list "/proc/$pid/task/"*/status; done 2> gone | sort | uniq -c | tr '\n' ' '; }
cpus_of() { cat "/sys/devices/system/node/node$1/cpulist"; }
# Waits until a command succeeds; the server must live meanwhile.
until_true() { until "$@" > waited 2>&1; do kill -0 "$server" || { echo "FAILED $* has not come true, and the server has ended"; exit 1; }; sleep 0.05; done; }
# Becomes a command in the server's cgroup, on node 0 until its threads are pinned.
on_node_0() { exec taskset -c "$(cpus_of 0)" sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' $group "$@"; }

printf '#!/bin/sh\nexec taskset -cp "$(cat /sys/devices/system/node/node$2/cpulist)" "$1"\n' > pin
chmod 755 pin

# Without the threads that walk all items now and then, by the clock and not by requests: their misses would be counted among the workers', more of them
# after than before. The hash table is as small as it may be, and stays so.
memcached_alone='-o no_modern,no_lru_crawler,no_lru_maintainer,no_hashexpand,hashpower=13'
start_memcached() {
    # shellcheck disable=SC2086 # several words
    on_node_0 env LD_PRELOAD="$programs/counted.so" memcached -u nobody -s /tmp/memcached.sock -t $clients -m 256 $memcached_alone 2> server.err & server=$!
    until_true "$programs/cache_load" /tmp/memcached.sock fill 1 1 1 0 0
    "$programs/cache_load" /tmp/memcached.sock fill $clients "$keys" "$bytes" 0 0 > filled || { cat filled; exit 1; }
    node=0
    for thread in "/proc/$server/task/"*; do
        [ "$(cat "$thread/comm")" = mc-worker ] || continue
        ./pin "${thread##*/}" $node > pinned && node=$((node + 1))
    done
    [ $node = $clients ] || echo "FAILED memcached has $node threads of the name mc-worker"
}
load_memcached() {
    "$programs/cache_load" /tmp/memcached.sock get $clients "$keys" "$bytes" "$2" 7 > "answers.$1" || echo "FAILED a wrong answer"
    cat "answers.$1"
}
stop_memcached() { kill "$server"; wait "$server"; rm -f /tmp/memcached.sock; }

start_postgresql() {
    rm -rf data
    tar -xf "$programs/data.tar" || exit 1
    # shellcheck disable=SC2086 # several words
    on_node_0 $as env LD_PRELOAD="$programs/counted.so" postgres -D /tmp/data -k /tmp 2> server.err & server=$!
    until_true pg_isready -q
    # Fills shared_buffers from node 0: backends are not pinned here.
    pgbench_run filled 1 /bin/true > filled || { cat filled; exit 1; }
}
pgbench_run() {
    pgbench -n -c $clients -j 1 -t "$2" --random-seed=7 -D run="$1" -D rows="$rows" -D pinned=0 -D turn=0 -D pin="$3" \
        -f "$programs/shard.pgbench" 2> pgbench.err
}
load_postgresql() {
    pgbench_run "$1" "$2" /tmp/pin > "pgbench.$1" || { echo "FAILED pgbench"; cat pgbench.err; }
    processed=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "pgbench.$1")
    failed=$(sed -n 's/^number of failed transactions: \([0-9]*\).*/\1/p' "pgbench.$1")
    tps=$(sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "pgbench.$1")
    # All answers of this run, in order: what the clients were told, as the server keeps it.
    answers="SELECT md5(string_agg(concat_ws(' ', client, turn, low, total, digest), ',' ORDER BY client, turn)) FROM answers WHERE run = '$1'"
    sum=$(psql -AtX -c "$answers" -c "DELETE FROM answers" | head -1)
    printf '{"requests":%s,"seconds":%s,"missing":%s,"wrong":%s,"checksum":"%s"}\n' \
        "$processed" "$(awk "BEGIN {print $processed / $tps}")" $((clients * $2 - processed)) "$failed" "$sum"
}
stop_postgresql() { kill -INT "$server"; wait "$server"; }

# balance OPTIONS: with the processes of the way that is tried.
balance() {
    case $way in
        cgroup) set -- --cgroup $group "$@" ;;
        *) set -- --pid "$server" "$@" ;;
    esac
    exec "$numapilot" balance "$@"
}
migrated() { sed -n 's/^numa_pages_migrated //p' /proc/vmstat; }
begin_way() {
    daemon='' by_kernel=$(migrated)
    case $way in
        kernel) echo 1 > /proc/sys/kernel/numa_balancing ;;
        pid | cgroup)
            balance --json > $events & daemon=$!
            until grep -q '"event":"start"' $events || ! kill -0 $daemon; do sleep 0.02; done ;;
    esac
}
end_way() {
    [ -z "$daemon" ] || { kill $daemon; wait $daemon || echo "FAILED the daemon ended with $?"; grep '"event":"stop"' $events | sed "s/^/STOP $name $way /"
        cp $events "$programs/events-$name-$way"; }
    [ "$way" != kernel ] || echo 0 > /proc/sys/kernel/numa_balancing
    echo "MOVED $name $way $(($(migrated) - by_kernel))"
}

# One kill after a moment, and what the next start puts back.
kill_once() {
    balance --json > $events & daemon=$!
    until grep -q '"event":"start"' $events || ! kill -0 $daemon; do sleep 0.02; done
    sleep "$1"
    kill -9 $daemon || echo "FAILED the daemon had ended before it was killed"
    wait $daemon
    changed=false restored=false
    [ "$(settings)" = "$settings_before" ] || changed=true
    kill -0 "$server" || echo "FAILED the server has ended"
    (balance --quiet --keep-settings --no-probes --for 1ms) || echo "FAILED the next start"
    [ "$(settings)" = "$settings_before" ] && restored=true || echo "FAILED after the next start: $(settings), before: $settings_before"
    echo "KILLED $name $way {\"after_s\":$1,\"changed\":$changed,\"restored\":$restored}"
}
# Kills beside the load, which goes on until the last one.
kill_daemons() {
    rm -f killed
    (until [ -e killed ]; do echo "LOAD $name $way killed $(load_"$name" killed "$before")"; done) & loads=$!
    for moment in $kills; do kill_once "$moment" 2> killing.err; done
    touch killed
    wait $loads
}

serve() {
    name=$1 way=$2
    echo 0 > /proc/sys/kernel/numa_balancing
    mkdir -p $group
    "start_$name"
    settings_before=$(settings) affinities_before=$(affinities)
    echo "SERVER $name $way $server"
    # What workers touch once, at their first request, is no part of what is compared.
    echo "LOAD $name $way warm $(load_"$name" warm "$warm")"
    "$programs/region" begin
    told=$(load_"$name" before "$before")
    "$programs/region" end
    echo "LOAD $name $way before $told"
    begin_way
    echo "LOAD $name $way middle $(load_"$name" middle "$middle")"
    "$programs/region" begin
    told=$(load_"$name" after "$before")
    "$programs/region" end
    echo "LOAD $name $way after $told"
    end_way
    if [ "$(settings)" = "$settings_before" ] && [ "$(affinities)" = "$affinities_before" ]; then echo "SETTINGS $name $way kept"
    else echo "FAILED before: $settings_before$affinities_before; after: $(settings)$(affinities)"; fi
    [ -z "$kills" ] || [ -z "$daemon" ] || kill_daemons
    kill -0 "$server" || echo "FAILED the server has ended"
    "stop_$name"
}

echo 0 > /proc/sys/kernel/numa_balancing
# Servers here run for seconds, not for hours: the kernel's scans come ten times as often as by default (a thread's first after 0.1 s of its running time, the
# next ones at least 0.1 s apart), for its own balancing (`kernel`) as for the daemon, which shortens these periods itself.
echo 100 > $debug/scan_delay_ms
echo 100 > $debug/scan_period_min_ms
# A huge page would hold the data of several clients: no home could be right for all of them, and none of the ways could be.
echo never > /sys/kernel/mm/transparent_hugepage/enabled
# All of the binary is read once before anything is timed.
cat "$numapilot" > read && rm read
"$numapilot" --version > /dev/null
