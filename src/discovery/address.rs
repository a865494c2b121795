//! Which addresses may be probed at all, whatever source they come from.
//!
//! The traps:
//! * An IPv4-mapped IPv6 address (`::ffff:10.0.0.7`) is IPv4 on the wire. It would be probed with
//!   the wrong protocol.
//! * A link-local IPv6 address means another host on every link. The kernel sends nothing there
//!   without an interface, which no source gives.
//!
//! IPv4's link-local addresses (169.254.0.0/16) need no interface and are routed like any other. An
//! operator or an API server that lists one means it. Stricter rules hold for node addresses that a
//! peer reports (`underlay`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// A host: an address, or a name that is resolved when it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address, which needs no resolution.
    Address(IpAddr),
    /// A name of the DNS, relative to the search list of resolv.conf unless it ends in a dot.
    Name(Box<str>),
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
            Self::Address(address) => address.fmt(out),
            Self::Name(name) => out.write_str(name),
        }
    }
}

/// Returns the address in the form in which it is probed.
///
/// # Errors
/// Why it cannot be one host's address, as a clause.
pub fn valid_host_address(address: IpAddr) -> Result<IpAddr, &'static str> {
    let address = address.to_canonical();
    if address.is_unspecified() {
        return Err("the address is unspecified, which would ping the node itself");
    }
    if address.is_multicast() {
        return Err("the address is multicast");
    }
    if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err("the address is broadcast");
    }
    if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Err("the address is link-local, which needs an interface");
    }
    Ok(address)
}

/// Whether the last part of a name is a number. No top-level domain is one, so the name was
/// meant as an address.
pub fn has_numeric_end(name: &str) -> bool {
    // The dot of an absolute name ends no part.
    let name = name.strip_suffix('.').unwrap_or(name);
    name.rsplit('.').next().is_none_or(|last| last.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_host_are_probed_in_their_canonical_form() {
        let probed = |text: &str| valid_host_address(text.parse().unwrap()).map(|address| address.to_string());
        for (text, address) in [
            ("10.0.0.1", "10.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("169.254.7.7", "169.254.7.7"),
            ("fd00::1", "fd00::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(probed(text).unwrap(), address);
        }
        for (text, reason) in [
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("::ffff:0.0.0.0", "unspecified"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("fe80::1", "link-local"),
        ] {
            assert!(probed(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
