//! What pods depend on fails, two things at a time that have nothing to do with each other: each
//! cause is named, nothing else is, and they end.
//!
//! The targets outside are programs beside the API server, in the network namespace of the control
//! plane.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Test;
use crate::agents::Pod;
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::faults::{ApiAway, NodeRules, Undo};
use crate::process::Background;
use crate::wait::until;
use crate::watch::Watch;

/// The address of the control plane, where the programs outside listen.
pub const OUTSIDE: &str = "10.79.0.1";
pub const HTTP_PORT: &str = "8080";
pub const TLS_PORT: &str = "8443";
/// How long each fault lasts after it is named.
const LASTS: Duration = Duration::from_secs(20);
/// How long addresses are rewritten: longer than it takes to name a node that loses all by UDP.
const REWRITTEN_LASTS: Duration = Duration::from_mins(1);

impl Test {
    pub(crate) fn what_fails_is_named(&self) {
        let programs = Programs::new();
        let http = || self.cluster.start_on_node("cp", &["python3", "-m", "http.server", "-b", OUTSIDE, HTTP_PORT]);
        let tls = |certificate: &str| programs.tls(&self.cluster, certificate);
        let (mut outside, mut server) = (Some(http().unwrap()), Some(tls("valid")));
        let checks = format!("outside=http://{OUTSIDE}:{HTTP_PORT}/ certificate=tls:{OUTSIDE}:{TLS_PORT}");
        let pods = self.agents_with(&checks);
        let judges = until("three judges", || self.judges(&pods));
        self.past(&pods);
        let [witness, node] = [&judges[0], &judges[2]];
        let zone = self.zones.values().find(|zone| **zone != self.zones[node]).expect("there are two zones");
        let in_zone: Vec<&String> = pods.keys().filter(|node| self.zones[*node] == *zone).collect();
        // Not in the zone of the other faults: of three nodes, two that fail are the zone at first.
        let other = in_zone[0];
        let mut watch = Watch::new(&self.cluster);
        watch.at(&[witness], &pods);
        let run = |tool: &'static [&'static str], undo: &'static [&'static str]| {
            self.cluster.verb(tool).unwrap();
            Undo::new(&self.cluster, undo)
        };
        let of =
            |from: &str, checks: &[&str]| checks.iter().map(|check| format!("{from}->{check}")).collect::<Vec<_>>();
        let has_expired = "the DNS has no server, and a certificate has expired";
        watch.checks(has_expired, &of("*", &["dns", "certificate"]), LASTS, || {
            server = None;
            (
                run(&["dns-scale", "0"], &["dns-scale", "2"]),
                Restart(Some(tls("expired")), || server = Some(tls("valid"))),
            )
        });
        let is_slow = "one of two servers of the DNS takes 500 ms, and a target outside is away";
        watch.checks(is_slow, &of("*", &["dns", "outside"]), LASTS, || {
            outside = None;
            let slow = run(&["dns-delay", "0.5"], &["dns-delay", "0"]);
            (slow, Restart(None::<Background>, || outside = Some(http().unwrap())))
        });
        let is_blocked = format!("the API server is stopped, and port 53 is blocked on {node}");
        watch.checks(&is_blocked, &[of("*", &["api-server"]), of(node, &["dns"])].concat(), LASTS, || {
            (ApiAway::start(&self.cluster), NodeRules::of_dns(&self.cluster, node))
        });
        let has_no_rules = format!("{node} has no rules of kube-proxy, and a target outside is away for {zone}");
        let of_node = of(node, &["dns", "api-server", "service", "service-udp"]);
        watch.checks(&has_no_rules, &[of_node, of(zone, &["outside"])].concat(), LASTS, || {
            self.cluster.verb(&["proxy-stop", node]).unwrap();
            let drop = |node: &&String| NodeRules::from_port(&self.cluster, node, OUTSIDE, HTTP_PORT);
            (Undo::new(&self.cluster, &["proxy-start", node]), in_zone.iter().map(drop).collect::<Vec<_>>())
        });
        let rewrites = format!("{node} has no way to the Service by UDP, and {other} rewrites what goes to Services");
        watch.checks(&rewrites, &of(node, &["service-udp"]), REWRITTEN_LASTS, || {
            let no_way = NodeRules::of_service_udp(&self.cluster, node, "862");
            (no_way, NodeRules::rewritten(&self.cluster, other))
        });
        let log = self.cluster.kubectl(&["logs", &pods[other].name]).unwrap();
        let is_off = "check service-udp: off, because its Service rewrites the address of this pod";
        watch.require(log.contains(is_off), format!("{is_off} is not in the log of {other}:\n{log}"));
        assert_eq!(watch.wrong, BTreeSet::new(), "what was said is wrong");
        drop((outside, server));
    }

    /// Rolls the agents, with these checks beside the defaults, and waits until all are new.
    pub(crate) fn agents_with(&self, checks: &str) -> BTreeMap<String, Pod> {
        let before = self.pods();
        let variable =
            if checks.is_empty() { "KUBE_CANARY_CHECK-".into() } else { format!("KUBE_CANARY_CHECK={checks}") };
        self.cluster.kubectl(&["set", "env", "daemonset/kube-canary", &variable]).unwrap();
        self.until_all_are_new(&before, || Ok(()))
    }
}

/// Ends one program and starts another as it is dropped.
pub struct Restart<T, F: FnMut()>(pub Option<T>, pub F);

impl<T, F: FnMut()> Drop for Restart<T, F> {
    fn drop(&mut self) {
        self.0 = None;
        self.1();
    }
}

/// Writes the certificates `valid` and `expired` of a server, and their `key`.
pub fn certify(directory: &Directory, host: &str) {
    let key = rcgen::KeyPair::generate().unwrap();
    for (name, year) in [("valid", 2099), ("expired", 2020)] {
        let mut certificate = rcgen::CertificateParams::new(vec![host.to_owned()]).unwrap();
        certificate.not_before = rcgen::date_time_ymd(2019, 1, 1);
        certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
        std::fs::write(directory.path(name), certificate.self_signed(&key).unwrap().pem()).unwrap();
    }
    std::fs::write(directory.path("key"), key.serialize_pem()).unwrap();
}

/// Certificates of a server outside.
struct Programs(Directory);

impl Programs {
    fn new() -> Self {
        let directory = Directory::new("checks");
        certify(&directory, "outside.example");
        Self(directory)
    }

    /// Starts a server with one of the certificates.
    fn tls(&self, cluster: &Cluster, certificate: &str) -> Background {
        let (certificate, key) = (self.0.path(certificate), self.0.path("key"));
        let accept = format!("{OUTSIDE}:{TLS_PORT}");
        let server = ["openssl", "s_server", "-quiet", "-accept", &accept, "-cert", &certificate, "-key", &key];
        cluster.start_on_node("cp", &server).unwrap()
    }
}
