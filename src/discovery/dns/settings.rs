//! Reads resolv.conf(5), as far as pods use it: nameserver, search, domain, and the options ndots,
//! timeout and attempts.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Which name servers are asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers, asked one after the other.
    pub servers: Vec<SocketAddr>,
    /// Domains that complete a name.
    pub search: Vec<String>,
    /// A name with at least this many dots is first tried as it is.
    pub ndots: usize,
    /// Timeout of one question to one server.
    pub timeout: Duration,
    /// Number of rounds over all servers.
    pub attempts: usize,
}

impl Settings {
    /// Returns the domain of the cluster: `D`, if the search list has `svc.D` and `D`, as the
    /// kubelet writes it. `None` outside of a cluster.
    pub fn cluster_domain(&self) -> Option<&str> {
        let domains = || self.search.iter().map(|domain| domain.trim_end_matches('.'));
        let mut of_services = domains().filter_map(|domain| domain.strip_prefix("svc."));
        of_services.find(|cluster| !cluster.is_empty() && domains().any(|domain| domain == *cluster))
    }
}

/// Reads the system's settings from the file on each call.
///
/// # Errors
/// The file cannot be read.
pub fn system() -> std::io::Result<Settings> {
    let mut text = Vec::new();
    // No resolv.conf is longer than a page. Bytes after 64 KiB are not read.
    File::open("/etc/resolv.conf")?.take(64 << 10).read_to_end(&mut text)?;
    // A comment may be in any encoding.
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Parses the file. The bounds are those of resolv.conf(5), including the number of servers and
/// search domains. Unknown lines and options are ignored, as every resolver does.
fn parse(text: &str) -> Settings {
    let mut settings =
        Settings { servers: Vec::new(), search: Vec::new(), ndots: 1, timeout: Duration::from_secs(5), attempts: 2 };
    for line in text.lines() {
        let mut words = line.split(['#', ';']).next().unwrap_or_default().split_ascii_whitespace();
        match words.next() {
            Some("nameserver") if settings.servers.len() < 3 => {
                let address = words.next().and_then(|w| w.parse::<IpAddr>().ok());
                settings.servers.extend(address.map(|a| SocketAddr::new(a, 53)));
            }
            // The last such line counts.
            Some("search" | "domain") => settings.search = words.take(32).map(str::to_owned).collect(),
            Some("options") => {
                for (name, value) in words.filter_map(|w| w.split_once(':')) {
                    let Ok(value) = value.parse::<u8>() else { continue };
                    match name {
                        "ndots" => settings.ndots = value.min(15).into(),
                        "timeout" => settings.timeout = Duration::from_secs(value.clamp(1, 30).into()),
                        "attempts" => settings.attempts = value.clamp(1, 5).into(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if settings.servers.is_empty() {
        settings.servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_file_is_read() {
        let pod = "search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10 # kube-dns\n\
                   nameserver fd00::a\noptions ndots:5 timeout:2 attempts:3 edns0\n";
        let settings = parse(pod);
        assert_eq!(settings.servers, ["10.96.0.10:53".parse().unwrap(), "[fd00::a]:53".parse().unwrap()]);
        assert_eq!(settings.search, ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"]);
        assert_eq!((settings.ndots, settings.timeout, settings.attempts), (5, Duration::from_secs(2), 3));
    }

    #[test]
    fn the_cluster_domain_is_found_by_the_list_of_the_kubelet_alone() {
        let domain = |search: &str| parse(&format!("search {search}\n")).cluster_domain().map(str::to_owned);
        assert_eq!(domain("ns.svc.cluster.local svc.cluster.local cluster.local").unwrap(), "cluster.local");
        assert_eq!(domain("example.com ns.svc.k8s.corp. svc.k8s.corp. k8s.corp. corp").unwrap(), "k8s.corp");
        for other in ["", "example.com", "svc.example.com", "a.svc.example.com example.com", "svc. ."] {
            assert_eq!(domain(other), None, "{other}");
        }
    }

    #[test]
    fn missing_and_invalid_settings_have_the_defaults_of_resolv_conf() {
        let settings =
            parse("; nothing\nnameserver somewhere\noptions ndots:x timeout:0 attempts:200 rotate\nport 7\n");
        assert_eq!(settings.servers, ["127.0.0.1:53".parse().unwrap()]);
        assert_eq!((settings.ndots, settings.timeout, settings.attempts), (1, Duration::from_secs(1), 5));
        assert!(settings.search.is_empty());
    }
}
