//! The table of flags: names, environment variables, defaults and help texts in one place. Of these
//! `clap` makes the parser, `--help`, the completions and the man pages. A test compares
//! docs/reference/commands.md with it.
//!
//! The table is made by functions. A constant would consist of pointers, which the loader relocates
//! in every agent, so their pages would be dirty for as long as it runs.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ValueHint};

use super::COMMANDS;
use super::completion::SHELLS;
use super::fleet::Column;
use super::run::SOURCES;
use crate::exposition::LinkSeries;

/// A flag without a value.
fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
}

/// A flag that no environment variable stands for. The default is a text for the help alone.
fn typed_only(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Arg {
    let hint = if value == "FILE" { ValueHint::FilePath } else { ValueHint::Other };
    // What follows a flag is its value, even if it begins with a dash. The help text names the
    // possible values.
    let flag = switch(name, help).value_name(value).value_hint(hint).allow_hyphen_values(true);
    let flag = flag.action(ArgAction::Set).hide_possible_values(true).hide_env_values(true);
    if default.is_empty() { flag } else { flag.long_help(format!("{help}\n[default: {default}]")) }
}

fn flag(name: &'static str, value: &'static str, env: &'static str, default: &'static str, help: &'static str) -> Arg {
    typed_only(name, value, default, help).env(env)
}

/// Returns the names of choices. They are listed where they are resolved.
fn names<T, const N: usize>(choices: [(&'static str, T); N]) -> [&'static str; N] {
    choices.map(|(name, _)| name)
}

/// Returns the flag without a hint if its possible values are known. A shell then adds a space
/// behind the value.
pub fn complete_with_space(flag: Arg) -> Arg {
    if flag.get_possible_values().is_empty() { flag } else { flag.value_hint(ValueHint::Unknown) }
}

/// Returns the flags that every command accepts.
#[rustfmt::skip]
pub fn common() -> Vec<Arg> {
    vec![
        switch("help", "Print this text").short('h').action(ArgAction::HelpLong),
        switch("version", "Print the version in one short line").short('V'),
    ]
}

/// The flag is the same for `run` and `doctor`.
fn domains_file() -> Arg {
    flag(
        "domains-file",
        "FILE",
        "KUBE_CANARY_DOMAINS_FILE",
        "",
        "File with the failure domains, such as racks: NODE-NAME-PATTERN DOMAIN per line, # comments; read again when it changes",
    )
}

/// The flag is the same for `run` and `ping`.
fn check_ca() -> Arg {
    flag(
        "check-ca",
        "FILE",
        "KUBE_CANARY_CHECK_CA",
        "not verified",
        "File with the authorities, in PEM, that may sign the certificates of tls: and https: targets",
    )
}

/// Returns the levels of the log. The last one is accepted and not listed: nothing is logged at it.
fn log_levels() -> [PossibleValue; 6] {
    let listed = PossibleValue::new;
    [listed("error"), listed("warn"), listed("info"), listed("debug"), listed("off"), listed("trace").hide(true)]
}

/// The flags are the same for `run` and `act`.
fn log_level() -> Arg {
    let help = "Most detailed level that is logged: error, warn, info, debug or off";
    flag("log-level", "LEVEL", "KUBE_CANARY_LOG_LEVEL", "info", help).value_parser(log_levels()).ignore_case(true)
}
fn log_format() -> Arg {
    let help = "Form of the log: text, or json with one object per line";
    flag("log-format", "FORMAT", "KUBE_CANARY_LOG_FORMAT", "text", help).value_parser(["text", "json"])
}

/// Returns the flags that `kube-canary run` accepts.
#[rustfmt::skip]
pub fn run() -> Vec<Arg> {
    vec![
        flag("node-name", "NAME", "NODE_NAME", "the hostname",
            "Name of this node, source_node of every series"),
        flag("zone", "ZONE", "KUBE_CANARY_ZONE", "learned from discovery",
            "Zone of this node, source_zone of every series"),
        flag("listen", "ADDR:PORT", "KUBE_CANARY_LISTEN", "[::]:9877",
            "Address and port of the HTTP server; the default serves both families, or IPv4 if there is no IPv6"),
        flag("allow-host", "NAME", "KUBE_CANARY_ALLOW_HOST", "localhost and the Service's names",
            "Further DNS name under which the page and /api may be requested; may be given again, or separated by commas")
            .action(ArgAction::Append),
        flag("discovery", "SOURCE", "KUBE_CANARY_DISCOVERY", "kubernetes inside a cluster, else static",
            "Source of the peers: kubernetes, dns or static").value_parser(names(SOURCES)),
        flag("namespace", "NAME", "POD_NAMESPACE", "the service account's",
            "kubernetes: namespace of the Service").short('n'),
        flag("service", "NAME", "KUBE_CANARY_SERVICE", "kube-canary",
            "kubernetes: headless Service whose EndpointSlices are watched"),
        flag("dns", "NAME", "KUBE_CANARY_DNS", "",
            "dns: headless Service whose A and AAAA records are the peers"),
        flag("peer", "NAME=ADDR[@ZONE]", "KUBE_CANARY_PEER", "",
            "static: peer; may be given again (in the environment: separated by commas)").action(ArgAction::Append),
        flag("peers-file", "FILE", "KUBE_CANARY_PEERS_FILE", "",
            "static: file with one NAME=ADDR[@ZONE] per line, # comments; read again when it changes"),
        domains_file(),
        flag("check", "[NAME=]KIND:TARGET", "KUBE_CANARY_CHECK", "the DNS, the API server and a Service, in a cluster",
            "Check beside the default ones: dns:NAME[@SERVER], tcp:HOST:PORT, tls:HOST:PORT, http(s)://HOST/PATH, icmp:HOST or udp:HOST:PORT; none turns the default ones off; may be given again, or separated by spaces")
            .action(ArgAction::Append),
        flag("checks-file", "FILE", "KUBE_CANARY_CHECKS_FILE", "",
            "File with one [NAME=]KIND:TARGET per line, # comments; read again when it changes; at most 32 checks in all"),
        check_ca(),
        flag("check-rate", "N", "KUBE_CANARY_CHECK_RATE", "50",
            "Largest number of attempts per second of all agents together at one target outside of the mesh, 1 to 1000"),
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
            "pod, or pod,node: peers are also probed at their nodes' own addresses, which they report").value_parser(["pod", "pod,node"]),
        flag("link-series", "WHAT", "KUBE_CANARY_LINK_SERIES", "one",
            "Series of each link: one (three counters, and one histogram), full (all), counters, or none").value_parser(names(LinkSeries::ALL)),
        flag("max-series", "N", "KUBE_CANARY_MAX_SERIES", "10000",
            "Largest number of exported series, 200 to 10000000; links beyond it are left out"),
        flag("forget-after", "DURATION", "KUBE_CANARY_FORGET_AFTER", "5m",
            "Time for which a peer that left the list keeps its slot and counters"),
        flag("http-workers", "N", "KUBE_CANARY_HTTP_WORKERS", "4",
            "HTTP threads, 1 to 64, independent of the number of CPUs"),
        flag("judge", "WHEN", "KUBE_CANARY_JUDGE", "auto",
            "auto: the agent judges the mesh if it is one of the three that must; or never").value_parser(["auto", "never"]),
        flag("membership", "WHAT", "KUBE_CANARY_MEMBERSHIP", "member",
            "member of the mesh; or outside: the agent probes the peers of its list and makes checks, and never judges").value_parser(["member", "outside"]),
        flag("outside", "ADDR", "KUBE_CANARY_OUTSIDE", "",
            "Address of an agent with --membership outside, whose UDP and TCP probes are answered as those of members are; may be given again, or separated by commas")
            .action(ArgAction::Append),
        flag("node-addresses", "LIST", "KUBE_CANARY_NODE_ADDRESSES", "",
            "The node's own addresses, separated by commas; reported to the peers"),
        flag("pod-addresses", "LIST", "KUBE_CANARY_POD_ADDRESSES", "the interfaces' addresses",
            "This agent's own addresses, separated by commas; never probed"),
        flag("heap-profile", "FILE", "KUBE_CANARY_HEAP_PROFILE", "",
            "Only in builds with jemalloc-profiling: heap profiles go to FILE at the end, and to FILE.1, FILE.2, ... at SIGUSR2"),
        log_level(),
        log_format(),
    ]
}

/// Returns the flags that `kube-canary demo` accepts.
#[rustfmt::skip]
pub fn demo() -> Vec<Arg> {
    vec![
        flag("nodes", "N", "KUBE_CANARY_DEMO_NODES", "3", "Number of agents to start, 2 to 50, on 127.0.0.2 and up"),
        flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s; 200ms with --fault", "Time between two probes of a peer"),
        flag("port", "PORT", "KUBE_CANARY_DEMO_PORT", "9877", "HTTP port of every agent"),
        flag("seconds", "N", "KUBE_CANARY_DEMO_SECONDS", "until Ctrl-C", "Stop after this many seconds"),
        flag("fault", "FAULT", "KUBE_CANARY_DEMO_FAULT", "",
            "Fault between the agents: node3:in:10% drops a tenth of what is sent to node3; also :out: and :both:, node1-node2:10%, and a delay such as 20ms instead; may be given again, or separated by commas")
            .action(ArgAction::Append),
    ]
}

/// Returns the flags that `kube-canary ping` accepts.
#[rustfmt::skip]
pub fn ping() -> Vec<Arg> {
    vec![
        argument("TARGET", "Address or name of a host, or a check").value_hint(ValueHint::Hostname),
        flag("count", "N", "KUBE_CANARY_PING_COUNT", "until Ctrl-C",
            "Number of probes to each target, or of attempts; ping ends once the last is answered or lost").short('c'),
        flag("interval", "DURATION", "KUBE_CANARY_INTERVAL", "1s",
            "Time between two probes of a target, or attempts, 10ms to 300s; those of all targets are spread over it").short('i'),
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
        flag("tcp", "PORT", "KUBE_CANARY_PING_TCP", "", "Open a connection with this port of each host, as the check tcp:HOST:PORT does"),
        check_ca(),
        switch("quiet", "Print the summary only").short('q'),
        color(),
        until_eof(),
        switch("json", "Print one JSON object per line"),
    ]
}

/// Returns the flags that `kube-canary footprint` accepts.
#[rustfmt::skip]
pub fn footprint() -> Vec<Arg> {
    vec![
        flag("pid", "PID", "KUBE_CANARY_FOOTPRINT_PID", "",
            "Show the memory of one process, by category").short('p'),
        flag("filter", "NAME", "KUBE_CANARY_FOOTPRINT_FILTER", "",
            "Show a row for each program with NAME in its name, and a total; '' means every program"),
        switch("json", "Print one JSON object on one line"),
    ]
}

/// Which agents are asked. The flags are the same for `fleet` and `doctor`.
fn url() -> Arg {
    flag(
        "url",
        "URL",
        "KUBE_CANARY_URL",
        "",
        "HTTP server of an agent, HOST:PORT or http://HOST:PORT; may be given again (in the environment: separated by commas)",
    )
    .action(ArgAction::Append)
}
fn service() -> Arg {
    flag(
        "service",
        "NAME",
        "KUBE_CANARY_SERVICE",
        "kube-canary",
        "Headless Service whose addresses are asked if there is no --url",
    )
}
fn namespace() -> Arg {
    flag("namespace", "NAME", "POD_NAMESPACE", "the one that resolv.conf searches first", "Namespace of the Service")
        .short('n')
}
// Not KUBE_CANARY_PORT: Kubernetes sets that to a URL if a Service of that name has an address.
fn port() -> Arg {
    flag("port", "PORT", "KUBE_CANARY_HTTP_PORT", "9877", "HTTP port of the agents at the Service's addresses")
}

/// The flags are the same for `ping`, `fleet` and `doctor`.
fn color() -> Arg {
    typed_only(
        "color",
        "WHEN",
        "auto",
        "When colours are used: always, never, or auto, which is on a terminal unless NO_COLOR is set or TERM is dumb",
    )
    .value_parser(["auto", "always", "never"])
}
fn until_eof() -> Arg {
    switch("until-eof", "End also when standard input ends, as it does in a pod when the kubectl that called is gone")
}

/// Returns the flags that `kube-canary fleet` accepts.
#[rustfmt::skip]
pub fn fleet() -> Vec<Arg> {
    vec![
        url(), service(), namespace(), port(),
        typed_only("sort", "COLUMN", "rss",
            "Sort by node, rss, dirty, cores, threads, allocator, version, cpu, loss, worst or lag; numbers largest first")
            .value_parser(names(Column::ALL)),
        typed_only("group-by", "allocator", "",
            "Show a row per allocator and number of CPUs: medians, ranges, and which is smallest").value_parser(["allocator"]),
        typed_only("output", "FORMAT", "a table within 100 columns",
            "wide: a table with all columns and whole names; json: the same as --json").short('o').value_parser(["wide", "json"]),
        switch("watch", "Repeat until Ctrl-C").short('w'),
        typed_only("interval", "DURATION", "5s", "Time between two updates with --watch, 1s to 300s"),
        until_eof(),
        color(),
        switch("json", "Print one JSON array on one line"),
    ]
}

/// Returns the flags that `kube-canary doctor` accepts.
#[rustfmt::skip]
pub fn doctor() -> Vec<Arg> {
    vec![
        url(), service(), namespace(), port(),
        typed_only("rows", "FILE", "",
            "Judge the reports in this file instead: answers of /api/v1/mesh/NODES, or one report of /api/v1/peers per line; - is standard input")
            .action(ArgAction::Append),
        switch("collect", "Collect the reports and judge them here, instead of asking what the judges of the mesh agree on"),
        domains_file(),
        switch("history", "Print the verdicts of the last 24 hours with their times instead, as the judges of the mesh agree on them"),
        switch("watch",
            "Repeat until Ctrl-C, and print what has changed, with the time").short('w'),
        typed_only("interval", "DURATION", "10s", "Time between two updates with --watch, 1s to 300s"),
        until_eof(),
        color(),
        switch("json", "Print one JSON object on one line"),
    ]
}

/// Returns the flags that `kube-canary act` accepts.
#[rustfmt::skip]
pub fn act() -> Vec<Arg> {
    vec![
        url(), service(), namespace(), port(),
        flag("pod-name", "NAME", "POD_NAME", "the hostname", "Name by which this process holds the Lease"),
        flag("listen", "ADDR:PORT", "KUBE_CANARY_LISTEN", "[::]:9877", "Address and port at which /metrics and /healthz are served"),
        switch("conditions", "Set the condition KubeCanaryNetworkProblem of nodes"),
        switch("dry-run", "Log and count the conditions that would be set, and set none"),
        flag("hold", "DURATION", "KUBE_CANARY_HOLD", "60s", "Time for which a verdict must hold before its node gets the condition"),
        flag("clear", "DURATION", "KUBE_CANARY_CLEAR", "120s", "Time without a verdict after which a node's condition is taken back"),
        flag("max-nodes", "N", "KUBE_CANARY_MAX_NODES", "10%", "Largest number of nodes whose condition is not False at once, or a share of all; at least 1"),
        flag("unknown-after", "DURATION", "KUBE_CANARY_UNKNOWN_AFTER", "conditions stay as they are", "Time for which judges must be silent before conditions that are True become Unknown"),
        switch("remove", "Take back the conditions of all nodes, and end"),
        flag("webhook-url-file", "FILE", "KUBE_CANARY_WEBHOOK_URL_FILE", "", "File with the URL to which messages go as JSON"),
        flag("webhook-key-file", "FILE", "KUBE_CANARY_WEBHOOK_KEY_FILE", "", "File with the key by which these messages are signed (HMAC-SHA256)"),
        flag("slack-url-file", "FILE", "KUBE_CANARY_SLACK_URL_FILE", "", "File with the URL of an incoming webhook of Slack, or of a server like it"),
        flag("pagerduty-key-file", "FILE", "KUBE_CANARY_PAGERDUTY_KEY_FILE", "", "File with the routing key of PagerDuty's Events API v2"),
        flag("pagerduty-url", "URL", "KUBE_CANARY_PAGERDUTY_URL", "https://events.pagerduty.com/v2/enqueue", "Where PagerDuty takes events"),
        flag("alertmanager-url", "URL", "KUBE_CANARY_ALERTMANAGER_URL", "", "Alertmanager to which alerts are posted, such as http://alertmanager:9093"),
        flag("alert-label", "NAME=VALUE", "KUBE_CANARY_ALERT_LABEL", "",
            "Label that Prometheus adds to the same alerts, such as job, namespace or cluster; may be given again, or separated by commas")
            .action(ArgAction::Append),
        flag("ca-file", "FILE", "KUBE_CANARY_CA_FILE", "/etc/ssl/certs/ca-certificates.crt", "File with the authorities, in PEM, that may sign the certificates of receivers"),
        log_level(),
        log_format(),
    ]
}

/// Returns the flags that `kube-canary version` accepts.
pub fn version() -> Vec<Arg> {
    vec![switch("json", "Print one JSON object on one line")]
}

/// An argument without a flag.
fn argument(name: &'static str, help: impl Into<clap::builder::StyledStr>) -> Arg {
    Arg::new(name).num_args(1..).action(ArgAction::Append).hide_possible_values(true).help(help)
}

/// Returns the arguments of `kube-canary completion`.
pub fn completion() -> Vec<Arg> {
    vec![argument("SHELL", SHELLS.join(", ")).value_parser(SHELLS)]
}

/// Returns the arguments of `kube-canary help`.
pub fn help() -> Vec<Arg> {
    vec![argument("COMMAND", COMMANDS.join(", ")).value_parser(COMMANDS)]
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
            ("Run", run()),
            ("Demo", demo()),
            ("Ping", ping()),
            ("Fleet", fleet()),
            ("Doctor", doctor()),
            ("Act", act()),
            ("Footprint", footprint()),
            ("Version", version()),
        ] {
            for flag in flags.iter().filter(|flag| !flag.is_positional()) {
                let name = format!("--{}", flag.get_id());
                let shown = flag.get_short().map_or_else(|| name.clone(), |letter| format!("-{letter}`, `{name}"));
                let plain = shown.replace('`', "");
                let of_command = section(head);
                assert!(of_command.contains(&shown) || of_command.contains(&plain), "{plain} in the section {head}");
            }
        }
    }
}
