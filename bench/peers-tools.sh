# shellcheck shell=bash disable=SC2034,SC2154  # the variables are set in bench/peers, and read there
# How bench/peers finds, starts and reads each tool; sourced by it.
#
# For each TOOL: `command_TOOL PHASE TARGETS SECONDS` sets the array `command`. In the phase `cost`,
# the tool prints as little as possible; in `accuracy`, every round-trip time. `loss_TOOL` prints
# "sent lost" as the tool reports them. `rtts_TOOL` prints a line "address sequence rtt_ns stamp"
# per reply, if the tool shows them. $out and $err are the tool's output, $body its last scrape.

readonly TOOLS="floor reference kube-canary oping fping naive smokeping ping_exporter cloudprober"
# The sources of the Go tools, if they are not on the PATH: module, version, folder of the program
# in it.
readonly SMOKEPING="github.com/superq/smokeping_prober v0.11.0 ."
readonly PING_EXPORTER="github.com/czerwonk/ping_exporter v1.1.4 ."
readonly CLOUDPROBER="github.com/cloudprober/cloudprober v0.14.2 cmd/cloudprober"
# The bounds of KubeCanary's histogram, for the exporters with configurable bounds: their defaults
# begin at 50 µs or above.
readonly BOUNDS=1e-05,2.5e-05,5e-05,0.0001,0.00025,0.0005,0.001,0.0025,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1

declare -A binary=() version=() missing=()

on_path() { # tool names…
    local name file tool=$1; shift
    for name in "$@"; do
        if file=$(PATH=$PATH:$tools command -v "$name"); then binary[$tool]=$file; return 0; fi
    done
    return 1
}

go_tool() { # tool "module version folder" names…
    local tool=$1 module version folder error; read -r module version folder <<<"$2"; shift 2
    on_path "$tool" "$@" && return
    if ! command -v go >/dev/null; then
        missing[$tool]="not on the PATH, and without Go $module $version cannot be built"
        return
    fi
    # The same as `go install module@version`, without its look-up of newer versions: this version
    # is the one to measure.
    mkdir -p "$tools/go-$tool"
    printf 'module bench\n\nrequire %s %s\n' "$module" "$version" >"$tools/go-$tool/go.mod"
    if error=$(cd "$tools/go-$tool" && timeout 900 go build -mod=mod -o "$tools/$1" "$module/$folder" 2>&1); then
        binary[$tool]=$tools/$1
    else
        missing[$tool]="not on the PATH, and $module $version cannot be had: ${error##*$'\n'}"
        missing[$tool]=${missing[$tool]//$'\t'/}
    fi
}

build_c() { cc -O2 -Wall -Wextra -std=gnu11 -static -o "$1" "$2"; }

find_tool() { # leaves binary[tool] and version[tool], or missing[tool]
    case $1 in
        floor) build_c "$tools/floor" bench/floor.c; binary[floor]=$tools/floor version[floor]="of this checkout" ;;
        reference)
            if [ -n "${KUBE_CANARY_BENCH_FLOOR:-}" ]; then
                cc -O2 -static -o "$tools/reference" "$KUBE_CANARY_BENCH_FLOOR"
                binary[reference]=$tools/reference version[reference]=$(md5sum <"$KUBE_CANARY_BENCH_FLOOR" | cut -c1-12)
            else
                missing[reference]="another floor program, only where KUBE_CANARY_BENCH_FLOOR names its source; the ratios are to our own"
            fi ;;
        kube-canary)
            if [ -n "${KUBE_CANARY_BENCH_BIN:-}" ]; then
                binary[$1]=$KUBE_CANARY_BENCH_BIN
            else
                cargo build --quiet --release --target "$musl" --bin kube-canary >&2
                binary[$1]=$target/$musl/release/kube-canary
            fi
            version[$1]=$("${binary[$1]}" version --json) ;;
        naive)
            cargo build --quiet --release --target "$musl" --package kube-canary-bench --bin naive_pinger >&2
            binary[$1]=$target/$musl/release/naive_pinger version[$1]="surge-ping of Cargo.lock" ;;
        fping | oping)
            on_path "$1" "$1" || missing[$1]="not on the PATH (Debian: $1)"
            version[$1]=$(dpkg-query -W -f '${Version}' "$1" 2>/dev/null || "$1" -v 2>&1 | head -n 1) ;;
        smokeping)
            go_tool "$1" "$SMOKEPING" smokeping_prober prometheus-smokeping-prober
            [ -z "${binary[$1]:-}" ] || version[$1]=$("${binary[$1]}" --version 2>&1 | head -n 1) ;;
        ping_exporter)
            go_tool "$1" "$PING_EXPORTER" ping_exporter
            [ -z "${binary[$1]:-}" ] || version[$1]=$("${binary[$1]}" --version 2>&1 | grep -i version | head -n 1) ;;
        cloudprober)
            go_tool "$1" "$CLOUDPROBER" cloudprober
            [ -z "${binary[$1]:-}" ] || version[$1]=$("${binary[$1]}" --version 2>&1 | head -n 1) ;;
    esac
}

# The port of its /metrics; nothing for a tool that has none.
port() {
    case $1 in
        kube-canary) echo 9877 ;;
        smokeping) echo 9374 ;;
        ping_exporter) echo 9427 ;;
        cloudprober) echo 9313 ;;
    esac
}

# Why a tool does not run with this many targets; nothing if it does.
refuses() { # tool targets
    case $1 in
        # It has several goroutines and a socket per target. Beyond a thousand targets it uses all
        # CPUs and measures itself.
        smokeping | cloudprober) [ "$2" -le 1000 ] || echo "not run beyond 1,000 targets" ;;
    esac
}

# Seconds from the start until every target is probed once a second.
warm_up() { # tool targets
    case $1 in
        ping_exporter) echo $((3 + $2 / 100)) ;; # starts one target per 10 ms
        *) echo 3 ;;
    esac
}

# ---- the floor ---------------------------------------------------------------------------------

command_floor() { command=("${binary[floor]}" -n "$2" -s "$3"); }
command_reference() { command=("${binary[reference]}" -n "$2" -s "$3"); }
command_floor-kernel() { command=("${binary[floor]}" -n "$2" -s "$3" -S kernel -l "$work/floor.log"); }
command_floor-single() { command=("${binary[floor]}" -n "$2" -s "$3" -S single -l "$work/floor.log"); }
command_floor-batch() { command=("${binary[floor]}" -n "$2" -s "$3" -S batch -l "$work/floor.log"); }
loss_floor() { sed -n 's/.*sent=\([0-9]*\) .*lost=\([0-9]*\) .*/\1 \2/p' "$out"; }
loss_reference() { sed -n 's/.*sent=\([0-9]*\) .*lost=\([0-9]*\) pend=\([0-9]*\) .*/\1 \2 \3/p' "$out" | awk '{ print $1, $2 + $3 }'; }
rtts_floor-kernel() { sed 's/$/ kernel/' "$work/floor.log"; }
rtts_floor-single() { sed "s/\$/ user/" "$work/floor.log"; }
rtts_floor-batch() { rtts_floor-single; }

# ---- KubeCanary --------------------------------------------------------------------------------

command_kube-canary() {
    if [ "$1" = cost ]; then
        awk '{ print "node-" NR "=" $1 "@zone-" NR % 3 }' "$work/targets" >"$work/peers"
        command=("${binary[kube-canary]}" run --discovery static --peers-file "$work/peers" --max-peers 0 --max-series 10000000 --node-name bench
            --listen 127.0.0.1:9877 --log-level warn)
    else
        mapfile -t command <"$work/targets"
        command=("${binary[kube-canary]}" ping --json --interval 1s --count "$3" "${command[@]}")
    fi
}
loss_kube-canary() {
    awk '/^kube_canary_probes_sent_total/ { sent += $2 } /^kube_canary_probes_lost_total/ { lost += $2 }
        END { printf "%d %d\n", sent, lost }' "$body"
}
rtts_kube-canary() {
    awk '
        function value(key) {
            return match($0, "\"" key "\":\"?[^\",}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : ""
        }
        /"rtt_seconds":[0-9]/ {
            target = value("target"); sub(/^"/, "", target)
            stamp = value("stamp"); sub(/^"/, "", stamp)
            printf "%s %d %.0f %s\n", target, value("sequence"), value("rtt_seconds") * 1e9, stamp
        }' "$out"
}

# ---- oping, fping: a person's tools -------------------------------------------------------------

command_oping() { command=("${binary[oping]}" -i 1 -c "$3" -f "$work/targets"); }
loss_oping() { awk '/packets transmitted/ { sent += $1; received += $4 } END { printf "%d %d\n", sent, sent - received }' "$out"; }
rtts_oping() { sed -n 's/.* from [^ ]* (\(.*\)): icmp_seq=\([0-9]*\) .* time=\([0-9.]*\) ms.*/\1 \2 \3/p' "$out" | awk '{ printf "%s %d %.0f user\n", $1, $2, $3 * 1e6 }'; }

command_fping() { # its probes spread over the second
    command=("${binary[fping]}" -c "$3" -p 1000 -i "$(awk -v n="$2" 'BEGIN { printf "%.3f", 900 / n }')" -f "$work/targets")
    [ "$1" != cost ] || command+=(-q)
}
loss_fping() { awk -F'[=/ ,%]+' '/xmt\/rcv/ { for (i = 1; i < NF; i++) if ($i == "loss") { sent += $(i + 1); received += $(i + 2) } }
    END { printf "%d %d\n", sent, sent - received }' "$err"; }
rtts_fping() { sed -n 's/^\([0-9.]*\) *: \[[0-9]*\], [0-9]* bytes, \([0-9.]*\) ms.*/\1 \2/p' "$out" | awk '{ printf "%s - %.0f user\n", $1, $2 * 1e6 }'; }

# ---- one surge-ping Pinger per target -----------------------------------------------------------

command_naive() { command=("${binary[naive]}" "$2" "$3" 10.66); }
loss_naive() { awk -F, '{ print $1, $2 }' "$out"; }
quantiles_naive() { awk -F, '{ print $1 - $2, $5, $6, "-" }' "$out"; }

# ---- the exporters ------------------------------------------------------------------------------

command_smokeping() {
    mapfile -t command <"$work/targets"
    command=("${binary[smokeping]}" --config.file= --web.listen-address=127.0.0.1:9374 --buckets="$BOUNDS" --log.level=error
        --ping.interval=1s "${command[@]}")
}
# An unanswered request counts as lost. One per target may be in flight.
loss_smokeping() {
    awk '/^smokeping_requests_total/ { sent += $2 } /^smokeping_response_duration_seconds_count/ { received += $2 }
        END { printf "%d %d\n", sent, sent - received }' "$body"
}
quantiles_smokeping() { histogram_quantiles smokeping_response_duration_seconds_bucket 1e6; }

command_ping_exporter() {
    mapfile -t command <"$work/targets"
    command=("${binary[ping_exporter]}" --web.listen-address=127.0.0.1:9427 --ping.interval=1s --ping.timeout=1s
        --log.level=error "${command[@]}")
}
# It exports a ratio over its last ten probes of each target, and no counts.
loss_ping_exporter() { awk '/^ping_loss_(ratio|percent)/ { sent += 10; lost += 10 * $2 } END { printf "%d %.0f\n", sent, lost }' "$body"; }
# It exports only the mean and the worst value.
quantiles_ping_exporter() {
    awk '/^ping_rtt_mean_seconds/ { mean += $2; n++ } /^ping_rtt_worst_seconds/ && $2 > worst { worst = $2 }
        END { printf "%d %.1f %.1f %.1f\n", n * 10, n ? mean / n * 1e6 : 0, worst * 1e6, worst * 1e6 }' "$body"
}

command_cloudprober() {
    {
        echo 'host: "127.0.0.1" port: 9313'
        echo "probe { name: \"bench\" type: PING interval_msec: 1000 timeout_msec: 900 stats_export_interval_msec: 1000"
        echo "  latency_unit: \"us\""
        echo "  latency_distribution { explicit_buckets: \"$(tr , '\n' <<<"$BOUNDS" | awk '{ printf "%s%g", sep, $1 * 1e6; sep = "," }')\" }"
        echo "  targets { host_names: \"$(paste -sd, "$work/targets")\" } ping_probe { packets_per_probe: 1 } }"
        echo 'surfacer { type: PROMETHEUS }'
    } >"$work/cloudprober.cfg"
    command=("${binary[cloudprober]}" --config_file="$work/cloudprober.cfg")
}
loss_cloudprober() {
    awk '/^total\{/ { sent += $2 } /^success\{/ { received += $2 } END { printf "%d %d\n", sent, sent - received }' "$body"
}
quantiles_cloudprober() { histogram_quantiles latency_bucket 1; }

# "count p50 p99 max" in µs, interpolated in the buckets of all targets together; no maximum.
histogram_quantiles() { # name factor-to-µs
    sed -n "/^$1{/s/.*le=\"\([^\"]*\)\".*} \([0-9.e+]*\).*/\1 \2/p" "$body" | awk -v factor="$2" '
        { bound = $1 == "+Inf" ? 1e18 : $1 * factor; below[bound] += $2 }
        END {
            for (bound in below) { bounds[++n] = bound + 0 }
            for (i = 2; i <= n; i++) for (j = i; j > 1 && bounds[j - 1] > bounds[j]; j--) {
                swap = bounds[j]; bounds[j] = bounds[j - 1]; bounds[j - 1] = swap
            }
            for (i = 1; i <= n; i++) cumulative[i] = below[bounds[i]]
            printf "%d %.1f %.1f -\n", cumulative[n], quantile(0.5), quantile(0.99)
        }
        function quantile(q,    i, low, under) {
            for (i = 1; i <= n; i++) {
                if (cumulative[i] >= q * cumulative[n] && cumulative[n] > 0) {
                    low = i > 1 ? bounds[i - 1] : 0
                    under = i > 1 ? cumulative[i - 1] : 0
                    if (bounds[i] >= 1e18) return low
                    return low + (bounds[i] - low) * (q * cumulative[n] - under) / (cumulative[i] - under)
                }
            }
            return 0
        }'
}
