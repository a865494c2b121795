//! The table of flags: names, environment variables, defaults and help texts in one place. The
//! command line is looked up here, and `--help` is generated from here. A test compares the README
//! with it.

/// A command-line flag.
#[derive(Debug)]
pub struct Flag {
    /// The name without the dashes.
    pub name: &'static str,
    /// The placeholder of the value in the help. None for a switch.
    pub value: Option<&'static str>,
    /// The environment variable that is read if the flag is not given.
    pub env: Option<&'static str>,
    /// The value if neither is given.
    pub default: &'static str,
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
    Flag { name, value: Some(value), env: Some(env), default, help }
}

/// The flag is the same for `run` and `doctor`.
const DOMAINS_FILE: Flag = flag(
    "domains-file",
    "FILE",
    "KUBE_CANARY_DOMAINS_FILE",
    "",
    "Failure domains, such as racks: a file with a NODE-NAME-PATTERN DOMAIN per line, # comments; read again when it changes",
);

/// The flags of `kube-canary run`.
#[rustfmt::skip]
pub const RUN: &[Flag] = &[
    flag("node-name", "NAME", "NODE_NAME", "the hostname",
        "This node's name: source_node of every series"),
    flag("zone", "ZONE", "KUBE_CANARY_ZONE", "learned from discovery",
        "This node's zone: source_zone of every series"),
    flag("listen", "ADDR:PORT", "KUBE_CANARY_LISTEN", "[::]:9877",
        "Where HTTP is served; the default serves both families, or IPv4 where there is no IPv6"),
    flag("allow-host", "NAME", "KUBE_CANARY_ALLOW_HOST", "localhost and the Service's names",
        "A further DNS name by which the page and /api may be called; may be given again, or separated by commas"),
    flag("discovery", "SOURCE", "KUBE_CANARY_DISCOVERY", "kubernetes inside a cluster, else static",
        "Where peers come from: kubernetes, dns or static"),
    flag("namespace", "NAME", "POD_NAMESPACE", "the service account's",
        "kubernetes: the Service's namespace"),
    flag("service", "NAME", "KUBE_CANARY_SERVICE", "kube-canary",
        "kubernetes: the headless Service whose EndpointSlices are watched"),
    flag("dns", "NAME", "KUBE_CANARY_DNS", "",
        "dns: the headless Service whose A and AAAA records are the peers"),
    flag("peer", "NAME=ADDR[@ZONE]", "KUBE_CANARY_PEER", "",
        "static: a peer; may be given again (in the environment: separated by commas)"),
    flag("peers-file", "FILE", "KUBE_CANARY_PEERS_FILE", "",
        "static: a file with one NAME=ADDR[@ZONE] per line, # comments; read again when it changes"),
    DOMAINS_FILE,
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s",
        "One probe per peer and interval, 10ms to 300s; the sends are spread over it"),
    flag("timeout", "DURATION", "KUBE_CANARY_TIMEOUT", "1s",
        "A probe unanswered for longer is lost; up to 63 intervals"),
    flag("payload-bytes", "N", "KUBE_CANARY_PAYLOAD_BYTES", "56",
        "Bytes behind the ICMP header, 24 to 8952"),
    flag("rtt-buckets", "LIST", "KUBE_CANARY_RTT_BUCKETS", "25us to 1s, 12 bounds",
        "The classic RTT histogram's bounds: at most 16 ascending durations, separated by commas"),
    flag("max-peers", "N", "KUBE_CANARY_MAX_PEERS", "24",
        "Probe at most N other nodes, up to 256, chosen so that N/2 or more watch each; 0 is all; the same on every node"),
    flag("network", "LIST", "KUBE_CANARY_NETWORK", "pod",
        "pod, or pod,node: peers are probed at their nodes' own addresses, too, which they tell"),
    flag("link-series", "WHAT", "KUBE_CANARY_LINK_SERIES", "full",
        "What is exported of each link: full (counters and a histogram), counters, or none"),
    flag("max-series", "N", "KUBE_CANARY_MAX_SERIES", "10000",
        "Export at most N series, 200 to 10000000: links for which there is no room are left out"),
    flag("forget-after", "DURATION", "KUBE_CANARY_FORGET_AFTER", "5m",
        "How long a peer that left the list keeps its slot and counters"),
    flag("http-workers", "N", "KUBE_CANARY_HTTP_WORKERS", "4",
        "HTTP threads, 1 to 64, whatever the number of processors"),
    flag("node-addresses", "LIST", "KUBE_CANARY_NODE_ADDRESSES", "",
        "The node's own addresses, separated by commas: told to the peers"),
    flag("pod-addresses", "LIST", "KUBE_CANARY_POD_ADDRESSES", "the interfaces' addresses",
        "This agent's own addresses, separated by commas: never probed"),
    flag("heap-profile", "FILE", "KUBE_CANARY_HEAP_PROFILE", "",
        "Builds with jemalloc-profiling: heap profiles to FILE at the end, and to FILE.1, FILE.2, ... at SIGUSR2"),
    flag("log-level", "LEVEL", "KUBE_CANARY_LOG_LEVEL", "info",
        "error, warn, info, debug or off"),
];

/// The flags of `kube-canary demo`.
#[rustfmt::skip]
pub const DEMO: &[Flag] = &[
    flag("nodes", "N", "KUBE_CANARY_DEMO_NODES", "3", "Agents to start, 2 to 50, on 127.0.0.2 and up"),
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s", "One probe per peer and interval"),
    flag("port", "PORT", "KUBE_CANARY_DEMO_PORT", "9877", "The HTTP port of every agent"),
    flag("seconds", "N", "KUBE_CANARY_DEMO_SECONDS", "until Ctrl-C", "Stop after so many seconds"),
];

/// The flags of `kube-canary ping`.
#[rustfmt::skip]
pub const PING: &[Flag] = &[
    flag("count", "N", "KUBE_CANARY_PING_COUNT", "until Ctrl-C",
        "End after N probes to each target, once the last is answered or lost"),
    flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s",
        "One probe per target and interval, 10ms to 300s; the sends are spread over it"),
    flag("timeout", "DURATION", "KUBE_CANARY_TIMEOUT", "1s",
        "A probe unanswered for longer is lost; up to 63 intervals"),
    flag("payload-bytes", "N", "KUBE_CANARY_PAYLOAD_BYTES", "56",
        "Bytes behind the ICMP header, 24 to 8952"),
    Flag { name: "json", value: None, env: None, default: "", help: "One JSON object a line" },
];

/// The flags of `kube-canary footprint`.
#[rustfmt::skip]
pub const FOOTPRINT: &[Flag] = &[
    flag("pid", "PID", "KUBE_CANARY_FOOTPRINT_PID", "",
        "The memory of one process, by category"),
    flag("filter", "NAME", "KUBE_CANARY_FOOTPRINT_FILTER", "",
        "A row for each program with NAME in its name, and a total; '' is every program"),
    Flag { name: "json", value: None, env: None, default: "", help: "As one JSON object on one line" },
];

/// Which agents are asked. The flags are the same for `fleet` and `doctor`.
const URL: Flag = flag(
    "url",
    "URL",
    "KUBE_CANARY_URL",
    "",
    "An agent's HTTP server, http://HOST:PORT; may be given again (in the environment: separated by commas)",
);
const SERVICE: Flag = flag(
    "service",
    "NAME",
    "KUBE_CANARY_SERVICE",
    "kube-canary",
    "Without --url: every address of this headless Service",
);
const NAMESPACE: Flag =
    flag("namespace", "NAME", "POD_NAMESPACE", "the one that resolv.conf searches first", "The Service's namespace");
// Not KUBE_CANARY_PORT: Kubernetes sets that to a URL if a Service of that name has an address.
const PORT: Flag =
    flag("port", "PORT", "KUBE_CANARY_HTTP_PORT", "9877", "The agents' HTTP port at the Service's addresses");

/// The flags of `kube-canary fleet`.
#[rustfmt::skip]
pub const FLEET: &[Flag] = &[
    URL, SERVICE, NAMESPACE, PORT,
    Flag { name: "sort", value: Some("COLUMN"), env: None, default: "rss",
        help: "node, rss, dirty, cores, threads, allocator, version, cpu, loss, worst or lag; numbers largest first" },
    Flag { name: "group-by", value: Some("allocator"), env: None, default: "",
        help: "A row per allocator and number of cores: medians, ranges, and which is smallest" },
    Flag { name: "watch", value: None, env: None, default: "", help: "Again and again, until Ctrl-C" },
    Flag { name: "interval", value: Some("DURATION"), env: None, default: "5s", help: "With --watch: how often, 1s to 300s" },
    Flag { name: "json", value: None, env: None, default: "", help: "As one JSON array on one line" },
];

/// The flags of `kube-canary doctor`.
#[rustfmt::skip]
pub const DOCTOR: &[Flag] = &[
    URL, SERVICE, NAMESPACE, PORT,
    Flag { name: "rows", value: Some("FILE"), env: None, default: "",
        help: "Judge these reports instead, off line: what /api/v1/mesh answers, or a report of /api/v1/peers per line; -: standard input" },
    DOMAINS_FILE,
    Flag { name: "watch", value: None, env: None, default: "",
        help: "Again and again, until Ctrl-C; prints what has changed, with the time" },
    Flag { name: "interval", value: Some("DURATION"), env: None, default: "10s", help: "With --watch: how often, 1s to 300s" },
    Flag { name: "json", value: None, env: None, default: "", help: "As one JSON object on one line" },
];

/// The flags of `kube-canary version`.
pub const VERSION: &[Flag] =
    &[Flag { name: "json", value: None, env: None, default: "", help: "As one JSON object on one line" }];

/// Returns the help text of a command.
pub fn help(usage: &str, about: &str, flags: &[Flag], after: &str) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{about}\n\nUsage: kube-canary {usage}\n");
    if !flags.is_empty() {
        text.push_str("\nFlags:\n");
    }
    for flag in flags {
        let value = flag.value.map(|value| format!(" {value}")).unwrap_or_default();
        let mut notes = Vec::new();
        if !flag.default.is_empty() {
            notes.push(format!("default: {}", flag.default));
        }
        notes.extend(flag.env.map(|env| format!("env: {env}")));
        let notes = if notes.is_empty() { String::new() } else { format!("\n        [{}]", notes.join("; ")) };
        let _ = writeln!(text, "  --{}{value}\n        {}{notes}", flag.name, flag.help);
    }
    text.push_str(after);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the README's section about a command, from its own heading to the next.
    fn section(of: &str) -> String {
        let readme = include_str!("../../README.md");
        let (_, from) = readme.split_once(&format!("\n## {of}\n")).unwrap_or_else(|| panic!("## {of} in the README"));
        from.split_once("\n## ").map_or(from, |(section, _)| section).to_owned()
    }

    #[test]
    fn the_readme_has_every_flag_of_the_commands_that_have_a_section() {
        for (head, flags) in [("Ping", PING), ("Footprint", FOOTPRINT), ("Fleet", FLEET), ("Doctor", DOCTOR)] {
            let section = section(head);
            for flag in flags {
                assert!(section.contains(&format!("--{}", flag.name)), "--{} in the README's {head}", flag.name);
            }
        }
    }
}
