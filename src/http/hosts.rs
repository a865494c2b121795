//! The names under which a browser may address the server.
//!
//! A page on the web can point its own name at an agent's address (DNS rebinding). The browser then
//! treats the agent as a part of that site, and the site's script can read the names and addresses
//! of all nodes. The browser still sends the name in the Host header, so an unknown name is
//! refused. An address instead of a name cannot be rebound, and is accepted.

use std::net::{IpAddr, Ipv6Addr};

/// The accepted names. The server owns them, and they never change while it runs.
#[derive(Debug)]
pub struct Hosts {
    /// The names in lower case, without a dot at the end.
    names: Vec<String>,
}

impl Hosts {
    /// Accepts `localhost` and these names, in any case, with or without a dot at the end.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let mut all = vec!["localhost".to_owned()];
        for name in names {
            let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
            if !name.is_empty() && !all.contains(&name) {
                all.push(name);
            }
        }
        Self { names: all }
    }

    /// Whether a client may address the server by this value of a Host header. Accepted are an IP
    /// address (IPv6 in brackets) and an accepted name, each with or without a port.
    pub fn accept(&self, host: &str) -> bool {
        if let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || is_port(port));
        }
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        if !(port.is_empty() || is_port(port)) {
            return false;
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        name.parse::<IpAddr>().is_ok() || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Whether this is a colon followed by a port. The port may be empty (RFC 3986, section 3.2.3).
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.is_empty() || digits.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_known_names_are_accepted_in_every_spelling() {
        let hosts = Hosts::new(["Canary.ns.svc.".to_owned(), String::new()]);
        for host in [
            "127.0.0.1",
            "10.0.0.7:9877",
            "[::1]",
            "[fd00::7]:9877",
            "localhost",
            "LocalHost.:9877",
            "canary.ns.svc",
            "CANARY.NS.SVC:80",
            "canary.ns.svc.",
            "localhost:",
        ] {
            assert!(hosts.accept(host), "{host}");
        }
    }

    #[test]
    fn unknown_names_and_malformed_hosts_are_refused() {
        let hosts = Hosts::new(["canary.ns.svc".to_owned()]);
        for host in [
            "",
            ".",
            "evil.example",
            "canary.ns.svc.evil.example",
            "evil.canary.ns.svc",
            "agent",
            "127.0.0.1.evil.example",
            "localhost..",
            "localhost:port",
            "[::1",
            "[::1]evil",
            "[10.0.0.7]",
            "[evil.example]",
            "::1",
            "user@localhost",
            "10.0.0.7:99999",
        ] {
            assert!(!hosts.accept(host), "{host}");
        }
    }
}
