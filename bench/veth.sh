# shellcheck shell=bash
# What bench/peers and bench/loss share; sourced, with $NAME set to the command's name.
#
# Two network namespaces of their own, "near" with the prober and "far", joined by one veth pair.
# The far one answers for all of 10.66.0.0/16, and no other address is ever probed. Processes that
# are started here are ended by their pid.

fail() { echo "$NAME: $*" >&2; exit 1; }

near=kube-canary-near-$$ far=kube-canary-far-$$ far_holder='' near_holder='' loops=() pid='' tap=''
readonly near far

# Ends a process that this shell started, by its pid, and waits for it: 5 s for SIGTERM.
end() {
    local i
    kill "$1" 2>/dev/null || true
    for ((i = 0; i < 50; i++)); do kill -0 "$1" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

veth_up() {
    local namespace
    [ "$(id -u)" = 0 ] || fail "network namespaces need root: run it as root, or under unshare --map-root-user --net --mount"
    ip netns add "$near"
    ip netns add "$far"
    ip -n "$near" link add eth0 type veth peer name eth0 netns "$far"
    ip -n "$near" address add 10.65.0.1/24 dev eth0
    ip -n "$far" address add 10.65.0.2/24 dev eth0
    for namespace in "$near" "$far"; do
        ip -n "$namespace" link set lo up
        ip -n "$namespace" link set eth0 up
        # The answering side must not be the limit. msgs_per_sec belongs to a namespace only since
        # Linux 6.11, and before that does not show in it. Echo replies are exempt from both by
        # default.
        ip netns exec "$namespace" sysctl -qw net.ipv4.icmp_ratelimit=0
        ip netns exec "$namespace" sysctl -qw net.ipv4.icmp_msgs_per_sec=1000000 2>/dev/null || true
    done
    # All targets are behind one neighbour: 5,000 entries in the neighbour table are not under test
    # here.
    ip -n "$near" route add 10.66.0.0/16 via 10.65.0.2
    ip -n "$far" route add local 10.66.0.0/16 dev lo
    # As the pod's sysctl permits it in a cluster. The tools that need raw sockets run as root
    # anyway.
    ip netns exec "$near" sysctl -qw net.ipv4.ping_group_range="0 2147483647"
    # Through a process in each, /proc/PID/net shows the namespace's counters without starting one.
    ip netns exec "$near" sleep 86400 &
    near_holder=$!
    ip netns exec "$far" sleep 86400 &
    far_holder=$!
    local i process own
    own=$(readlink /proc/self/ns/net)
    for process in "$near_holder" "$far_holder"; do
        for ((i = 0; i < 50; i++)); do
            [ "$(readlink "/proc/$process/ns/net")" = "$own" ] || break
            sleep 0.1
        done
    done
    # Without this, the first echo would wait for the neighbour's address, and be the slowest of
    # all.
    local address
    address=$(ip -n "$far" -br link show eth0 | awk '{ print $3 }')
    ip -n "$near" neighbour replace 10.65.0.2 lladdr "$address" dev eth0 nud permanent
    address=$(ip -n "$near" -br link show eth0 | awk '{ print $3 }')
    ip -n "$far" neighbour replace 10.65.0.1 lladdr "$address" dev eth0 nud permanent
}

veth_down() {
    local process
    for process in $pid $tap "${loops[@]}" $near_holder $far_holder; do end "$process"; done
    ip netns delete "$near" 2>/dev/null || true
    ip netns delete "$far" 2>/dev/null || true
}

# Starts 4 busy loops in the mode `busy`, none when `idle`.
loops_start() {
    local i
    loops=()
    [ "$1" = busy ] || return 0
    for i in 1 2 3 4; do
        bash -c 'while :; do :; done' &
        loops+=($!)
    done
}

loops_stop() {
    local process
    for process in "${loops[@]}"; do end "$process"; done
    loops=()
}

# Echo requests that reached the far side, as its kernel counted them.
requests_arrived() { icmp_count "$far_holder" InType8; }

icmp_count() { # pid-of-the-namespace counter
    awk -v name="$2" '
        /^IcmpMsg:/ && !fields { fields = split($0, names); next }
        /^IcmpMsg:/ { for (i = 2; i <= fields; i++) if (names[i] == name) count = $i }
        END { print count + 0 }' "/proc/$1/net/snmp"
}

# Echo replies that came back to the near side.
replies_arrived() { icmp_count "$near_holder" InType0; }

# CPU time of all threads of a process, in nanoseconds, from schedstat: utime + stime count in steps
# of 10 ms.
cpu_ns() {
    local total=0 ns rest file
    for file in /proc/"$1"/task/*/schedstat; do
        read -r ns rest <"$file" || continue
        total=$((total + ns))
    done 2>/dev/null
    [ "$total" -gt 0 ] || fail "no processor time in /proc/$1/task/*/schedstat: the kernel needs CONFIG_SCHED_INFO"
    echo "$total"
}

kb() { awk -v key="$1:" '$1 == key { print $2; found = 1 } END { exit !found }' "$2"; } # key file

in_near() { ip netns exec "$near" "$@"; }

addresses() { # count: 10.66.0.1 and on, a line each
    awk -v count="$1" 'BEGIN { for (i = 1; i <= count; i++) printf "10.66.%d.%d\n", i / 256, i % 256 }'
}

provenance() { # the command line
    echo "commit $(git describe --always --dirty --abbrev=12)"
    rustc --version
    echo "Linux $(uname -rm), $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    echo "load average at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo "$(date -u +%F), command: $1"
}
