//! Decides when each check asks which of its servers. No I/O, no clock.
//!
//! All agents of a mesh ask the same targets. A target that is not the cluster's own DNS or Service
//! is asked by all of them together no more often than a rate, so an agent of a large mesh asks it
//! rarely. Agents are spread over the time between two attempts by a hash of their nodes' names.
//!
//! A check that fails is asked again after half of that time, within the same rate: a cause is
//! known sooner, and so is its end.
//!
//! What is in the cluster is asked at multiples of the time between two attempts, after an offset.
//! So checks with related offsets stay apart or together, whatever fails meanwhile. The cluster's
//! DNS and the Service of the agents by UDP are asked together, which costs one wake-up, and the
//! Service by TCP between two of these.

use super::target::{CheckSpec, CheckTarget};
use crate::units::Nanos;

/// Time between two attempts at one address of a target, or server of the DNS. 5,000 agents ask a
/// server of their DNS 1,000 times a second.
const INTERVAL: Nanos = Nanos::from_millis(5_000);
/// The same for a target with TLS, whose handshake computes for much longer than other attempts.
const TLS_INTERVAL: Nanos = Nanos::from_millis(10_000);
/// Attempts in progress at once that take a connection with TLS or HTTP: each takes some 40 KB.
pub const CONNECTIONS_MAX: usize = 4;

/// An attempt that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueAttempt {
    /// The place of the check in the list.
    pub check: usize,
    /// Which of its servers is asked.
    pub server: usize,
    /// The time between two attempts while none fails.
    pub spacing: Nanos,
}

/// When all checks are due.
#[derive(Debug)]
pub struct CheckSchedule {
    /// Hash of the node's name.
    node: u64,
    /// Attempts per second of all agents at one target.
    rate: f64,
    checks: Vec<CheckTimes>,
}

#[derive(Clone, Debug)]
struct CheckTimes {
    spec: CheckSpec,
    /// The time until the first attempt, or after the multiples of the time between two, as a share
    /// of this time.
    offset: f64,
    /// When the last attempt was due. `None` before the first one.
    last: Option<Nanos>,
    /// The first attempt is not due before.
    begins: Nanos,
    next_server: usize,
    is_running: bool,
    is_failing: bool,
}

impl CheckTimes {
    /// Whether an attempt takes a connection with TLS or HTTP.
    const fn takes_connection(&self) -> bool {
        !matches!(
            self.spec.target,
            CheckTarget::Dns { .. }
                | CheckTarget::ClusterDns
                | CheckTarget::Icmp(_)
                | CheckTarget::Udp(_)
                | CheckTarget::ServiceUdp(_)
                | CheckTarget::Tcp(_)
        )
    }

    /// Returns the time between two attempts at the same server while none fails.
    const fn interval(&self) -> Nanos {
        if self.spec.target.uses_tls() { TLS_INTERVAL } else { INTERVAL }
    }

    /// Returns the time between two attempts at any of its servers. It depends on whether the last
    /// one has failed.
    fn spacing(&self, is_failing: bool, servers: usize, nodes: u32, rate: f64) -> Nanos {
        let own = Nanos(self.interval().0 / servers.max(1) as u64 / if is_failing { 2 } else { 1 });
        if self.spec.target.is_in_cluster() {
            return own;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and the cast saturates")]
        let of_all = Nanos((f64::from(nodes) / rate * 1e9) as u64);
        own.max(of_all)
    }

    fn due(&self, servers: usize, nodes: u32, rate: f64) -> Nanos {
        let spacing = |is_failing| self.spacing(is_failing, servers, nodes, rate);
        let (whole, step) = (spacing(false), spacing(self.is_failing));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of it")]
        let offset = |whole: Nanos| Nanos((whole.0 as f64 * self.offset) as u64);
        if !self.spec.target.is_in_cluster() {
            return self.last.map_or_else(|| self.begins.plus(offset(whole)), |last| last.plus(step));
        }
        let (step, offset) = (step.0.max(1), offset(self.interval()).0);
        // Half a step later: what was due last is not due again if the step changes.
        let from = self.last.map_or(self.begins.0, |last| last.0 + step / 2);
        Nanos(from.saturating_sub(offset).div_ceil(step) * step + offset)
    }
}

/// Returns a share of 0 to 1 from a hash.
fn share(hash: u64) -> f64 {
    f64::from(u32::try_from(hash >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

/// Returns the offset of a check. Those of what is in the cluster depend on the node alone.
fn offset(target: &CheckTarget, node: u64, name: u64) -> f64 {
    match target {
        CheckTarget::ClusterDns | CheckTarget::ServiceUdp(_) => share(node),
        CheckTarget::Service(_) => share(node) + 0.5,
        _ => share(name ^ node),
    }
}

impl CheckSchedule {
    /// Makes a schedule without checks. `node` is the hash of the node's name.
    pub const fn new(node: u64, rate: f64) -> Self {
        Self { node, rate, checks: Vec::new() }
    }

    /// Replaces the list of checks, of which none may be in progress. `hash` is that of a name. A
    /// check that was there before goes on as it was.
    pub fn replace(&mut self, specs: &[CheckSpec], now: Nanos, hash: impl Fn(&str) -> u64) {
        let before = std::mem::take(&mut self.checks);
        self.checks = specs
            .iter()
            .map(|spec| match before.iter().find(|check| check.spec == *spec) {
                Some(check) => CheckTimes { is_running: false, ..check.clone() },
                None => CheckTimes {
                    spec: spec.clone(),
                    offset: offset(&spec.target, self.node, hash(&spec.name)),
                    last: None,
                    begins: now,
                    next_server: 0,
                    is_running: false,
                    is_failing: false,
                },
            })
            .collect();
    }

    /// Whether a check may begin, with the connections that are open.
    fn may_begin(&self, check: &CheckTimes, servers: usize) -> bool {
        let is_open = |other: &&CheckTimes| other.is_running && other.takes_connection();
        let has_room = || self.checks.iter().filter(is_open).count() < CONNECTIONS_MAX;
        !check.is_running && servers > 0 && (!check.takes_connection() || has_room())
    }

    /// Begins the attempt that has been due for the longest time, if one is due and may begin. The
    /// default checks come first: what the operator adds must not delay them.
    /// `servers` has the number of servers of each check; a check without one is not due.
    pub fn begin(&mut self, now: Nanos, servers: &[usize], nodes: u32) -> Option<DueAttempt> {
        let rate = self.rate;
        let due = |(place, check): &(usize, &CheckTimes)| check.due(servers[*place], nodes, rate);
        let rank = |of: &(usize, &CheckTimes)| (!of.1.spec.target.is_default(), due(of));
        let (place, _) = self
            .checks
            .iter()
            .enumerate()
            .filter(|(place, check)| self.may_begin(check, servers[*place]))
            .filter(|check| due(check) <= now)
            .min_by_key(rank)?;
        let check = &mut self.checks[place];
        let spacing = |is_failing| check.spacing(is_failing, servers[place], nodes, rate);
        let (due, next, spacing) = (check.due(servers[place], nodes, rate), spacing(check.is_failing), spacing(false));
        // What could not begin in time is not made up for.
        check.last = Some(if due.plus(next) < now { now } else { due });
        check.is_running = true;
        let server = check.next_server % servers[place];
        check.next_server = server + 1;
        Some(DueAttempt { check: place, server, spacing })
    }

    /// Ends the attempt of a check.
    pub fn end(&mut self, check: usize, has_failed: bool) {
        if let Some(check) = self.checks.get_mut(check) {
            (check.is_running, check.is_failing) = (false, has_failed);
        }
    }

    /// Whether the last attempt of a check has failed.
    pub fn is_failing(&self, check: usize) -> bool {
        self.checks.get(check).is_some_and(|check| check.is_failing)
    }

    /// Returns when the next attempt is due that may begin. `None` if all wait for an attempt that
    /// is in progress, or have no server.
    pub fn next(&self, servers: &[usize], nodes: u32) -> Option<Nanos> {
        let waiting = self.checks.iter().zip(servers).filter(|(check, servers)| self.may_begin(check, **servers));
        waiting.map(|(check, servers)| check.due(*servers, nodes, self.rate)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Host, HostPort};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn host() -> HostPort {
        HostPort { host: Host::Address([127, 0, 0, 1].into()), port: 1 }
    }

    fn spec(name: &str, target: CheckTarget) -> CheckSpec {
        CheckSpec { name: name.into(), target }
    }

    /// Runs checks whose attempts take no time, and returns the seconds at which each began.
    fn seconds(
        (target, servers, nodes, rate): (CheckTarget, usize, u32, f64),
        fails: impl Fn(u64) -> bool,
    ) -> Vec<(u64, usize)> {
        let mut schedule = CheckSchedule::new(0, rate);
        schedule.replace(&[spec("a", target)], Nanos(0), |_| 0);
        let mut begun = Vec::new();
        while let Some(at) = schedule.next(&[servers], nodes).filter(|at| at.0 <= 60 * SECOND) {
            let due = schedule.begin(at, &[servers], nodes).unwrap();
            begun.push((at.as_secs(), due.server));
            schedule.end(due.check, fails(at.as_secs()));
        }
        begun
    }

    fn starts(begun: &[(u64, usize)]) -> Vec<u64> {
        begun.iter().map(|(at, _)| *at).collect()
    }

    #[test]
    fn servers_are_asked_in_turn_each_once_in_an_interval() {
        let begun = seconds((CheckTarget::ClusterDns, 2, 5_000, 50.0), |_| false);
        assert_eq!(begun.len(), 25);
        assert!(begun.iter().enumerate().all(|(n, (_, server))| *server == n % 2));
        let alone = seconds((CheckTarget::Tcp(host()), 1, 3, 50.0), |_| false);
        assert_eq!(starts(&alone), (0..=60).step_by(5).collect::<Vec<u64>>());
        let by_tls = seconds((CheckTarget::Tls(host()), 1, 3, 50.0), |_| false);
        assert_eq!(starts(&by_tls), [0, 10, 20, 30, 40, 50, 60]);
    }

    #[test]
    fn all_nodes_together_keep_the_rate_even_if_all_fail() {
        for (nodes, rate, expected) in [(500, 50.0, 10), (1_000, 50.0, 20), (5_000, 250.0, 20), (10, 1.0, 10)] {
            for (servers, fails) in [(1, false), (2, false), (1, true), (2, true)] {
                let begun = seconds((CheckTarget::Tls(host()), servers, nodes, rate), |_| fails);
                assert_eq!(begun.len(), 60 / expected + 1, "{nodes} nodes, {servers} servers, {fails}");
            }
        }
    }

    #[test]
    fn failing_target_is_asked_twice_as_often() {
        let begun = seconds((CheckTarget::Tls(host()), 1, 3, 50.0), |at| (20..30).contains(&at));
        assert_eq!(starts(&begun), [0, 10, 20, 25, 30, 40, 50, 60]);
        let dns = seconds((CheckTarget::ClusterDns, 1, 3, 50.0), |_| true);
        assert_eq!(dns.len(), 25);
    }

    #[test]
    fn the_service_is_asked_by_udp_with_the_dns_and_by_tcp_in_between_even_after_failures() {
        for node in [0, 0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, u64::MAX] {
            let mut schedule = CheckSchedule::new(node, 50.0);
            let targets = [CheckTarget::ClusterDns, CheckTarget::ServiceUdp(host()), CheckTarget::Service(host())];
            schedule.replace(&targets.map(|target| spec("a", target)), Nanos(7 * SECOND), |_| 9);
            let mut begun = [const { Vec::new() }; 3];
            while let Some(at) = schedule.next(&[1; 3], 5_000).filter(|at| at.0 < 300 * SECOND) {
                let due = schedule.begin(at, &[1; 3], 5_000).unwrap();
                begun[due.check].push(at.0);
                schedule.end(due.check, [120..140, 110..161, 107..200][due.check].contains(&at.as_secs()));
            }
            for range in [0..100, 210..300_u64] {
                let [dns, udp, tcp] = begun.each_ref().map(|of| {
                    let of = of.iter().copied().filter(|at| range.contains(&(at / SECOND)));
                    of.collect::<Vec<u64>>()
                });
                assert_eq!(dns, udp);
                assert!(dns.len() >= 17 && dns.is_sorted_by(|a, b| b - a == 5 * SECOND), "{dns:?}");
                assert!(tcp.iter().all(|at| dns.iter().any(|dns| at.abs_diff(*dns) == 5 * SECOND / 2)), "{tcp:?}");
            }
        }
    }

    #[test]
    fn nodes_are_spread_over_the_interval() {
        let first = |node: u64| {
            let mut schedule = CheckSchedule::new(node, 50.0);
            schedule.replace(&[spec("a", CheckTarget::Tls(host()))], Nanos(0), |_| 0);
            schedule.next(&[1], 3).unwrap().0
        };
        assert_eq!((first(0), first(u64::MAX / 2).div_ceil(SECOND), first(u64::MAX)), (0, 5, 10 * SECOND));
    }

    #[test]
    fn few_connections_are_open_at_once_and_the_others_wait_in_turn() {
        let mut schedule = CheckSchedule::new(0, 50.0);
        let specs: Vec<CheckSpec> = (0..8).map(|n| spec(&n.to_string(), CheckTarget::Tls(host()))).collect();
        let with_dns = [&specs[..], &[spec("dns", CheckTarget::ClusterDns)]].concat();
        schedule.replace(&with_dns, Nanos(0), |_| 0);
        let servers = [1; 9];
        let begin = |schedule: &mut CheckSchedule, at| {
            std::iter::from_fn(|| schedule.begin(Nanos(at), &servers, 3)).map(|due| due.check).collect::<Vec<_>>()
        };
        assert_eq!(begin(&mut schedule, 0), [8, 0, 1, 2, 3], "the default is first");
        assert_eq!(schedule.next(&servers, 3), None, "the others wait for a connection");
        for check in [0, 1, 2] {
            schedule.end(check, false);
        }
        assert_eq!(begin(&mut schedule, SECOND), [4, 5, 6]);
        schedule.end(3, true);
        assert_eq!(begin(&mut schedule, 5 * SECOND), [7]);
    }

    #[test]
    fn late_attempt_is_not_made_up_for_and_a_check_without_servers_waits() {
        let mut schedule = CheckSchedule::new(0, 50.0);
        schedule.replace(&[spec("a", CheckTarget::Tcp(host()))], Nanos(0), |_| 0);
        assert_eq!((schedule.next(&[0], 3), schedule.begin(Nanos(9), &[0], 3)), (None, None));
        assert!(schedule.begin(Nanos(100 * SECOND), &[1], 3).is_some());
        assert_eq!(schedule.next(&[1], 3), None, "one attempt at a time");
        schedule.end(0, false);
        assert_eq!(schedule.next(&[1], 3), Some(Nanos(105 * SECOND)));
    }

    #[test]
    fn kept_check_goes_on_in_a_new_list() {
        let mut schedule = CheckSchedule::new(0, 50.0);
        let (a, b) = (spec("a", CheckTarget::Tcp(host())), spec("b", CheckTarget::Tcp(host())));
        schedule.replace(std::slice::from_ref(&a), Nanos(0), |_| 0);
        schedule.begin(Nanos(0), &[1], 3).unwrap();
        schedule.end(0, false);
        schedule.replace(&[b, a], Nanos(4 * SECOND), |_| 0);
        let due = DueAttempt { check: 0, server: 0, spacing: INTERVAL };
        assert_eq!(schedule.begin(Nanos(4 * SECOND), &[1, 1], 3), Some(due));
        schedule.end(0, false);
        assert_eq!(schedule.next(&[1, 1], 3), Some(Nanos(5 * SECOND)));
    }
}
