//! Reads a check as an operator writes it: `[NAME=]KIND:…`.
//!
//! The traps:
//! * A query may have a `=`. What precedes a NAME's `=` has no `:`.
//! * What is refused may hold a secret: user information, or a query. An error shows neither.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use kube_canary_model::check::{CHECK_NAME_BYTES_MAX, is_check_name};

use super::Host;
use super::target::{CheckSpec, CheckTarget, HostPort};
use crate::discovery::address::{has_numeric_end, valid_host_address};
use crate::discovery::dns;
use crate::limits::{CHECK_PATH_BYTES_MAX, CHECK_QUERY_BYTES_MAX};

/// The port of servers of the DNS.
const DNS_PORT: u16 = 53;
/// Largest number of characters of a refused check that its error shows.
const SHOWN_MAX: usize = 80;
/// The names of all kinds, as they are typed.
const KINDS: [&str; 7] = ["dns", "tcp", "tls", "http", "https", "icmp", "udp"];
/// Every form of a check.
const FORMS: &str = "[NAME=]dns:NAME[@SERVER[:PORT]], tcp:HOST:PORT, tls:HOST:PORT, http://HOST[:PORT]/PATH, \
                     https://HOST[:PORT]/PATH, icmp:HOST or udp:HOST:PORT";

/// Why a check is refused, in one line: what was typed, without its secrets, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad check {shown:?}: {reason}; accepted: {accepted}")]
pub struct CheckSpecError {
    shown: String,
    reason: String,
    accepted: String,
}

/// What is wrong, and what is accepted instead.
struct RefusedSpec {
    reason: String,
    accepted: String,
}

fn refused<T>(reason: impl Into<String>, accepted: impl Into<String>) -> Result<T, RefusedSpec> {
    Err(RefusedSpec { reason: reason.into(), accepted: accepted.into() })
}

impl FromStr for CheckSpec {
    type Err = CheckSpecError;

    /// Reads `[NAME=]KIND:…`. The NAME is the host by default: without the dot of an absolute name,
    /// and with `-` for each `:` of an IPv6 address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|RefusedSpec { reason, accepted }| CheckSpecError { shown: shown(text), reason, accepted })
    }
}

/// Returns the text without what may be secret. `@` stands behind user information, except of
/// `dns:`, and `?` and `#` stand before what is never shown.
fn shown(text: &str) -> String {
    let (kind, of_kind) = split_name(text).1.split_once(':').unwrap_or_default();
    let names_server = kind == "dns" && !of_kind.contains(['/', '?', '#']);
    let public = match text.find(['?', '#']) {
        _ if text.contains('@') && !names_server => {
            // NAME and KIND alone, if they are known to be these.
            if KINDS.contains(&kind) { text.len() - of_kind.len() } else { 0 }
        }
        Some(at) => at,
        None => text.len(),
    };
    let mut shown: String = text[..public].chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Splits `NAME=` off.
fn split_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, rest)) if !name.contains(':') => (Some(name), rest),
        _ => (None, text),
    }
}

fn parse(text: &str) -> Result<CheckSpec, RefusedSpec> {
    let (name, rest) = split_name(text);
    let Some((kind, of_kind)) = rest.split_once(':') else {
        return refused("it has no KIND", FORMS);
    };
    let (host, target) = match kind {
        "dns" => dns_target(of_kind)?,
        "tcp" => host_and(of_kind, "tcp:HOST:PORT", CheckTarget::Tcp)?,
        "tls" => host_and(of_kind, "tls:HOST:PORT", CheckTarget::Tls)?,
        "udp" => host_and(of_kind, "udp:HOST:PORT", CheckTarget::Udp)?,
        "icmp" => {
            let host = host(of_kind, "icmp:HOST")?;
            (default_name(&host), CheckTarget::Icmp(host))
        }
        "http" => url_target(of_kind, false)?,
        "https" => url_target(of_kind, true)?,
        _ => return refused("its KIND is not known", FORMS),
    };
    let name = match name {
        Some(name) if is_check_name(name) => name.into(),
        None if is_check_name(&host) => host,
        Some(_) => return refused("its NAME cannot be a label", name_form()),
        None => return refused("its host is too long to be its NAME", format!("NAME= before it, {}", name_form())),
    };
    Ok(CheckSpec { name, target })
}

fn name_form() -> String {
    format!("a NAME of 1 to {CHECK_NAME_BYTES_MAX} characters, a-z, A-Z, 0-9, '.', '_' and '-'")
}

/// Returns the NAME of a check of this host that was given none.
fn default_name(host: &Host) -> Box<str> {
    match host {
        Host::Address(address) => address.to_string().replace(':', "-").into(),
        Host::Name(name) => name.strip_suffix('.').unwrap_or(name).into(),
    }
}

fn host_and(
    text: &str,
    form: &str,
    target: impl FnOnce(HostPort) -> CheckTarget,
) -> Result<(Box<str>, CheckTarget), RefusedSpec> {
    let place = host_port(text, None, form)?;
    Ok((default_name(&place.host), target(place)))
}

fn dns_target(text: &str) -> Result<(Box<str>, CheckTarget), RefusedSpec> {
    const FORM: &str = "dns:NAME[@SERVER[:PORT]], SERVER is an address";
    let (name, server) = text.split_once('@').map_or((text, None), |(name, server)| (name, Some(server)));
    let Host::Name(name) = host(name, FORM)? else {
        return refused("an address has no records of the DNS", FORM);
    };
    let server = match server.map(|server| host_port(server, Some(DNS_PORT), FORM)).transpose()? {
        None => None,
        Some(HostPort { host: Host::Address(address), port }) => Some(SocketAddr::new(address, port)),
        Some(_) => return refused("its SERVER is a name", FORM),
    };
    Ok((default_name(&Host::Name(name.clone())), CheckTarget::Dns { name, server }))
}

fn url_target(text: &str, is_secure: bool) -> Result<(Box<str>, CheckTarget), RefusedSpec> {
    let (form, port) = if is_secure { ("https://HOST[:PORT]/PATH", 443) } else { ("http://HOST[:PORT]/PATH", 80) };
    let Some(rest) = text.strip_prefix("//") else { return refused("it is not a URL", form) };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return refused("it has user information, and no credential is ever sent", form);
    }
    if path.contains('#') {
        return refused("it has a fragment, which no server gets", form);
    }
    if !is_url_text(path) {
        return refused("its path has a character that must be escaped, as %20", form);
    }
    let (plain, query) = path.split_once('?').unwrap_or((path, ""));
    if plain.len() > CHECK_PATH_BYTES_MAX || query.len() > CHECK_QUERY_BYTES_MAX {
        let longest = format!("a path of at most {CHECK_PATH_BYTES_MAX} bytes, and a query of {CHECK_QUERY_BYTES_MAX}");
        return refused("it is too long", longest);
    }
    let host = host_port(authority, Some(port), form)?;
    let path = if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
    Ok((default_name(&host.host), CheckTarget::Http { is_secure, host, path }))
}

/// Whether the text has only what a path and a query may have (RFC 3986, sections 3.3 and 3.4).
fn is_url_text(text: &str) -> bool {
    let is_escape =
        |at: usize| text.as_bytes().get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    text.bytes().enumerate().all(|(at, byte)| match byte {
        b'%' => is_escape(at),
        _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte),
    })
}

/// Reads `HOST:PORT`, or `HOST` if there is a default port.
fn host_port(text: &str, default: Option<u16>, form: &str) -> Result<HostPort, RefusedSpec> {
    let after_host = match text.rfind(']') {
        Some(bracket) => bracket + 1,
        None if text.parse::<Ipv6Addr>().is_ok() => text.len(),
        None => text.find(':').unwrap_or(text.len()),
    };
    let (name, behind) = text.split_at(after_host);
    let host = host(name, form)?;
    let port = match (behind.strip_prefix(':'), default) {
        (None, Some(port)) if behind.is_empty() => port,
        (None, _) => return refused("it has no port", form),
        (Some(digits), _) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => return refused("its port is not a number from 1 to 65535", form),
        },
    };
    Ok(HostPort { host, port })
}

fn host(text: &str, form: &str) -> Result<Host, RefusedSpec> {
    let address = |address: IpAddr| match valid_host_address(address) {
        Ok(address) => Ok(Host::Address(address)),
        Err(reason) => refused(reason, form),
    };
    if let Some(bracketed) = text.strip_prefix('[') {
        return match bracketed.strip_suffix(']').map(Ipv6Addr::from_str) {
            Some(Ok(inside)) => address(inside.into()),
            _ => refused("what is in brackets is no IPv6 address", form),
        };
    }
    if let Ok(found) = text.parse::<Ipv4Addr>() {
        return address(found.into());
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return refused("an IPv6 address stands in brackets", format!("{form}, such as [{text}]"));
    }
    match dns::check_name(text) {
        Ok(()) if !has_numeric_end(text) => Ok(Host::Name(text.into())),
        Ok(()) => refused("its host is neither an address nor a name", form),
        Err(error) => refused(format!("its host cannot be a name: {}", reason_of(&error)), form),
    }
}

/// Returns the reason alone: the name is shown already.
fn reason_of(error: &dns::ResolveError) -> &str {
    match error {
        dns::ResolveError::Name(_, reason) => reason,
        _ => "it is refused",
    }
}

impl fmt::Display for CheckSpec {
    /// Writes the name, and what is shown of the target.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.target)
    }
}

#[cfg(test)]
mod tests;
