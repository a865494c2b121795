//! Control messages (`struct cmsghdr`) as the kernel of a 64-bit system writes and reads them.
//!
//! A message is its length, level and type in 16 bytes, and its data, padded to whole words. Blocks
//! are made of words, so that each message is aligned.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};

use crate::name::Name;

/// Bytes of the head of a message.
const HEAD_BYTES: usize = 16;
const WORD_BYTES: usize = size_of::<u64>();

/// Returns the number of words of a block that holds messages with data of these lengths.
pub const fn words<const N: usize>(data_bytes: [usize; N]) -> usize {
    let (mut words, mut i) = (0, 0);
    while i < N {
        words += (HEAD_BYTES + data_bytes[i]).div_ceil(WORD_BYTES);
        i += 1;
    }
    words
}

/// Bytes of a time to live, which is an `int`.
pub const TTL_BYTES: usize = 4;
/// Bytes of the three timespecs of `SCM_TIMESTAMPING`.
pub const STAMP_BYTES: usize = 48;
/// Bytes of `struct in6_pktinfo`. `struct in_pktinfo` is smaller.
pub const LOCAL_BYTES: usize = 20;
/// Bytes of `struct sock_extended_err` and the offender behind it.
pub const ERROR_BYTES: usize = 16 + Name::V6_BYTES as usize;
/// Bytes of the flags by which one packet is stamped as it leaves.
pub const FLAGS_BYTES: usize = 4;

/// A control message of one packet, without its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Protocol level, such as `SOL_SOCKET`.
    pub level: c_int,
    /// Type within the level.
    pub kind: c_int,
    /// Data, without padding.
    pub data: &'a [u8],
}

/// Returns the messages of a block of which the kernel has filled the front. A message that is cut
/// off, or says an impossible length, ends them.
pub fn messages(mut block: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let (head, _) = block.split_first_chunk::<HEAD_BYTES>()?;
        let length = usize::from_ne_bytes(*head.first_chunk()?);
        let level = c_int::from_ne_bytes(*head[8..].first_chunk()?);
        let kind = c_int::from_ne_bytes(*head[12..].first_chunk()?);
        let data = block.get(HEAD_BYTES..length)?;
        block = block.get(length.checked_next_multiple_of(WORD_BYTES)?..).unwrap_or_default();
        Some(Message { level, kind, data })
    })
}

/// Writes messages into a block that lives as long as the call to send.
#[derive(Debug)]
pub struct Writer<'a> {
    block: &'a mut [u64],
    words: usize,
}

impl<'a> Writer<'a> {
    /// Starts with an empty block.
    pub const fn new(block: &'a mut [u64]) -> Self {
        Self { block, words: 0 }
    }

    /// Appends a message with `data` of at most 24 bytes. The block must have room for it.
    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let mut words = [[0_u8; WORD_BYTES]; 5];
        let bytes = words.as_flattened_mut();
        let length = HEAD_BYTES + data.len();
        bytes[..8].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&level.to_ne_bytes());
        bytes[12..HEAD_BYTES].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEAD_BYTES..length].copy_from_slice(data);
        let count = length.div_ceil(WORD_BYTES);
        for (to, word) in self.block[self.words..][..count].iter_mut().zip(words) {
            *to = u64::from_ne_bytes(word);
        }
        self.words += count;
    }

    /// Sets the time to live of a packet of this family.
    pub fn ttl(&mut self, over_ipv6: bool, ttl: u8) {
        let (level, kind) =
            if over_ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) } else { (libc::IPPROTO_IP, libc::IP_TTL) };
        self.push(level, kind, &c_int::from(ttl).to_ne_bytes());
    }

    /// Sets the source address of a packet. `scope` is the interface of a link-local address.
    pub fn source(&mut self, source: IpAddr, scope: u32) {
        match source {
            // `struct in_pktinfo`: an interface, the source, and an address that is ignored here.
            IpAddr::V4(v4) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&v4.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(v6) => {
                let mut info = [0; LOCAL_BYTES];
                info[..16].copy_from_slice(&v6.octets());
                info[16..].copy_from_slice(&scope.to_ne_bytes());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Makes the kernel stamp this packet as it leaves, if the socket returns timestamps at all.
    pub fn stamped(&mut self) {
        self.push(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &libc::SOF_TIMESTAMPING_TX_SOFTWARE.to_ne_bytes());
    }

    /// Returns the length of all messages.
    pub const fn bytes(&self) -> usize {
        self.words * WORD_BYTES
    }
}

/// What an entry on the error queue is about, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A packet that has left, with its timestamp.
    Departure,
    /// This host itself: the packet was not sent, or is larger than the route permits.
    Local,
    /// An ICMP error of either family.
    Icmp,
    /// Anything else, of later kernels.
    Other,
}

/// What the error queue has of a packet: `struct sock_extended_err` (ip(7)) with the address behind
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it is of IPv6.
    pub over_ipv6: bool,
    /// Type of the ICMP error.
    pub icmp_type: u8,
    /// Code of the ICMP error.
    pub icmp_code: u8,
    /// The next hop's MTU of an error that has one.
    pub info: u32,
    /// Which host says so, if it is known.
    pub offender: Option<IpAddr>,
}

/// What the kernel says of one packet, besides its bytes and timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Time to live or hop limit on arrival.
    pub ttl: Option<u8>,
    /// The address of this host that the packet was sent to.
    pub local: Option<IpAddr>,
    /// The entry of the error queue.
    pub error: Option<QueuedError>,
}

impl Facts {
    /// Reads the block of a packet.
    pub fn read(block: &[u8]) -> Self {
        let mut facts = Self::default();
        for Message { level, kind, data } in messages(block) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let ttl = data.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes));
                    facts.ttl = ttl.and_then(|ttl| u8::try_from(ttl).ok());
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    facts.local = data.get(8..).and_then(<[u8]>::first_chunk::<4>).map(|v4| (*v4).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    facts.local = data.first_chunk::<16>().map(|v6| (*v6).into());
                }
                (libc::IPPROTO_IP, libc::IP_RECVERR) => facts.error = queued_error(data, false),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => facts.error = queued_error(data, true),
                _ => {}
            }
        }
        facts
    }
}

fn queued_error(data: &[u8], over_ipv6: bool) -> Option<QueuedError> {
    // From linux/errqueue.h: errno, origin, type, code, padding, info, data.
    let ([_, _, _, _, origin, icmp_type, icmp_code, _, info @ .., _, _, _, _], offender) =
        data.split_first_chunk::<16>()?;
    let origin = match *origin {
        libc::SO_EE_ORIGIN_TIMESTAMPING => Origin::Departure,
        libc::SO_EE_ORIGIN_LOCAL => Origin::Local,
        libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => Origin::Icmp,
        _ => Origin::Other,
    };
    let offender = Name::from_bytes(offender).as_ref().and_then(Name::address).map(|offender| offender.ip());
    let info = u32::from_ne_bytes(*info);
    Some(QueuedError { origin, over_ipv6, icmp_type: *icmp_type, icmp_code: *icmp_code, info, offender })
}

/// Returns the scope of an address: the interface of a link-local one.
pub const fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut block = [u64::MAX; words([TTL_BYTES, LOCAL_BYTES, FLAGS_BYTES])];
        for (over_ipv6, address) in [(false, "192.0.2.7"), (true, "2001:db8::7")] {
            let address: IpAddr = address.parse().unwrap();
            let mut writer = Writer::new(&mut block);
            writer.ttl(over_ipv6, 3);
            writer.source(address, 0);
            writer.stamped();
            let length = writer.bytes();
            let block = bytes(&block[..length / 8]);
            let kinds: Vec<usize> = messages(&block).map(|message| message.data.len()).collect();
            assert_eq!(kinds, [4, if over_ipv6 { 20 } else { 12 }, 4]);
            let facts = Facts::read(&block);
            assert_eq!(facts.ttl, Some(3));
            // The kernel writes the destination into the other address of an `in_pktinfo`.
            assert_eq!(facts.local, Some(if over_ipv6 { address } else { [0, 0, 0, 0].into() }));
        }
    }

    #[test]
    fn a_block_that_is_cut_or_lies_about_its_lengths_ends_and_nothing_panics() {
        let mut block = [0; words([TTL_BYTES, LOCAL_BYTES])];
        let mut writer = Writer::new(&mut block);
        writer.ttl(false, 64);
        writer.source([192, 0, 2, 1].into(), 0);
        let block = bytes(&block);
        for cut in 0..block.len() {
            let facts = Facts::read(&block[..cut]);
            assert_eq!(facts.ttl.is_some(), cut >= 20, "{cut}");
        }
        for length in [0_usize, 1, 15, 16, 17, 4_096, usize::MAX] {
            let mut lying = block.clone();
            lying[..8].copy_from_slice(&length.to_ne_bytes());
            assert!(messages(&lying).count() <= 3, "{length}");
            Facts::read(&lying);
        }
    }

    #[test]
    fn an_icmp_error_is_read_with_the_host_that_says_so() {
        let mut data = vec![0; 32];
        data[4..7].copy_from_slice(&[libc::SO_EE_ORIGIN_ICMP, 11, 0]);
        data[8..12].copy_from_slice(&1_300_u32.to_ne_bytes());
        data[16..18].copy_from_slice(&2_u16.to_ne_bytes());
        data[20..24].copy_from_slice(&[10, 0, 3, 1]);
        let error = queued_error(&data, false).unwrap();
        assert_eq!((error.origin, error.icmp_type, error.info), (Origin::Icmp, 11, 1_300));
        assert_eq!(error.offender, Some([10, 0, 3, 1].into()));
        data[16] = 0;
        assert_eq!(queued_error(&data, false).unwrap().offender, None);
        assert!((0..16).all(|cut| queued_error(&data[..cut], false).is_none()));
    }
}
