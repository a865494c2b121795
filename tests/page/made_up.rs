//! Made-up meshes: all reports of any number of nodes, and what judges say of them.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The figures of one direction of a link.
#[derive(Clone, Copy)]
pub struct Link {
    pub lost: u32,
    pub received: u32,
    pub rtt_seconds: f64,
    pub state: &'static str,
}

/// A mesh, and the reports of its nodes about each other.
pub struct Mesh {
    /// Name and zone of each node.
    pub nodes: Vec<(String, String)>,
    /// Network and protocol of each layer.
    pub layers: Vec<(&'static str, &'static str)>,
    /// Returns `None` if the link is not probed. The arguments are source, peer and layer.
    pub link: fn(usize, usize, usize) -> Option<Link>,
    /// Nodes without a report, and the reason.
    pub missing: Vec<(usize, &'static str)>,
    pub not_gathered: usize,
    /// Nodes that the end of the answer lists.
    pub starved: Vec<usize>,
    pub leaving: Vec<usize>,
    /// State and headline if there is no verdict.
    pub says: [&'static str; 2],
    pub verdicts: Vec<Value>,
    /// Further fields of a source's report.
    pub about: fn(usize) -> Value,
    /// The checks of a source.
    pub checks: fn(usize) -> Value,
}

/// No loss, and a round-trip time that differs a little from link to link.
pub fn well(source: usize, peer: usize, zones: usize) -> Link {
    let noise = f64::from(u32::try_from((source * 31 + peer * 17) % 23).expect("small"));
    let base = if source % zones == peer % zones { 62e-6 } else { 640e-6 };
    Link { lost: 0, received: 58, rtt_seconds: base * (1.0 + noise / 60.0), state: "ready" }
}

/// The minute in which all losses began, 15 minutes ago.
fn begun() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    (now / 60 - 15) * 60
}

/// A verdict about a node that loses inbound probes.
pub fn losing(node: &str, sources: usize) -> Value {
    json!({"kind": "node", "subject": node, "direction": "in", "network": "pod", "severity": "critical", "since_unix_seconds": begun(),
        "evidence": format!("loses 10.0 % of the probes from {sources} of {sources} sources"),
        "summary": format!("{node} is losing packets from {sources} of {sources} sources")})
}

impl Mesh {
    /// Nodes `node-1` and on, in three zones in turn.
    pub fn new(count: usize, link: fn(usize, usize, usize) -> Option<Link>) -> Self {
        let digits = count.to_string().len();
        let nodes =
            (0..count).map(|i| (format!("node-{:0digits$}", i + 1), format!("zone-{}", ["a", "b", "c"][i % 3])));
        Self {
            nodes: nodes.collect(),
            layers: vec![("pod", "icmp")],
            link,
            missing: Vec::new(),
            not_gathered: 0,
            starved: Vec::new(),
            leaving: Vec::new(),
            says: ["well", "all well"],
            verdicts: Vec::new(),
            about: |_| json!({}),
            checks: |_| json!([]),
        }
    }

    /// The whole answer, all lines.
    pub fn answer(&self) -> String {
        let mut out = String::from("{\"rows\":[\n");
        let missing = |i| self.missing.iter().any(|(of, _)| *of == i);
        for (rows, source) in (0..self.nodes.len()).filter(|i| !missing(*i)).enumerate() {
            if rows > 0 {
                out.push(',');
            }
            self.row(source, &mut out);
        }
        let missing = self.missing.iter().map(|(i, error)| json!({"node": self.nodes[*i].0, "error": error}));
        let missing: Value = missing.collect();
        let verdicts: Value = self.verdicts.iter().cloned().collect();
        let names = |nodes: &[usize]| nodes.iter().map(|i| json!(self.nodes[*i].0)).collect::<Value>();
        let (starved, leaving) = (names(&self.starved), names(&self.leaving));
        let [state, headline] = self.says.map(str::to_owned);
        let [state, headline] = match &self.verdicts[..] {
            [] => [state, headline],
            [first, rest @ ..] => {
                let summary = first["summary"].as_str().expect("a text");
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
                ["cause".to_owned(), format!("{summary}{more}")]
            }
        };
        let headline = json!(headline);
        writeln!(
            out,
            "],\"missing\":{missing},\"not_gathered\":{},\"verdicts\":{verdicts},\
             \"state\":\"{state}\",\"headline\":{headline},\"starved\":{starved},\"leaving\":{leaving},\"leaving_not_listed\":0}}",
            self.not_gathered
        )
        .expect("a string takes it");
        out
    }

    fn row(&self, source: usize, out: &mut String) {
        let (node, zone) = &self.nodes[source];
        // The second source sends late. The end of the answer says whether it is starved.
        let lag = if source == 1 { 0.12 } else { 0.0001 };
        let (allocator, narenas) = if source.is_multiple_of(2) { ("musl", None) } else { ("jemalloc", Some(1)) };
        let mut about = json!({"node": node, "zone": zone, "version": "0.1.0",
            "allocator": allocator, "narenas": narenas,
            "linkage": "rust", "rss_bytes": 1_073_152 + 4_096 * (source % 40), "cpus": 8, "interval_seconds": 1.0,
            "hour_kept": true, "echo_requests_received": 9_000, "echo_replies_sent": 9_000,
            "recent": {"seconds": 58.0, "echo_requests_received": 58, "echo_replies_sent": 58,
                "send_lag_p99_seconds": lag, "read_delay_p99_seconds": 0.000_05, "probes_skipped": 0,
                "receive_queue_drops": 0, "run_delay_seconds": 0.02}});
        for (field, value) in (self.about)(source).as_object().expect("an object") {
            about[field] = value.clone();
        }
        write!(out, "{{\"source\":{about},\"peers\":[").expect("a string takes it");
        let mut first = true;
        for (number, (network, protocol)) in self.layers.iter().enumerate() {
            for (peer, (name, zone)) in self.nodes.iter().enumerate().filter(|(peer, _)| *peer != source) {
                let Some(link) = (self.link)(source, peer, number) else { continue };
                if !std::mem::take(&mut first) {
                    out.push(',');
                }
                write_peer(&link, &[name, zone, network, protocol], out);
            }
        }
        writeln!(out, "],\"checks\":{}}}", (self.checks)(source)).expect("a string takes it");
    }
}

fn write_peer(link: &Link, [name, zone, network, protocol]: &[&str; 4], out: &mut String) {
    let Link { lost, received, rtt_seconds, state } = *link;
    let (name, zone) = (json!(name), json!(zone));
    let (p50, p99) = if received > 0 {
        (format!("{rtt_seconds:e}"), format!("{:e}", rtt_seconds * 2.5))
    } else {
        ("null".into(), "null".into())
    };
    let since = if lost > 3 { begun().to_string() } else { "null".into() };
    // The text is written directly: 90,000 of these as trees of values would take longer than
    // everything else.
    write!(
        out,
        "{{\"node\":{name},\"zone\":{zone},\"network\":\"{network}\",\"protocol\":\"{protocol}\",\"state\":\"{state}\",\
             \"address\":\"198.18.0.7\",\"sent\":5001,\"received\":{},\"lost\":{lost},\"late\":0,\
             \"rtt_p50_seconds\":{p50},\"rtt_p99_seconds\":{p99},\"since_unix_seconds\":{since},\
             \"recent\":{{\"seconds\":58.0,\"sent\":{},\"received\":{received},\"lost\":{lost},\
             \"rtt_p50_seconds\":{p50},\"rtt_p99_seconds\":{p99}}}}}",
        5_000 - lost,
        lost + received,
    )
    .expect("a string takes it");
}

/// The answer to `/api/v1/hour/…`: five minutes before the start, forty without loss, fifteen with
/// 10 %.
pub fn hour(layers: &[(&str, &str)]) -> String {
    let end_unix_seconds = begun() + 15 * 60;
    let steps =
        |of: fn(u32) -> f64| (0..60).map(move |i| if i < 5 { Value::Null } else { json!(of(i)) }).collect::<Vec<_>>();
    let series: Vec<Value> = layers
        .iter()
        .map(|(network, protocol)| {
            json!({"network": network, "protocol": protocol, "end_unix_seconds": end_unix_seconds,
                "loss": steps(|i| if i < 45 { 0.0 } else { 0.1 + f64::from(i % 4) / 100.0 }),
                "rtt_p50_seconds": steps(|i| 62e-6 + f64::from(i % 7) * 1e-6),
                "rtt_p99_seconds": steps(|i| 150e-6 + f64::from(i % 5) * 9e-6)})
        })
        .collect();
    json!({"source": "a", "peer": "b", "step_seconds": 60, "series": series}).to_string()
}
