//! The addresses that UDP and TCP probes come from.
//!
//! A peer answers UDP probes of members alone, and accepts their connections alone. So a probe must
//! come from the address that the list of members has. The kernel may prefer another address of the
//! interface, such as a temporary one or a second one of the same prefix.
//!
//! ICMP needs none of this: the kernel of the peer answers an echo request to whichever address it
//! came from.

use std::io;
use std::net::{IpAddr, UdpSocket};

/// The source address of each family, as far as it is not left to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// By family: IPv4 and IPv6.
    of_family: [Option<IpAddr>; 2],
}

impl Sources {
    /// Returns the sources of an agent that listens at `listen`. If this is one address, it is the
    /// source of its family. Otherwise it is the first of `of_pod` for each family, which is where
    /// peers reach us. An address that this host lacks is left out, with a warning in the log.
    pub fn new(listen: IpAddr, of_pod: &[IpAddr]) -> Self {
        // A socket can be bound to an address only if this host has it.
        Self::having(listen, of_pod, |address| UdpSocket::bind((address, 0)).map(drop))
    }

    fn having(listen: IpAddr, of_pod: &[IpAddr], check: impl Fn(IpAddr) -> io::Result<()>) -> Self {
        let mut sources = Self::default();
        if !listen.is_unspecified() {
            sources.of_family[usize::from(listen.is_ipv6())] = Some(listen);
            return sources;
        }
        for address in of_pod.iter().copied().filter(|address| !address.is_loopback() && !address.is_unspecified()) {
            let source = &mut sources.of_family[usize::from(address.is_ipv6())];
            if source.is_some() {
                continue;
            }
            match check(address) {
                Ok(()) => *source = Some(address),
                Err(error) => log::warn!("probes cannot come from {address} of --pod-addresses: {error}"),
            }
        }
        sources
    }

    /// Returns the source of a family. `None` if the kernel chooses it.
    pub const fn address(&self, over_ipv6: bool) -> Option<IpAddr> {
        self.of_family[over_ipv6 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn sources(listen: &str, of_pod: &[&str]) -> [Option<IpAddr>; 2] {
        let of_pod: Vec<IpAddr> = of_pod.iter().map(|text| ip(text)).collect();
        let check =
            |address| if address == ip("10.9.9.9") { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(()) };
        Sources::having(ip(listen), &of_pod, check).of_family
    }

    #[test]
    fn probes_come_from_the_first_address_of_the_pod_that_this_host_has() {
        let both = [Some(ip("10.0.0.1")), Some(ip("fd00::1"))];
        assert_eq!(sources("::", &["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"]), both);
        assert_eq!(sources("::", &["fd00::1", "127.0.0.1", "::1", "10.9.9.9", "10.0.0.1"]), both);
        assert_eq!(sources("0.0.0.0", &["fd00::1"]), [None, both[1]]);
        assert_eq!(sources("::", &["10.9.9.9"]), [None; 2], "left to the kernel");
        assert_eq!(sources("::", &[]), [None; 2]);
    }

    #[test]
    fn an_agent_that_listens_at_one_address_probes_from_there() {
        assert_eq!(sources("10.0.0.7", &["10.0.0.1", "fd00::1"]), [Some(ip("10.0.0.7")), None]);
        assert_eq!(sources("fd00::7", &[]), [None, Some(ip("fd00::7"))]);
    }

    #[test]
    fn an_address_of_another_host_is_left_out() {
        // RFC 5737: addresses for documentation, which no host has.
        assert_eq!(Sources::new(ip("::"), &[ip("192.0.2.1")]), Sources::default());
    }
}
