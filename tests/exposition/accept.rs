//! For any `Accept` of a client, the agent answers 200. The Content-Type and Content-Encoding fit
//! the body, and the decoder finds no fault in the body.

use std::net::Ipv4Addr;

use crate::agent::{Agent, Maker, Peers};
use crate::client::Answer;
use crate::decoder::Decoder;
use crate::namespace::Namespace;
use crate::random::Random;

const REQUESTS: usize = 4_000;
/// The bytes of all headers of a request, well within the server's limit.
const HEADERS_MAX: usize = 3_000;
const SEED: u64 = 17;

const TYPES: [&str; 14] = [
    "application/vnd.google.protobuf",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    "application/openmetrics-text",
    "application/openmetrics-text;version=1.0.0",
    "text/plain",
    "text/plain;version=0.0.4",
    "*/*",
    "text/*",
    "application/*",
    "TEXT/Plain",
    "application/json",
    "*",
    "a/b/c",
    "",
];
const PARAMETERS: [&str; 18] = [
    "",
    ";proto=io.prometheus.client.MetricFamily",
    ";proto=\"io.prometheus.client.MetricFamily\"",
    ";proto=io.prometheus.client.Metric",
    ";encoding=delimited",
    ";encoding=text",
    ";Encoding=DELIMITED",
    ";version=0.0.4",
    ";version=1.0.0",
    ";version=2.0.0",
    ";charset=utf-8",
    ";escaping=allow-utf-8",
    ";",
    "; =",
    ";x=\"a,b;c\"",
    ";x=\"unclosed",
    ";x=\"\\\"\"",
    ";q",
];
const WEIGHTS: [&str; 18] = [
    "",
    ";q=1",
    ";q=0",
    ";q=0.000",
    ";q=0.5",
    ";q=0.333",
    ";q=.5",
    ";q=1.001",
    ";q=-1",
    ";q=nan",
    ";q=inf",
    ";q=",
    ";Q=0.7",
    "; q = 0.3",
    ";q=1e-1",
    ";q=99999999999999999999",
    ";q=\"0.5\"",
    ";q=0.5;q=0",
];
const CODINGS: [&str; 12] =
    ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "identity", "*", "", "gzip/2", "gzi", "gzip gzip"];
const COMMAS: [&str; 5] = [",", ", ", " , ", ",,", ",\t"];

fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[usize::try_from(random.below(of.len() as u64)).expect("few")]
}

/// A list as a client would write it, sometimes with mistakes.
fn list(random: &mut Random, items: &[&str], parameters: &[&str]) -> Vec<u8> {
    let count = if random.chance(2) { 60 } else { random.below(8) };
    let comma = one(random, &COMMAS);
    let mut item = || format!("{}{}{}", one(random, items), one(random, parameters), one(random, &WEIGHTS));
    (0..count).map(|_| item()).collect::<Vec<_>>().join(comma).into_bytes()
}

/// A byte that HTTP allows in a header's value: visible, blank, or one that
/// HTTP does not interpret.
fn byte(random: &mut Random) -> u8 {
    match u8::try_from(random.below(256)).expect("a byte") {
        0..=31 | 127 => b'\t',
        other => other,
    }
}

/// The list with some of its bytes changed, doubled or left out, or nothing but such bytes.
fn spoilt(random: &mut Random, list: Vec<u8>) -> Vec<u8> {
    if random.chance(60) {
        return list;
    }
    if random.chance(30) {
        return (0..random.below(300)).map(|_| byte(random)).collect();
    }
    let mut spoilt = Vec::new();
    for original in list {
        match random.below(40) {
            0 => {}
            1 => spoilt.push(byte(random)),
            2 => spoilt.extend([original, original]),
            _ => spoilt.push(original),
        }
    }
    spoilt
}

/// Random header lines, complete with line ends.
fn headers(random: &mut Random) -> Vec<u8> {
    let mut lines = Vec::new();
    // The items are often those of real clients, so that every format occurs.
    let kinds = [("Accept", &TYPES[..], &PARAMETERS[..], &TYPES[..6]), ("Accept-Encoding", &CODINGS, &[""], &["gzip"])];
    for (name, items, parameters, plain) in kinds {
        for _ in 0..random.below(3) {
            let value = if random.chance(40) {
                one(random, plain).as_bytes().to_vec()
            } else {
                let list = list(random, items, parameters);
                spoilt(random, list)
            };
            let line = [name.as_bytes(), b": ", &value, b"\r\n"].concat();
            if lines.len() + line.len() <= HEADERS_MAX {
                lines.extend(line);
            }
        }
    }
    lines
}

/// Whether these headers permit a compressed body.
fn may_compress(headers: &[u8]) -> bool {
    let lower = headers.to_ascii_lowercase();
    let mut codings = lower.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"accept-encoding:"));
    codings.any(|line| line.windows(4).any(|part| part == b"gzip") || line.contains(&b'*'))
}

struct Judge {
    decoder: Decoder,
}

impl Judge {
    /// Reads an answer. Returns the format, and whether the body is compressed.
    fn read(&mut self, headers: &[u8], answer: &Answer) -> (String, bool) {
        let what = || format!("{}\nto {}", answer.header("content-type").unwrap_or_default(), headers.escape_ascii());
        assert_eq!(answer.status, 200, "{}", what());
        let coding = answer.header("content-encoding");
        assert!(matches!(coding.as_deref(), None | Some("gzip")), "{coding:?}: {}", what());
        assert!(coding.is_none() || may_compress(headers), "{}", what());
        let vary = answer.header("vary").unwrap_or_default().to_ascii_lowercase();
        let named: Vec<&str> = vary.split(',').map(str::trim).collect();
        assert!(["accept", "accept-encoding"].iter().all(|name| named.contains(name)), "Vary: {vary:?}, {}", what());
        let scrape = self.decoder.read(answer, false);
        let faults = scrape.faults.unwrap_or_default();
        assert!(faults.is_empty(), "{faults:#?}\n{}", what());
        (scrape.format, coding.is_some())
    }
}

fn with_an_agent(name: &str, work: impl FnOnce(&mut Agent, &mut Judge)) {
    let namespace = Namespace::new(format!("kc{}-{name}", std::process::id()));
    namespace.ip("link set lo up\nroute add local 198.18.2.0/24 dev lo\n");
    let peers = Peers::new();
    peers.write((1..=4).map(|number| (format!("node-{number}"), Ipv4Addr::new(198, 18, 2, number), "zone".into())));
    let mut agent = Agent::start(Maker::Agent, &namespace, ("node-1", 9_877), &peers.0, &[]);
    work(&mut agent, &mut Judge { decoder: Decoder::start() });
    assert!(!agent.process.has_ended(), "{}", agent.process.log());
    assert!(!agent.process.log().contains("panicked"), "{}", agent.process.log());
}

#[test]
fn any_accept_gets_a_body_that_fits_its_headers() {
    with_an_agent("fuzz", |agent, judge| {
        let mut random = Random(SEED);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..REQUESTS {
            let headers = headers(&mut random);
            let answer = agent.scrape(&headers);
            *seen.entry(judge.read(&headers, &answer)).or_insert(0) += 1;
        }
        println!("{REQUESTS} requests: {seen:?}");
        // Without this check, it could be a test of one format.
        for format in ["protobuf", "text", "openmetrics"] {
            let of = |compressed: bool| seen.get(&(format.to_owned(), compressed)).copied().unwrap_or(0);
            assert!(of(true) > 10 && of(false) > 10, "{format}: {seen:?}");
        }
    });
}

#[test]
fn an_explicit_accept_header_gets_that_format() {
    const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let of = |accept: &str, encoding: &str| format!("Accept: {accept}\r\nAccept-Encoding: {encoding}\r\n");
    let debian = format!(
        "{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
         text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    );
    let three = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;\
                 version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
                 */*;q=0.2";
    let cases = [
        (String::new(), "text", false),
        (of("*/*", "identity"), "text", false),
        (of("text/plain", "gzip"), "text", true),
        (of("text/html,application/xhtml+xml,*/*;q=0.8", "gzip, deflate, br"), "text", true),
        (of(&debian, "gzip"), "protobuf", true),
        (of(three, "gzip"), "openmetrics", true),
        (of(&format!("{PROTOBUF};escaping=allow-utf-8;q=0.6,{three}"), "gzip"), "protobuf", true),
        (of("application/openmetrics-text; version=1.0.0; charset=utf-8", "gzip;q=0"), "openmetrics", false),
        (of(&format!("{PROTOBUF};q=0.4,text/plain;version=0.0.4;q=0.5"), "br, gzip;q=0.8"), "text", true),
        (of(&format!("{PROTOBUF};q=0,*/*;q=0.1"), "deflate"), "text", false),
        (of(&PROTOBUF.replace("delimited", "text"), "gzip;q=0.0, identity"), "text", false),
    ];
    with_an_agent("accept", |agent, judge| {
        for (headers, format, compressed) in &cases {
            let answer = agent.scrape(headers);
            let got = judge.read(headers.as_bytes(), &answer);
            assert_eq!(got, ((*format).to_owned(), *compressed), "{headers}");
        }
    });
}
