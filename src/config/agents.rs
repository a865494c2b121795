//! Which agents are asked: `--url`, or `--service` with `--namespace` and `--port`. Every command
//! that asks agents uses it. In a pod, the agent beside the command is asked first.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::run::{name, number_between};
use super::typed::Typed;
use super::{Env, UsageError};
pub(super) use crate::discovery::address::{Host, has_numeric_end};
use crate::discovery::dns;
use crate::limits::AGENTS_MAX;

/// The default HTTP port of an agent.
const PORT: u16 = 9_877;
const ACCEPTED: &str =
    "HOST or HOST:PORT, where HOST is a name or an address (IPv6 in brackets); http:// may precede it";

/// Which agents a command asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agents {
    /// The agents at these URLs; at least one.
    Urls(Vec<AgentUrl>),
    /// Every address of a headless Service.
    Service {
        /// The DNS name of the Service, relative to resolv.conf's search list.
        name: String,
        /// The HTTP port of every agent.
        port: u16,
        /// The agent in the pod of the command. It is asked first, and needs no DNS. `None` outside
        /// of a pod, or if a flag says which agents are asked.
        own: Option<AgentUrl>,
    },
}

/// Where the HTTP server of an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUrl {
    /// The host name or address.
    pub host: Host,
    /// The TCP port of the server.
    pub port: u16,
}

impl Agents {
    /// Returns the agent beside the command, if it is asked first.
    pub const fn own(&self) -> Option<&AgentUrl> {
        match self {
            Self::Service { own, .. } => own.as_ref(),
            Self::Urls(_) => None,
        }
    }

    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        Self::resolve_beside(typed, env, &["service", "namespace", "port"])
    }

    /// Does the same for a command of which only these flags are about agents alone.
    pub(super) fn resolve_beside(typed: &Typed, env: Env<'_>, of_service: &[&str]) -> Result<Self, UsageError> {
        let mut urls: Vec<AgentUrl> = Vec::new();
        // A flag goes before a variable.
        let is_by_service = typed.first_typed(of_service).is_some() && typed.first_typed(&["url"]).is_none();
        for (flag, text) in typed.texts("url").filter(|_| !is_by_service) {
            // A variable may contain several URLs, separated by commas. Our URLs contain no comma.
            for text in text.split(',').map(str::trim) {
                let url = AgentUrl::parse(text).map_err(|accepted| UsageError::expected(flag, text, &accepted))?;
                if urls.contains(&url) {
                    return Err(UsageError::expected(flag, text, "each URL once"));
                }
                urls.push(url);
            }
        }
        if urls.len() > AGENTS_MAX {
            return Err(UsageError(format!("--url: {} are given: expected at most {AGENTS_MAX}", urls.len())));
        }
        let service = typed.value("service", name)?;
        let namespace = typed.value("namespace", name)?;
        let port = typed.value("port", number_between(1, u16::MAX))?;
        if urls.is_empty() {
            let service = service.unwrap_or_else(|| "kube-canary".into());
            // `.svc` and not the full name: clusters choose their own domain, which the search list
            // contains.
            let full = namespace.map_or_else(|| service.clone(), |namespace| format!("{service}.{namespace}.svc"));
            dns::check_name(&full).map_err(|error| UsageError(format!("--service: {error}")))?;
            let port = port.unwrap_or(PORT);
            let is_chosen = typed.first_typed(&["service", "namespace", "port"]).is_some();
            let own = env("KUBERNETES_SERVICE_HOST").filter(|_| !is_chosen).map(|_| AgentUrl::own(env));
            return Ok(Self::Service { name: full, port, own });
        }
        match typed.first_typed(of_service) {
            Some(flag) => Err(UsageError(format!("--{flag} goes with --service, and --url is given"))),
            None => Ok(Self::Urls(urls)),
        }
    }
}

impl AgentUrl {
    /// Returns the URL of the agent beside the command: that of `--listen`, as far as the
    /// environment says it.
    pub(super) fn own(env: Env<'_>) -> Self {
        let listen = env("KUBE_CANARY_LISTEN").and_then(|text| text.parse::<SocketAddr>().ok());
        let host = match listen.map(|listen| listen.ip()).filter(|address| !address.is_unspecified()) {
            Some(address) => address,
            None => Ipv4Addr::LOCALHOST.into(),
        };
        Self { host: Host::Address(host), port: listen.map_or(PORT, |listen| listen.port()) }
    }

    /// Reads `HOST[:PORT]`, with or without `http://` before it and a slash at the end.
    fn parse(text: &str) -> Result<Self, String> {
        let accepted = || ACCEPTED.to_owned();
        let rest = match text.split_once("://") {
            None => text,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err("http://, because agents do not serve TLS".into());
            }
            Some(_) => return Err(accepted()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err("HOST:PORT without a path, because the command itself knows the paths".into());
        }
        if rest.parse::<Ipv6Addr>().is_ok() {
            return Err(format!("an IPv6 address in brackets, [{rest}] or [{rest}]:{PORT}"));
        }
        let (host, behind) = if let Some(bracketed) = rest.strip_prefix('[') {
            let (address, behind) = bracketed.split_once(']').ok_or_else(accepted)?;
            let address: Ipv6Addr = address.parse().map_err(|_| accepted())?;
            (Host::Address(address.into()), behind)
        } else {
            let (host, behind) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
            (Host::parse(host).ok_or_else(accepted)?, behind)
        };
        let port = match behind.strip_prefix(':') {
            None if behind.is_empty() => PORT,
            None => return Err(accepted()),
            Some(digits) => digits.parse().ok().filter(|port| *port > 0).ok_or("a port from 1 to 65535")?,
        };
        Ok(Self { host, port })
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        (plain && !has_numeric_end(text) && dns::check_name(text).is_ok()).then(|| Self::Name(text.into()))
    }
}

impl fmt::Display for AgentUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "http://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_agent_is_at_the_address_that_it_listens_on() {
        for (listen, url) in [
            (None, "http://127.0.0.1:9877"),
            (Some("[::]:80"), "http://127.0.0.1:80"),
            (Some("0.0.0.0:9878"), "http://127.0.0.1:9878"),
            (Some("10.0.0.7:9878"), "http://10.0.0.7:9878"),
            (Some("[fd00::7]:9878"), "http://[fd00::7]:9878"),
            (Some("nonsense"), "http://127.0.0.1:9877"),
        ] {
            let env = |name: &str| listen.filter(|_| name == "KUBE_CANARY_LISTEN").map(str::to_owned);
            assert_eq!(AgentUrl::own(&env).to_string(), url);
        }
    }

    #[test]
    fn a_url_is_a_host_and_a_port_and_is_shown_with_both() {
        for (text, shown) in [
            ("http://127.0.0.2:9877", "http://127.0.0.2:9877"),
            ("http://10.0.0.1/", "http://10.0.0.1:9877"),
            ("http://[fd00::1]:80", "http://[fd00::1]:80"),
            ("http://[::1]", "http://[::1]:9877"),
            ("http://localhost:1234", "http://localhost:1234"),
            ("HTTP://10.0.0.1", "http://10.0.0.1:9877"),
            ("10.0.0.1:80", "http://10.0.0.1:80"),
            ("10.0.0.1", "http://10.0.0.1:9877"),
            ("localhost/", "http://localhost:9877"),
            ("canary-0:1234/", "http://canary-0:1234"),
            ("[::1]:9877", "http://[::1]:9877"),
            ("[fd00::1]", "http://[fd00::1]:9877"),
            ("http://canary-0.ns.svc:9877/", "http://canary-0.ns.svc:9877"),
        ] {
            assert_eq!(AgentUrl::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn a_url_that_no_agent_can_have_is_refused() {
        for (text, accepted) in [
            ("", "HOST:PORT"),
            ("https://a:9877", "TLS"),
            ("HTTPS://a", "TLS"),
            ("ftp://a", "HOST:PORT"),
            ("://a", "HOST:PORT"),
            ("http://", "HOST:PORT"),
            ("http://http://a", "without a path"),
            ("http://a:", "1 to 65535"),
            ("a:0", "1 to 65535"),
            ("a:65536", "1 to 65535"),
            ("http://a:b", "1 to 65535"),
            ("http://fd00::1", "[fd00::1]:9877"),
            ("::1", "[::1]:9877"),
            ("http://[fd00::1", "HOST:PORT"),
            ("http://[fd00::1]9877", "HOST:PORT"),
            ("http://[fd00::1]:", "1 to 65535"),
            ("http://[10.0.0.1]:1", "HOST:PORT"),
            ("http://10.0.0.256", "HOST:PORT"),
            ("http://a/metrics", "without a path"),
            ("a:9877/api/v1/mesh", "without a path"),
            ("a?b", "without a path"),
            ("http://user@a", "HOST:PORT"),
            ("http://a b", "HOST:PORT"),
            ("http://a\r\nb", "HOST:PORT"),
        ] {
            let error = AgentUrl::parse(text).unwrap_err();
            assert!(error.contains(accepted), "{text:?}: {error}");
        }
    }
}
