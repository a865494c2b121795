//! The table of flags: names, environment variables, defaults and help texts in one place. The
//! command line is looked up here, and `--help` is generated from here. A test compares
//! docs/reference/commands.md with it.

/// A flag that a command accepts.
#[derive(Debug)]
pub struct Flag {
    /// The name without the dashes.
    pub name: &'static str,
    /// The letter that may be typed instead, behind one dash.
    pub short: Option<char>,
    /// The placeholder of the value in the help. A switch has none.
    pub value: Option<&'static str>,
    /// The environment variable that is read if the flag is not given.
    pub env: Option<&'static str>,
    /// The value if neither is given.
    pub default: &'static str,
    /// All values that it accepts. Empty if there are too many to list.
    pub choices: &'static [&'static str],
    /// The help text, in one sentence.
    pub help: &'static str,
}

const fn flag(
    name: &'static str,
    value: &'static str,
    env: &'static str,
    default: &'static str,
    help: &'static str,
) -> Flag {
    Flag { name, short: None, value: Some(value), env: Some(env), default, choices: &[], help }
}

/// A flag that no environment variable stands for.
const fn typed_only(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, value: Some(value), env: None, default, choices: &[], help }
}

/// A flag without a value.
const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, value: None, env: None, default: "", choices: &[], help }
}

impl Flag {
    /// Returns the same flag with a letter.
    const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    /// Returns the same flag with all values that it accepts.
    const fn one_of(mut self, choices: &'static [&'static str]) -> Self {
        self.choices = choices;
        self
    }
}

/// The flags that every command accepts.
pub const COMMON: &[Flag] = &[
    switch("help", "Print this text").short('h'),
    switch("version", "Print the version in one short line").short('V'),
];

/// The flag is the same for `run` and `doctor`.
const DOMAINS_FILE: Flag = flag(
    "domains-file",
    "FILE",
    "KUBE_CANARY_DOMAINS_FILE",
    "",
    "File with the failure domains, such as racks: NODE-NAME-PATTERN DOMAIN per line, # comments; read again when it changes",
);

/// The flags that `kube-canary run` accepts.
#[rustfmt::skip]
pub const RUN: &[Flag] = &[
    flag("node-name", "NAME", "NODE_NAME", "the hostname",
        "Name of this node, source_node of every series"),
    flag("zone", "ZONE", "KUBE_CANARY_ZONE", "learned from discovery",
        "Zone of this node, source_zone of every series"),
    flag("listen", "ADDR:PORT", "KUBE_CANARY_LISTEN", "[::]:9877",
        "Address and port of the HTTP server; the default serves both families, or IPv4 if there is no IPv6"),
    flag("allow-host", "NAME", "KUBE_CANARY_ALLOW_HOST", "localhost and the Service's names",
        "Further DNS name under which the page and /api may be requested; may be given again, or separated by commas"),
    flag("discovery", "SOURCE", "KUBE_CANARY_DISCOVERY", "kubernetes inside a cluster, else static",
        "Source of the peers: kubernetes, dns or static").one_of(&["kubernetes", "dns", "static"]),
    flag("namespace", "NAME", "POD_NAMESPACE", "the service account's",
        "kubernetes: namespace of the Service").short('n'),
    flag("service", "NAME", "KUBE_CANARY_SERVICE", "kube-canary",
        "kubernetes: headless Service whose EndpointSlices are watched"),
    flag("dns", "NAME", "KUBE_CANARY_DNS", "",
        "dns: headless Service whose A and AAAA records are the peers"),
    flag("peer", "NAME=ADDR[@ZONE]", "KUBE_CANARY_PEER", "",
        "static: peer; may be given again (in the environment: separated by commas)"),
    flag("peers-file", "FILE", "KUBE_CANARY_PEERS_FILE", "",
        "static: file with one NAME=ADDR[@ZONE] per line, # comments; read again when it changes"),
    DOMAINS_FILE,
    flag("probes", "LIST", "KUBE_CANARY_PROBES", "icmp,udp,tcp",
        "How peers are probed: any of icmp, udp and tcp, separated by commas; the same on every node"),
    flag("flows", "N", "KUBE_CANARY_FLOWS", "16",
        "udp: number of source ports, 1 to 16, from which the probes of each pair are sent in turn"),
    flag("udp-port", "PORT", "KUBE_CANARY_UDP_PORT", "the port of --listen",
        "udp: port at which every agent answers probes; the same on every node"),
    flag("tcp-port", "PORT", "KUBE_CANARY_TCP_PORT", "the port of --listen plus 1",
        "tcp: port at which every agent accepts handshakes; the same on every node"),
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s",
        "Time between two probes of a peer, 10ms to 300s; the probes of all peers are spread over it"),
    flag("timeout", "DURATION", "KUBE_CANARY_TIMEOUT", "1s",
        "Time after which a probe without an answer is lost; up to 63 intervals"),
    flag("payload-bytes", "N", "KUBE_CANARY_PAYLOAD_BYTES", "56",
        "Bytes after the ICMP header, 24 to 8952"),
    flag("rtt-buckets", "LIST", "KUBE_CANARY_RTT_BUCKETS", "25us to 1s, 12 bounds",
        "Bounds of the classic RTT histogram: at most 16 ascending durations, separated by commas"),
    flag("max-peers", "N", "KUBE_CANARY_MAX_PEERS", "24",
        "Largest number of other nodes to probe, up to 256, selected so that at least N/2 nodes probe each; 0 means all; the same on every node"),
    flag("network", "LIST", "KUBE_CANARY_NETWORK", "pod",
        "pod, or pod,node: peers are also probed at their nodes' own addresses, which they report").one_of(&["pod", "pod,node"]),
    flag("link-series", "WHAT", "KUBE_CANARY_LINK_SERIES", "full",
        "Series of each link: full (counters and a histogram), counters, or none").one_of(&["full", "counters", "none"]),
    flag("max-series", "N", "KUBE_CANARY_MAX_SERIES", "10000",
        "Largest number of exported series, 200 to 10000000; links beyond it are left out"),
    flag("forget-after", "DURATION", "KUBE_CANARY_FORGET_AFTER", "5m",
        "Time for which a peer that left the list keeps its slot and counters"),
    flag("http-workers", "N", "KUBE_CANARY_HTTP_WORKERS", "4",
        "HTTP threads, 1 to 64, independent of the number of CPUs"),
    flag("judge", "WHEN", "KUBE_CANARY_JUDGE", "auto",
        "auto: the agent judges the mesh if it is one of the three that must; or never").one_of(&["auto", "never"]),
    flag("node-addresses", "LIST", "KUBE_CANARY_NODE_ADDRESSES", "",
        "The node's own addresses, separated by commas; reported to the peers"),
    flag("pod-addresses", "LIST", "KUBE_CANARY_POD_ADDRESSES", "the interfaces' addresses",
        "This agent's own addresses, separated by commas; never probed"),
    flag("heap-profile", "FILE", "KUBE_CANARY_HEAP_PROFILE", "",
        "Only in builds with jemalloc-profiling: heap profiles go to FILE at the end, and to FILE.1, FILE.2, ... at SIGUSR2"),
    flag("log-level", "LEVEL", "KUBE_CANARY_LOG_LEVEL", "info",
        "Most detailed level that is logged: error, warn, info, debug or off").one_of(&["error", "warn", "info", "debug", "off"]),
    flag("log-format", "FORMAT", "KUBE_CANARY_LOG_FORMAT", "text",
        "Form of the log: text, or json with one object per line").one_of(&["text", "json"]),
];

/// The flags that `kube-canary demo` accepts.
#[rustfmt::skip]
pub const DEMO: &[Flag] = &[
    flag("nodes", "N", "KUBE_CANARY_DEMO_NODES", "3", "Number of agents to start, 2 to 50, on 127.0.0.2 and up"),
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s; 200ms with --fault", "Time between two probes of a peer"),
    flag("port", "PORT", "KUBE_CANARY_DEMO_PORT", "9877", "HTTP port of every agent"),
    flag("seconds", "N", "KUBE_CANARY_DEMO_SECONDS", "until Ctrl-C", "Stop after this many seconds"),
    flag("fault", "FAULT", "KUBE_CANARY_DEMO_FAULT", "",
        "Fault between the agents: node3:in:10% drops a tenth of what is sent to node3; also :out: and :both:, node1-node2:10%, and a delay such as 20ms instead; may be given again, or separated by commas"),
];

/// The flags that `kube-canary ping` accepts.
#[rustfmt::skip]
pub const PING: &[Flag] = &[
    flag("count", "N", "KUBE_CANARY_PING_COUNT", "until Ctrl-C",
        "Number of probes to each target; ping ends once the last is answered or lost").short('c'),
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s",
        "Time between two probes of a target, 10ms to 300s; the probes of all targets are spread over it").short('i'),
    flag("timeout", "DURATION", "KUBE_CANARY_TIMEOUT", "1s",
        "Time after which a probe without an answer is lost; up to 63 intervals").short('W'),
    flag("payload-bytes", "N", "KUBE_CANARY_PAYLOAD_BYTES", "56",
        "Bytes after the ICMP header, 24 to 8952").short('s'),
    switch("ipv4", "Probe the IPv4 address of each name").short('4'),
    switch("ipv6", "Probe the IPv6 address of each name").short('6'),
    switch("udp", "Probe by UDP (STAMP, RFC 8762) instead of ICMP; agents answer the members of their mesh alone"),
    flag("udp-port", "PORT", "KUBE_CANARY_UDP_PORT", "9877", "With --udp: port of the targets' reflectors"),
    flag("flows", "N", "KUBE_CANARY_FLOWS", "16",
        "With --udp: number of source ports that the probes to each target use in turn, 1 to 16"),
    switch("trace", "With --udp: trace the path of the first source port of each target, and of each that loses"),
    switch("quiet", "Print the summary only").short('q'),
    COLOR,
    UNTIL_EOF,
    switch("json", "Print one JSON object per line"),
];

/// The flags that `kube-canary footprint` accepts.
#[rustfmt::skip]
pub const FOOTPRINT: &[Flag] = &[
    flag("pid", "PID", "KUBE_CANARY_FOOTPRINT_PID", "",
        "Show the memory of one process, by category").short('p'),
    flag("filter", "NAME", "KUBE_CANARY_FOOTPRINT_FILTER", "",
        "Show a row for each program with NAME in its name, and a total; '' means every program"),
    switch("json", "Print one JSON object on one line"),
];

/// Which agents are asked. The flags are the same for `fleet` and `doctor`.
const URL: Flag = flag(
    "url",
    "URL",
    "KUBE_CANARY_URL",
    "",
    "HTTP server of an agent, HOST:PORT or http://HOST:PORT; may be given again (in the environment: separated by commas)",
);
const SERVICE: Flag = flag(
    "service",
    "NAME",
    "KUBE_CANARY_SERVICE",
    "kube-canary",
    "Headless Service whose addresses are asked if there is no --url",
);
const NAMESPACE: Flag =
    flag("namespace", "NAME", "POD_NAMESPACE", "the one that resolv.conf searches first", "Namespace of the Service")
        .short('n');
// Not KUBE_CANARY_PORT: Kubernetes sets that to a URL if a Service of that name has an address.
const PORT: Flag =
    flag("port", "PORT", "KUBE_CANARY_HTTP_PORT", "9877", "HTTP port of the agents at the Service's addresses");

/// The flags are the same for `ping`, `fleet` and `doctor`.
const COLOR: Flag = typed_only(
    "color",
    "WHEN",
    "auto",
    "When colours are used: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb",
)
.one_of(&["auto", "always", "never"]);
const UNTIL_EOF: Flag =
    switch("until-eof", "End also when standard input ends, as it does in a pod when the kubectl that called is gone");

/// The flags that `kube-canary fleet` accepts.
#[rustfmt::skip]
pub const FLEET: &[Flag] = &[
    URL, SERVICE, NAMESPACE, PORT,
    typed_only("sort", "COLUMN", "rss",
        "Sort by node, rss, dirty, cores, threads, allocator, version, cpu, loss, worst or lag; numbers largest first")
        .one_of(&["node", "rss", "dirty", "cores", "threads", "allocator", "version", "cpu", "loss", "worst", "lag"]),
    typed_only("group-by", "allocator", "",
        "Show a row per allocator and number of CPUs: medians, ranges, and which is smallest").one_of(&["allocator"]),
    typed_only("output", "FORMAT", "a table within 100 columns",
        "wide: a table with all columns and whole names; json: the same as --json").short('o').one_of(&["wide", "json"]),
    switch("watch", "Repeat until Ctrl-C").short('w'),
    typed_only("interval", "DURATION", "5s", "Time between two updates with --watch, 1s to 300s"),
    UNTIL_EOF,
    COLOR,
    switch("json", "Print one JSON array on one line"),
];

/// The flags that `kube-canary doctor` accepts.
#[rustfmt::skip]
pub const DOCTOR: &[Flag] = &[
    URL, SERVICE, NAMESPACE, PORT,
    typed_only("rows", "FILE", "",
        "Judge the reports in this file instead: answers of /api/v1/mesh/NODES, or one report of /api/v1/peers per line; - is standard input"),
    switch("collect", "Collect the reports and judge them here, instead of asking what the judges of the mesh agree on"),
    DOMAINS_FILE,
    switch("history", "Print the verdicts of the last 24 hours with their times instead, as the judges of the mesh agree on them"),
    switch("watch",
        "Repeat until Ctrl-C, and print what has changed, with the time").short('w'),
    typed_only("interval", "DURATION", "10s", "Time between two updates with --watch, 1s to 300s"),
    UNTIL_EOF,
    COLOR,
    switch("json", "Print one JSON object on one line"),
];

/// The flags that `kube-canary version` accepts.
pub const VERSION: &[Flag] = &[switch("json", "Print one JSON object on one line")];

/// Returns the help text of a command.
pub fn help(usage: &str, about: &str, flags: &[Flag], after: &str) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{about}\n\nUsage: kube-canary {usage}\n");
    text.push_str("\nFlags:\n");
    for flag in flags.iter().chain(COMMON) {
        let short = flag.short.map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        let value = flag.value.map(|value| format!(" {value}")).unwrap_or_default();
        let mut notes = Vec::new();
        if !flag.default.is_empty() {
            notes.push(format!("default: {}", flag.default));
        }
        notes.extend(flag.env.map(|env| format!("env: {env}")));
        let notes = if notes.is_empty() { String::new() } else { format!("\n        [{}]", notes.join("; ")) };
        let _ = writeln!(text, "  {short}--{}{value}\n        {}{notes}", flag.name, flag.help);
    }
    text.push_str(after);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the section of the reference about a command, from its own heading to the next.
    fn section(of: &str) -> &'static str {
        let reference = include_str!("../../docs/reference/commands.md");
        let (_, from) = reference.split_once(&format!("\n## {of}\n")).unwrap_or_else(|| panic!("no section {of}"));
        from.split_once("\n## ").map_or(from, |(section, _)| section)
    }

    #[test]
    fn the_reference_has_every_flag_of_every_command() {
        for (head, flags) in [
            ("Run", RUN),
            ("Demo", DEMO),
            ("Ping", PING),
            ("Fleet", FLEET),
            ("Doctor", DOCTOR),
            ("Footprint", FOOTPRINT),
            ("Version", VERSION),
        ] {
            for flag in flags {
                let name = format!("--{}", flag.name);
                let shown = flag.short.map_or_else(|| name.clone(), |letter| format!("-{letter}`, `{name}"));
                let plain = shown.replace('`', "");
                let of_command = section(head);
                assert!(of_command.contains(&shown) || of_command.contains(&plain), "{plain} in the section {head}");
            }
        }
    }
}
