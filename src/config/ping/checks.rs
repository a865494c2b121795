//! The targets of checks as targets of `ping`: `tcp:HOST:PORT` and the other kinds of `--check`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use kube_canary_model::check::CHECKS_MAX;

use super::super::agents::Host;
use super::super::run::number_between;
use super::super::typed::Typed;
use super::super::{UsageError, checks};
use super::target;
use crate::checks::{AuthoritiesFile, CheckSpec, CheckTarget};
use crate::discovery::dns::AddressFamily;

/// The flags that are about probes of hosts.
const OF_HOSTS: [&str; 8] = ["timeout", "payload-bytes", "ipv4", "ipv6", "udp", "udp-port", "flows", "trace"];
/// What no address and no DNS name has. Behind the last three a text may have a secret.
const OF_CHECKS: [char; 5] = [':', '/', '?', '#', '@'];

/// Checks that are tried instead of hosts that are probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingChecks {
    /// 1 to [`CHECKS_MAX`], each with another label.
    pub targets: Vec<PingCheck>,
    /// The file of authorities that may sign the certificates of targets. `None`: certificates are
    /// not verified.
    pub authorities: Option<Arc<AuthoritiesFile>>,
}

/// A check that is a target of `ping`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingCheck {
    /// What was typed, without its query.
    pub typed: String,
    /// Its name in lines for users: the NAME if one was typed, else kind and target.
    pub label: String,
    /// What is tried.
    pub target: CheckTarget,
}

impl PingChecks {
    /// Reads the targets. `None` if they are hosts. With `--tcp PORT` each HOST stands for
    /// `tcp:HOST:PORT`.
    pub(super) fn resolve(typed: &Typed, given: &[String]) -> Result<Option<Self>, UsageError> {
        let connections = typed.value("tcp", number_between(1, u16::MAX))?.map(|port| connections(given, port));
        if connections.is_some()
            && let Some(flag) = typed.first_typed(&OF_HOSTS)
        {
            return Err(UsageError(format!("--{flag}: expected no --tcp beside it")));
        }
        let connections = connections.transpose()?;
        let given = connections.as_deref().unwrap_or(given);
        let count = given.iter().filter(|text| is_check(text)).count();
        if count == 0 {
            return match typed.first_typed(&["check-ca"]) {
                Some(_) => Err(UsageError("--check-ca: expected a TARGET such as tls:HOST:PORT beside it".into())),
                None => Ok(None),
            };
        }
        if count < given.len() {
            return Err(UsageError("TARGET: expected hosts or checks such as tcp:HOST:PORT, and not both".into()));
        }
        if count > CHECKS_MAX {
            return Err(UsageError(format!("TARGET: {count} checks are given: expected at most {CHECKS_MAX}")));
        }
        if let Some(flag) = typed.first_typed(&OF_HOSTS) {
            return Err(UsageError(format!("--{flag}: expected hosts as TARGET, because it means nothing to checks")));
        }
        let targets: Vec<PingCheck> = given.iter().map(|text| PingCheck::read(text)).collect::<Result<_, _>>()?;
        let mut labels: Vec<&str> = targets.iter().map(|check| &*check.label).collect();
        labels.sort_unstable();
        if let Some(twice) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
            let once = "each target once; a NAME= before a check tells it from another";
            return Err(UsageError::expected("TARGET", twice[0], once));
        }
        Ok(Some(Self { targets, authorities: checks::authorities_file(typed)? }))
    }
}

/// Returns the checks of a connection with this port of each host.
fn connections(hosts: &[String], port: u16) -> Result<Vec<String>, UsageError> {
    let check = |text: &String| match target(text, AddressFamily::Any) {
        Ok(Host::Address(address)) => Ok(format!("tcp:{}", SocketAddr::new(address, port))),
        Ok(Host::Name(name)) => Ok(format!("tcp:{name}:{port}")),
        Err(_) if is_check(text) => Err(UsageError("--tcp: expected hosts as TARGET, and no check".into())),
        Err(reason) => Err(UsageError::expected("TARGET", text, &reason)),
    };
    hosts.iter().map(check).collect()
}

impl PingCheck {
    fn read(text: &str) -> Result<Self, UsageError> {
        // The error shows no secret.
        let CheckSpec { name, target } = text.parse().map_err(|error| UsageError(format!("TARGET: {error}")))?;
        let is_name_typed = text.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('='));
        let label = match &target {
            _ if is_name_typed => name.into(),
            CheckTarget::Http { .. } => target.to_string(),
            _ => format!("{} {target}", target.kind().label()),
        };
        Ok(Self { typed: text.split('?').next().unwrap_or_default().to_owned(), label, target })
    }
}

/// Whether a target is meant as a check.
fn is_check(text: &str) -> bool {
    let address = text.split('%').next().unwrap_or_default();
    text.contains(OF_CHECKS) && text.parse::<IpAddr>().is_err() && address.parse::<Ipv6Addr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::super::super::{Command, parse};
    use super::*;

    fn checks(line: &str) -> Result<Option<PingChecks>, UsageError> {
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), &|_| None)? {
            Command::Ping(settings) => {
                assert_eq!(settings.targets.is_empty(), settings.checks.is_some());
                Ok(settings.checks)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_check_is_a_target() {
        let line = "ping dns:a.example.@10.96.0.10 tcp:h:1 tls:[fd00::1]:443 db=tcp:h:1 https://h/p?secret=1 icmp:h \
                    udp:h:862 dns:a";
        let checks = checks(line).unwrap().unwrap();
        let names: Vec<_> = checks.targets.iter().map(|check| (&*check.typed, &*check.label)).collect();
        assert_eq!(
            names,
            [
                ("dns:a.example.@10.96.0.10", "dns a.example.@10.96.0.10:53"),
                ("tcp:h:1", "tcp h:1"),
                ("tls:[fd00::1]:443", "tls [fd00::1]:443"),
                ("db=tcp:h:1", "db"),
                ("https://h/p", "https://h:443/p"),
                ("icmp:h", "icmp h"),
                ("udp:h:862", "udp h:862"),
                ("dns:a", "dns a"),
            ]
        );
        let CheckTarget::Http { path, .. } = &checks.targets[4].target else { panic!("{checks:?}") };
        assert_eq!((&**path, checks.authorities), ("/p?secret=1", None));
    }

    #[test]
    fn hosts_with_a_port_are_connections() {
        let checks = checks("ping node3 10.0.0.1 fd00::1 --tcp 443").unwrap().unwrap();
        let labels: Vec<_> = checks.targets.iter().map(|check| &*check.label).collect();
        assert_eq!(labels, ["tcp node3:443", "tcp 10.0.0.1:443", "tcp [fd00::1]:443"]);
        assert!(checks.targets.iter().all(|check| matches!(check.target, CheckTarget::Tcp(_))));
    }

    #[test]
    fn hosts_are_not_taken_for_checks() {
        for line in ["ping 10.0.0.1 ::1 ::ffff:10.0.0.7 node-1 example.org.", "ping tcp"] {
            assert_eq!(checks(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn bad_checks_and_flags_of_hosts_are_named_without_a_secret() {
        let many: Vec<String> = (0..=CHECKS_MAX).map(|n| format!("tcp:h:{}", n + 1)).collect();
        for (line, parts) in [
            ("ping sctp:h:1", ["TARGET", "\"sctp:h:1\"", "KIND"]),
            ("ping tcp:h", ["TARGET", "\"tcp:h\"", "it has no port"]),
            ("ping 10.0.0.1:80", ["TARGET", "\"10.0.0.1:80\"", "tcp:HOST:PORT"]),
            ("ping example.org/?secret", ["TARGET", "\"example.org/…\"", "https://"]),
            ("ping https://u:secret@h/", ["TARGET", "\"https:…\"", "user information"]),
            ("ping tcp:h:1 10.0.0.1", ["TARGET", "hosts or checks", "not both"]),
            ("ping tcp:h:1 tcp:h:1", ["TARGET", "\"tcp h:1\"", "once"]),
            ("ping https://h/?secret=1 https://h/?secret=2", ["TARGET", "\"https://h:443/\"", "a NAME="]),
            ("ping tcp:h:1 -W 2", ["--timeout", "hosts", "TARGET"]),
            ("ping tcp:h:1 --udp", ["--udp", "hosts", "TARGET"]),
            ("ping tcp:h:1 -4", ["--ipv4", "hosts", "TARGET"]),
            ("ping node3 --tcp 443 --udp", ["--udp", "expected no --tcp", ""]),
            ("ping node3 --tcp 0", ["--tcp", "\"0\"", "from 1 to 65535"]),
            ("ping https://u:secret@h/ --tcp 443", ["--tcp", "hosts", "no check"]),
            ("ping tcp:h:1 node3 --tcp 443", ["--tcp", "hosts", "no check"]),
            ("ping fe80::1 --tcp 443", ["TARGET", "\"fe80::1\"", "address of one host"]),
            ("ping node3 node3 --tcp 443", ["TARGET", "\"tcp node3:443\"", "once"]),
            ("ping 10.0.0.1 --check-ca /ca.pem", ["--check-ca", "tls:HOST:PORT", "TARGET"]),
            ("ping tls:h:1 --check-ca /nonexistent", ["--check-ca", "/nonexistent", "in PEM"]),
            (&format!("ping {}", many.join(" ")), ["TARGET", "33 checks", "at most 32"]),
        ] {
            let error = checks(line).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
            assert!(error.lines().count() == 1 && !error.contains("secret"), "{error}");
        }
    }
}
