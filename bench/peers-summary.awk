# The tables of bench/peers, from its cost.csv and accuracy.csv: medians over the runs, and the
# results of the budgets. A ratio is taken within one run, between cells of the same mode and number
# of targets. The median of these ratios is shown.

BEGIN { FS = "," }
/^#/ || /^run,/ { next }
FNR == NR { # cost.csv
    cell = $2 "," $3 "," $4
    note($4, $2, $3)
    cpu[$1, cell] = $7
    add("cpu", cell, $7); add("threads", cell, $8); add("rss", cell, $9); add("pss", cell, $10)
    add("scraped", cell, $11); add("scrape_ms", cell, $12); add("scrape_bytes", cell, $13); add("load", cell, $5)
    sent[cell] += $14; lost[cell] += $15; told_sent[cell] += $16; told_lost[cell] += $17
    measured[cell] = 1
    if ($1 > runs) runs = $1
    if ($4 == "reference") reference = 1
    next
}
{ # accuracy.csv
    cell = $2 "," $3 "," $4
    if (!($4 in judged)) { judged[$4] = 1; judges[++judges_n] = $4 }
    add("p50", cell, $6); add("p99", cell, $7); add("max", cell, $8)
    add("wire50", cell, $10); add("wire99", cell, $11); add("wire_max", cell, $12)
    add("error50", cell, $14); add("error99", cell, $15); add("error_max", cell, $16)
    replies[cell] += $5; stamped[cell] += ($17 == "-" ? 0 : $17); dropped += $18
    seen[cell] = 1
}
END {
    base = reference ? "reference" : "floor"
    for (m = 1; m <= modes_n; m++) cost_table(modes[m])
    memory_table()
    scrape_table()
    loss_table()
    for (m = 1; m <= modes_n; m++) for (s = 1; s <= sizes_n; s++) accuracy_table(modes[m], sizes[s])
    if (dropped) print "The tap missed " dropped " packets: the accuracy of those runs is not to be trusted.\n"
    budgets()
}

function note(tool, mode, size) {
    if (!(tool in known)) { known[tool] = 1; tools[++tools_n] = tool }
    if (!(mode in known_mode)) { known_mode[mode] = 1; modes[++modes_n] = mode }
    if (!(size in known_size)) { known_size[size] = 1; sizes[++sizes_n] = size }
}
function add(what, cell, value) { if (value != "" && value != "-") values[what, cell] = values[what, cell] " " value }
function median(text,    n, i, j, swap, list) {
    n = split(text, list, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] + 0 > list[j] + 0; j--) {
        swap = list[j]; list[j] = list[j - 1]; list[j - 1] = swap
    }
    return n ? list[int((n + 1) / 2)] : ""
}
function get(what, mode, size, tool) { return median(values[what, mode "," size "," tool]) }
function ratio(mode, size, tool,    run, text, own, other) {
    for (run = 1; run <= runs; run++) {
        own = cpu[run, mode "," size "," tool]; other = cpu[run, mode "," size "," base]
        if (own != "" && other > 0) text = text " " own / other
    }
    return median(text)
}
function dash(value, form) { return value == "" ? "–" : sprintf(form, value) }
function head(first,    s, line, rule) {
    line = "| " first " |"; rule = "|---|"
    for (s = 1; s <= sizes_n; s++) { line = line " " sizes[s] " |"; rule = rule "---|" }
    print line; print rule
}
function cost_table(mode,    t, s, line, value, r) {
    print "## Processor time per probe, µs (ratio to the " base "), " mode "\n"
    head("targets")
    for (t = 1; t <= tools_n; t++) {
        line = "| " tools[t] " |"
        for (s = 1; s <= sizes_n; s++) {
            value = get("cpu", mode, sizes[s], tools[t]); r = ratio(mode, sizes[s], tools[t])
            line = line " " dash(value, "%.1f") (r != "" ? sprintf(" (%.2f)", r) : "") " |"
        }
        print line
    }
    line = "| *load average* |"
    for (s = 1; s <= sizes_n; s++) line = line " " dash(get("load", mode, sizes[s], base), "%s") " |"
    print line "\n"
}
function memory_table(    t, s, line, mode, tool) {
    mode = modes[1]
    print "## Memory, KB: Rss / Pss / Rss after 20 parallel scrapes; threads (" mode ")\n"
    head("targets")
    for (t = 1; t <= tools_n; t++) {
        tool = tools[t]; line = "| " tool " |"
        for (s = 1; s <= sizes_n; s++) {
            if (!measured[mode "," sizes[s] "," tool]) { line = line " – |"; continue }
            line = line " " get("rss", mode, sizes[s], tool) " / " get("pss", mode, sizes[s], tool) " / " dash(get("scraped", mode, sizes[s], tool), "%s") "; " get("threads", mode, sizes[s], tool) " |"
        }
        print line
    }
    print ""
}
function scrape_table(    t, s, m, line, any) {
    for (t = 1; t <= tools_n; t++) if (get("scrape_ms", modes[1], sizes[1], tools[t]) != "") any = 1
    if (!any) return
    print "## One scrape: ms, bytes\n"
    head("targets")
    for (t = 1; t <= tools_n; t++) {
        if (get("scrape_ms", modes[1], sizes[1], tools[t]) == "") continue
        for (m = 1; m <= modes_n; m++) {
            line = "| " tools[t] ", " modes[m] " |"
            for (s = 1; s <= sizes_n; s++) line = line " " dash(get("scrape_ms", modes[m], sizes[s], tools[t]), "%.1f") ", " dash(get("scrape_bytes", modes[m], sizes[s], tools[t]), "%s") " |"
            print line
        }
    }
    print ""
}
function loss_table(    t, s, m, cell, line) {
    print "## Loss: as reported / as the two kernels counted it, of probes sent, all runs\n"
    print "Of an exporter that counts requests and answers only, what was unanswered at its last scrape.\n"
    head("targets")
    for (t = 1; t <= tools_n; t++) for (m = 1; m <= modes_n; m++) {
        line = "| " tools[t] ", " modes[m] " |"
        for (s = 1; s <= sizes_n; s++) {
            cell = modes[m] "," sizes[s] "," tools[t]
            line = line (measured[cell] ? " " told_lost[cell] " / " lost[cell] " of " sent[cell] " |" : " – |")
        }
        print line
    }
    print ""
}
function accuracy_table(mode, size,    j, tool, cell, any) {
    for (j = 1; j <= judges_n; j++) if (seen[mode "," size "," judges[j]]) any = 1
    if (!any) return
    print "## Round-trip times, µs: " size " targets, " mode "\n"
    print "| | reported p50 | p99 | max | on the wire p50 | p99 | max | error per probe p50 | p99 | max | kernel stamps |"
    print "|---|---|---|---|---|---|---|---|---|---|---|"
    for (j = 1; j <= judges_n; j++) {
        tool = judges[j]; cell = mode "," size "," tool
        if (!seen[cell]) continue
        print "| " tool " | " dash(get("p50", mode, size, tool), "%s") " | " dash(get("p99", mode, size, tool), "%s") " | " dash(get("max", mode, size, tool), "%s") " | " dash(get("wire50", mode, size, tool), "%s") " | " dash(get("wire99", mode, size, tool), "%s") " | " dash(get("wire_max", mode, size, tool), "%s") " | " dash(get("error50", mode, size, tool), "%s") " | " dash(get("error99", mode, size, tool), "%s") " | " dash(get("error_max", mode, size, tool), "%s") " | " stamped[cell] " of " replies[cell] " |"
    }
    print ""
}
function budget(what, value, form, limit, good) {
    if (value == "") return
    print "| " what " | " sprintf(form, value) " | " limit " | " (good ? "kept" : "**missed**") " |"
}
function budgets(    s, t, size, value, mode, m, tool, own, floor99, wrong) {
    if (!("kube-canary" in known)) return
    print "## Budgets of kube-canary\n"
    print "| | measured | limit | |"
    print "|---|---|---|---|"
    for (s = 1; s <= sizes_n; s++) {
        size = sizes[s]
        own = get("cpu", "idle", size, "kube-canary")
        if (size >= 1000) {
            value = ratio("idle", size, "kube-canary")
            budget("processor time per probe to the " base ", " size " targets", value, "%.2f", "≤ 1.5", value <= 1.5)
        }
        # With fewer targets, oping sends a burst once a second, which is cheaper than the floor's
        # 100 wake-ups.
        for (t = 1; t <= tools_n && size >= 1000; t++) {
            tool = tools[t]
            if (tool ~ /^(floor|reference|kube-canary|naive)$/) continue
            value = get("cpu", "idle", size, tool)
            if (value != "" && own != "") budget("processor time per probe below " tool "'s, " size " targets", own, "%.1f µs", sprintf("< %.1f µs", value), own < value + 0)
        }
        if (size == 1000 || size == 5000) {
            value = get("scraped", "idle", size, "kube-canary")
            budget("Rss after 20 parallel scrapes, " size " targets", value, "%d KB", size == 1000 ? "≤ 1400 KB" : "≤ 2400 KB", value <= (size == 1000 ? 1400 : 2400))
        }
        value = get("error50", "idle", size, "kube-canary")
        budget("median error against the wire, idle, " size " targets", value, "%.1f µs", "≤ 3 µs", value <= 3)
        value = get("error99", "idle", size, "kube-canary")
        budget("p99 error against the wire, idle, " size " targets", value, "%.1f µs", "≤ 20 µs", value <= 20)
        value = get("p99", "busy", size, "kube-canary"); floor99 = get("p99", "busy", size, "floor-kernel")
        if (floor99 != "") budget("p99 with 4 busy loops, " size " targets", value, "%.1f µs", sprintf("≤ 1.5 × %.1f µs", floor99), value <= 1.5 * floor99)
        for (m = 1; m <= modes_n; m++) {
            mode = modes[m] "," size ",kube-canary"
            if (!measured[mode]) continue
            wrong = told_lost[mode] - lost[mode]
            budget("loss reported beside the kernels' count, " modes[m] ", " size " targets", told_lost[mode] "", "%s", lost[mode], wrong == 0)
        }
    }
    print ""
}
