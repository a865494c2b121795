//! The two DNS messages that we need (RFC 1035 §4, RFC 6891): a question for A or AAAA, and its
//! answer. No I/O.
//!
//! Owner names in the answer are skipped, not read. A stub resolver gets one chain of aliases with
//! the addresses at its end. A name that is not decompressed cannot loop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of record type A.
pub const A: u16 = 1;
/// The number of record type AAAA (RFC 3596).
pub const AAAA: u16 = 28;
/// The response code NXDOMAIN: the name does not exist.
pub const NXDOMAIN: u8 = 3;
/// The response code FORMERR: the server does not understand the question.
pub const FORMERR: u8 = 1;
/// Largest UDP answer that we accept, in bytes (DNS flag day 2020: a size that is not fragmented).
pub const UDP_BYTES: u16 = 1_232;
const HEADER: usize = 12;
const INTERNET: u16 = 1;
/// The OPT record of a question.
const EDNS_BYTES: usize = 11;

/// The contents of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct DnsReply {
    /// The response code. 0 is success, [`NXDOMAIN`] means that there is no such
    /// name, others are failures.
    pub code: u8,
    /// The answer did not fit and must be requested by TCP.
    pub truncated: bool,
    /// The addresses of the requested type.
    pub addresses: Vec<IpAddr>,
    /// The shortest time to live of the records, in seconds.
    pub ttl: Option<u32>,
}

/// Encodes a name for the wire. A dot at the end is allowed and changes nothing.
///
/// # Errors
/// What is wrong with it.
pub fn encode_name(name: &str) -> Result<Vec<u8>, &'static str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        return Err("it is empty");
    }
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        if !(1..=63).contains(&label.len()) {
            return Err("a label is empty or longer than 63 bytes");
        }
        if !label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            return Err("a label holds other than a-z, 0-9, '-' and '_'");
        }
        wire.push(u8::try_from(label.len()).unwrap_or(0));
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    if wire.len() > 255 { Err("it is longer than 253 bytes") } else { Ok(wire) }
}

/// Makes a recursive question with EDNS. Without EDNS, an answer of more than 30 pods would always
/// need a second request by TCP.
pub fn query(id: u16, name: &[u8], kind: u16) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 15);
    // Recursion desired. One question, one additional record.
    for word in [id, 0x0100, 1, 0, 0, 1] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.extend_from_slice(name);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    // OPT record: the root's name, type 41, our UDP size as the class, no flags, no data.
    message.extend_from_slice(&[0, 0, 41]);
    message.extend_from_slice(&UDP_BYTES.to_be_bytes());
    message.extend_from_slice(&[0; 6]);
    message
}

/// Takes EDNS out of a question of [`query`].
pub fn without_edns(query: &mut Vec<u8>) {
    query.truncate(query.len().saturating_sub(EDNS_BYTES));
    if let Some(additional) = query.get_mut(10..HEADER) {
        additional.fill(0);
    }
}

/// Reads any bytes as the answer to a question with the same identifier and name.
#[cfg(feature = "fuzzing")]
pub fn fuzz_answer(message: &[u8]) {
    let id = word(message, 0).unwrap_or_default();
    for kind in [A, AAAA] {
        // The name that the corpus uses.
        let Ok(name) = encode_name("kube-canary.monitoring.svc.cluster.local.") else { return };
        let query = query(id, &name, kind);
        assert!(parse(message, &query).is_none_or(|_| parse_head(message, &query).is_some()));
    }
}

/// Reads the head of the answer to `query`, and no addresses. None if it is not that: another id or
/// question (forged, or late), or malformed.
pub fn parse_head(message: &[u8], query: &[u8]) -> Option<DnsReply> {
    let question_end = question_end(query)?;
    let asked = query.get(HEADER..question_end)?;
    let flags = word(message, 2)?;
    let repeats_question = match word(message, 4)? {
        // Of an error, some servers send the header alone.
        0 => message.len() >= HEADER && message[3] & 0x0f != 0,
        1 => message.get(HEADER..question_end)?.eq_ignore_ascii_case(asked),
        _ => false,
    };
    let is_answer = message.get(..2)? == query.get(..2)? && flags & 0x8000 != 0 && repeats_question;
    is_answer.then(|| DnsReply {
        code: message[3] & 0x0f,
        truncated: flags & 0x0200 != 0,
        addresses: Vec::new(),
        ttl: None,
    })
}

/// Reads the answer to `query`. None as for [`parse_head`].
pub fn parse(message: &[u8], query: &[u8]) -> Option<DnsReply> {
    let mut reply = parse_head(message, query)?;
    if reply.truncated || word(message, 4)? == 0 {
        return Some(reply);
    }
    let mut at = question_end(query)?;
    let kind = word(query, at - 4)?;
    for _ in 0..word(message, 6)? {
        at += skip_name(message.get(at..)?)?;
        let (record, class) = (word(message, at)?, word(message, at + 2)?);
        let ttl = u32::from_be_bytes(message.get(at + 4..at + 8)?.try_into().ok()?);
        let length = usize::from(word(message, at + 8)?);
        let data = message.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        if record != kind || class != INTERNET {
            continue;
        }
        let address = match kind {
            A => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?)),
            _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)),
        };
        reply.addresses.push(address);
        reply.ttl = Some(reply.ttl.map_or(ttl, |known| known.min(ttl)));
    }
    Some(reply)
}

/// Returns where the question of a query ends.
fn question_end(query: &[u8]) -> Option<usize> {
    Some(HEADER + skip_name(query.get(HEADER..)?)? + 4)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Returns the length of the name at the start: labels up to the root or to a pointer.
fn skip_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an answer to `query` with these records after an alias, all names compressed.
    fn answer(query: &[u8], flags: u16, records: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut message = query[..query.len() - 11].to_vec();
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        message[6..8].copy_from_slice(&u16::try_from(records.len() + 1).unwrap().to_be_bytes());
        message[10..12].copy_from_slice(&[0, 0]);
        message.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 1, 0, 4, 1, b'x', 0xc0, 12]);
        for (n, record) in records.iter().enumerate() {
            message.extend_from_slice(&[0xc0, 12]);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&[0, 1, 0, 0, 0, 30 - u8::try_from(n).unwrap(), 0]);
            message.push(u8::try_from(record.len()).unwrap());
            message.extend_from_slice(record);
        }
        message
    }

    #[test]
    fn addresses_of_both_families_are_read_past_an_alias_with_the_shortest_time_to_live() {
        let name = encode_name("canary.ns.svc").unwrap();
        let v4 = query(7, &name, A);
        let reply = parse(&answer(&v4, 0x8180, &[&[10, 0, 0, 1], &[10, 0, 0, 2]], A), &v4).unwrap();
        assert_eq!(reply.addresses, ["10.0.0.1", "10.0.0.2"].map(|a| a.parse::<IpAddr>().unwrap()));
        assert_eq!((reply.ttl, reply.code, reply.truncated), (Some(29), 0, false));
        let v6 = query(7, &name, AAAA);
        let address: Ipv6Addr = "fd00::1".parse().unwrap();
        let reply = parse(&answer(&v6, 0x8180, &[&address.octets()], AAAA), &v6).unwrap();
        assert_eq!(reply.addresses, [IpAddr::from(address)]);
        assert!(parse(&answer(&v4, 0x8380, &[], A), &v4).unwrap().truncated);
        assert_eq!(parse(&answer(&v4, 0x8183, &[], A), &v4).unwrap().code, NXDOMAIN);
    }

    #[test]
    fn an_error_may_be_a_header_alone() {
        let name = encode_name("canary").unwrap();
        let mut asked = query(7, &name, A);
        let header = |code: u8| [0, 7, 0x80, code, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(parse(&header(FORMERR), &asked).map(|reply| reply.code), Some(FORMERR));
        assert_eq!(parse(&header(0), &asked), None, "no answer to any question");
        assert_eq!(parse(&header(FORMERR)[..11], &asked), None);
        assert_eq!(parse(&header(FORMERR), &query(8, &name, A)), None, "another id");
        without_edns(&mut asked);
        assert_eq!(asked, [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &name[..], &[0, 1, 0, 1]].concat());
    }

    #[test]
    fn messages_that_do_not_answer_the_question_are_refused() {
        let name = encode_name("canary").unwrap();
        let asked = query(7, &name, A);
        let good = answer(&asked, 0x8180, &[&[10, 0, 0, 1]], A);
        assert!(parse(&good, &asked).is_some());
        assert!(parse(&good, &query(8, &name, A)).is_none(), "another id");
        assert!(parse(&good, &query(7, &name, AAAA)).is_none(), "another type");
        assert!(parse(&good, &query(7, &encode_name("canarz").unwrap(), A)).is_none(), "another name");
        assert!(parse(&asked, &asked).is_none(), "a question");
        for end in 0..good.len() {
            assert!(parse(&good[..end], &asked).is_none(), "cut at {end}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 63, 64, 192, 255] {
                let mut bad = good.clone();
                bad[at] = value;
                // Any result is fine, as long as the parser returns.
                let _ = parse(&bad, &asked);
            }
        }
    }

    #[test]
    fn names_that_do_not_fit_the_wire_are_refused() {
        assert_eq!(encode_name("a.bc.").unwrap(), b"\x01a\x02bc\0");
        let long = vec!["x".repeat(63); 4].join(".");
        for bad in ["", ".", "a..b", ".a", "a b", "ä", &"x".repeat(64), &long] {
            assert!(encode_name(bad).is_err(), "{bad:?}");
        }
    }
}
