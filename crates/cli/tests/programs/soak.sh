# What the guest of lab_soak.rs runs: a daemon over the whole guest, and rounds of programs that come and go, of clients that steer and read it, and of quiet
# moments in which its size is taken. $numapilot, $moves, $seconds and $length, for how long a program runs, are set before. At least four rounds, whatever time
# they take: where the host is busy, the guest's clock may be minutes on after one.
set -u
cd /tmp
cat > soak.toml <<'END'
system = true
[journal]
file = "/tmp/soak.journal"
max-size = "256K"
parts = 2
keep-free = "1M"
[control]
socket = "/tmp/soak.control"
[metrics]
listen = "unix:/tmp/soak.metrics"
per-process = true
[state]
folder = "/tmp/soak.state"
END
balancing=$(cat /proc/sys/kernel/numa_balancing)
# All of the binary is read from the host before anybody waits for an answer: where nobody else works in the guest, its clock runs away meanwhile.
cat "$numapilot" > /dev/null
# On a busy host a program may have ended before it is named.
ctl() {
    "$numapilot" ctl "$@" --socket /tmp/soak.control > ctl.out 2>&1 ||
        grep -q 'no process\|has ended\|is not managed' ctl.out || echo "FAILED ctl $*: $(cat ctl.out)"
}
"$numapilot" balance --quiet --config soak.toml 2> soak.errors &
daemon=$!
until "$numapilot" ctl status --socket /tmp/soak.control > ctl.out 2>&1; do
    kill -0 $daemon || { cat soak.errors; echo FAILED the daemon did not start; exit 1; }
    sleep 0.2
done
now() { cut -d. -f1 /proc/uptime; }
ran_ms() { cat /proc/$daemon/task/*/schedstat | awk '{ns += $1} END {printf "%d", ns / 1e6}'; }
field() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" /proc/$daemon/status; }
# Descriptors of processes (pidfd) that are no more: number and inode, which is of one process for ever.
ended() {
    for info in $(grep -l '^Pid:[[:space:]]*-1$' /proc/$daemon/fdinfo/*); do
        echo "$info $(sed -n 's/^ino:[[:space:]]*//p' "$info")"
    done 2> /dev/null
}
# Descriptors, but those of processes that live or have just ended: it has one of each process that it manages, also of those by which this is counted, until it
# notices at its next look that the process has ended. ended.before, ended.after: those with some looks in between.
descriptors() {
    echo $(($(grep -L '^Pid:' /proc/$daemon/fdinfo/* 2> /dev/null | wc -l) + $(sort ended.before ended.after | uniq -d | wc -l)))
}
begun=$(now)
round=0
while [ $(($(now) - begun)) -lt "$seconds" ] || [ $round -lt 4 ]; do
    round=$((round + 1))
    for program in remote churn shared phases; do
        "$moves" $program 1 $length > out.$program 2> err.$program &
        eval "pid_$program=$!"
        # Many short ones, of which the daemon may never see more than the birth.
        for short in 1 2 3 4 5; do true & done
    done
    ctl status
    ctl add "$pid_remote"
    ctl remove "$pid_remote"
    ctl add "$pid_remote"
    case $((round % 4)) in
        0) ctl pause; ctl resume ;;
        1) ctl reload ;;
        2) kill -9 "$pid_shared" ;;
        3) kill -HUP $daemon ;;
    esac
    for program in remote churn shared phases; do
        eval "wait \$pid_$program"
        status=$?
        [ $status = 0 ] || { [ $program = shared ] && [ $status = 137 ]; } || echo "FAILED $program: status $status"
        grep -h '^checksum' out.$program | sed "s/^/SUM $program /"
    done 2> /dev/null
    # Quiet: whoever has ended is no target any more.
    ended > ended.before
    sleep 3
    ended > ended.after
    echo "SIZE $(($(now) - begun)) $(field VmRSS) $(field RssAnon) $(descriptors) $(field Threads) $(ran_ms)"
    # Which they are, should their number grow.
    echo "OPEN $(ls -l /proc/$daemon/fd | sed -n 's/.* -> //p' | sed 's/[0-9][0-9]*/N/g' | sort | uniq -c | tr -s ' \n' ' ')"
done
kill -TERM $daemon
wait $daemon || echo "FAILED the daemon ended with $?"
[ "$(cat /proc/sys/kernel/numa_balancing)" = "$balancing" ] || echo FAILED kernel.numa_balancing is not as it was
echo "ERRORS $(sort soak.errors | uniq -c | head -5)"
echo "JOURNAL $(ls soak.journal* | wc -l) files, $(cat soak.journal* | wc -c) bytes"
