//! Names in `/etc/hosts`, for the commands that a user types. Discovery asks DNS alone: the file is
//! one machine's, and a mesh has many.
//!
//! Rejected: getaddrinfo. It blocks, so Ctrl-C would wait for its timeouts or for a thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str;

use super::AddressFamily;
use crate::discovery::address::valid_host_address;
use crate::limits::{HOSTS_ADDRESSES_MAX, HOSTS_FILE_BYTES_MAX};
use crate::sys::files;

const FILE: &str = "/etc/hosts";

/// Returns the addresses of a name in `/etc/hosts` of this family, in the order of the file. If the
/// file has none, `localhost` and the names below it have the loopback address (RFC 6761, 6.3).
///
/// # Errors
/// The file cannot be read, or is larger than [`HOSTS_FILE_BYTES_MAX`]. A missing file is no error.
pub fn addresses(name: &str, family: AddressFamily) -> io::Result<Vec<IpAddr>> {
    let text = match files::read(Path::new(FILE), HOSTS_FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let mut found = find(&text, name);
    found.retain(|address| family.accepts(*address));
    if found.is_empty() && is_localhost(name) {
        found.extend([IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
        found.retain(|address| family.accepts(*address));
    }
    Ok(found)
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// Finds the addresses of a name in the text of the file (hosts(5)). A line that cannot be read is
/// skipped, as every resolver does, and so is an address that is not one host's.
fn find(text: &[u8], name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let parse_line = |line: &[u8]| {
        let entry = str::from_utf8(line.split(|byte| *byte == b'#').next()?).ok()?;
        let mut words = entry.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|alias| alias.strip_suffix('.').unwrap_or(alias).eq_ignore_ascii_case(name)).then_some(())?;
        valid_host_address(address).ok()
    };
    let mut found = Vec::new();
    for address in text.split(|byte| *byte == b'\n').filter_map(parse_line) {
        if !found.contains(&address) && found.len() < HOSTS_ADDRESSES_MAX {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod's file, as kubelet writes it, with further lines of an operator.
    const POD: &[u8] = b"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n10.244.1.7\tcanary-x7k2p\n\n\
        10.0.0.5\tDB.example\tdb # the old one: cache\r\nfd00::5 db\n10.0.0.6 db.\n10.0.0.5 db\n\
        # 10.0.0.7 db\n10.0.0.8\nnonsense db\n0.0.0.0 db\nfe80::1 db\nfe80::1%eth0 db\n\
        \xff\xfe db\n10.0.0.9 latin # \xe9\n::ffff:10.0.0.10 mapped";

    fn found(name: &str) -> Vec<String> {
        find(POD, name).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_or_alias_has_the_addresses_of_both_families_in_their_order_and_once() {
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found("canary-x7k2p"), ["10.244.1.7"]);
        for name in ["db", "DB", "db."] {
            assert_eq!(found(name), ["10.0.0.5", "fd00::5", "10.0.0.6"], "{name}");
        }
        assert_eq!(found("db.EXAMPLE"), ["10.0.0.5"]);
        assert_eq!((found("latin"), found("mapped")), (vec!["10.0.0.9".into()], vec!["10.0.0.10".into()]));
    }

    #[test]
    fn comments_addresses_and_parts_of_names_are_no_names() {
        for name in ["cache", "the", "10.0.0.8", "example", "d", ""] {
            assert_eq!(found(name), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn a_name_on_very_many_lines_has_a_bounded_number_of_addresses() {
        let lines: Vec<String> = (1..=250).map(|last| format!("10.0.0.{last} many")).collect();
        assert_eq!(find(lines.join("\n").as_bytes(), "many").len(), HOSTS_ADDRESSES_MAX);
    }

    #[test]
    fn localhost_has_an_address_of_the_family_whatever_the_file_of_this_machine_says() {
        for (family, is_ipv6) in [(AddressFamily::Ipv4, false), (AddressFamily::Ipv6, true)] {
            let found = addresses("localhost", family).expect("a file that can be read");
            assert!(!found.is_empty() && found.iter().all(|address| address.is_ipv6() == is_ipv6), "{found:?}");
        }
    }

    #[test]
    fn localhost_and_names_below_it_are_loopback_without_an_entry() {
        for (name, expected) in [
            ("localhost", true),
            ("LocalHost.", true),
            ("a.localhost", true),
            ("localhost.example", false),
            ("notlocalhost", false),
            ("", false),
        ] {
            assert_eq!(is_localhost(name), expected, "{name}");
        }
    }
}
