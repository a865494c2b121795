//! STAMP packets: the requests that we write, and the answers that we read.
//!
//! A request (RFC 8762, section 4.2.1, with the SSID of RFC 8972, section 3):
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | sequence number of the session |
//! | 4–11 | timestamp (T1) |
//! | 12–13 | Error Estimate |
//! | 14–15 | SSID |
//! | 16–43 | zero |
//! | 44–47 | flags, type 1 (Extra Padding) and length of the TLV |
//! | 48–71 | its value: the 24 bytes by which `ProbeKey` recognizes a probe |
//!
//! A usual request to a node whose name is known has another TLV behind it, the question which
//! node answers:
//!
//! | bytes | |
//! |---|---|
//! | 72–75 | flags, type 252 (private use: RFC 8972, section 8.2.1) and length of the TLV |
//! | 76–83 | zero; in the answer the hash of the node's name, as reports have it |
//!
//! A reflector of another program, or of an earlier version, returns it as it is, with the flag
//! that says that it was not understood.
//!
//! An answer (section 4.3.1) differs in its first 44 bytes, and copies the TLVs:
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | the reflector's count of the answers of this session, from 0 |
//! | 4–11 | time at which the answer was written (T3) |
//! | 12–13 | Error Estimate of the reflector |
//! | 14–15 | SSID |
//! | 16–23 | time at which the request arrived (T2) |
//! | 24–37 | bytes 0–13 of the request |
//! | 38–39 | zero |
//! | 40 | time to live of the request as it arrived |
//! | 41–43 | zero |
//!
//! All numbers are big-endian.

use super::time::{ErrorEstimate, NtpTime};
use crate::limits::{DWELL_PLAUSIBLE_MAX, PAYLOAD_BYTES_MIN};
use crate::units::Nanos;

/// Bytes of a packet without TLVs.
pub const BASE_BYTES: usize = 44;
/// Bytes of the header of a TLV: flags, type, and length of the value.
pub const TLV_HEADER_BYTES: usize = 4;
/// Bytes of our padding: the identity of a probe.
pub const PADDING_BYTES: usize = PAYLOAD_BYTES_MIN;
/// Bytes of a usual request, and of its answer.
pub const REQUEST_BYTES: usize = BASE_BYTES + TLV_HEADER_BYTES + PADDING_BYTES;
/// Bytes of the question which node answers, a TLV.
pub const QUESTION_BYTES: usize = TLV_HEADER_BYTES + 8;
/// Bytes of a usual request that asks which node answers.
pub const ASKING_REQUEST_BYTES: usize = REQUEST_BYTES + QUESTION_BYTES;
/// Bytes of an extra request of a flow. It is longer, so the reflector does not count it among the
/// usual ones that it has heard, and its sender does not count it among those it has sent.
pub const EXTRA_REQUEST_BYTES: usize = REQUEST_BYTES + 4;

/// Bytes of the request of a check: a usual one that asks which node answers, and an Extra Padding
/// without a value. By its length the reflector does not count it among the probes of a member.
pub const CHECK_REQUEST_BYTES: usize = ASKING_REQUEST_BYTES + TLV_HEADER_BYTES;

/// Flag of a TLV: the reflector did not understand it. Senders set it, so it stays set if the
/// reflector does not know TLVs at all.
pub(super) const UNRECOGNIZED: u8 = 0x80;
/// Flag of a TLV: its length is wrong.
pub(super) const MALFORMED: u8 = 0x40;
/// Flag of a TLV: the integrity of the TLVs could not be verified.
const INTEGRITY: u8 = 0x20;
/// Type of the Extra Padding TLV.
pub(super) const EXTRA_PADDING: u8 = 1;
/// Type of the TLV that asks for the name of the node.
pub(super) const NODE: u8 = 252;

/// Writes a request into all of `out`.
///
/// Its length is that of the request: [`REQUEST_BYTES`], or more for an extra one and for a
/// probe of the path MTU. The one TLV reaches to the end. After `padding` it has a fixed pattern.
///
/// # Panics
/// If `out` is shorter than [`REQUEST_BYTES`], or longer than a UDP datagram can be.
pub fn write_request(
    out: &mut [u8],
    sequence: u32,
    ssid: u16,
    at: NtpTime,
    error: ErrorEstimate,
    padding: &[u8; PADDING_BYTES],
) {
    let (head, rest) = out.split_first_chunk_mut::<REQUEST_BYTES>().expect("room for a request");
    let value_bytes = u16::try_from(PADDING_BYTES + rest.len()).expect("at most a UDP datagram");
    head[..4].copy_from_slice(&sequence.to_be_bytes());
    head[4..12].copy_from_slice(&at.to_bytes());
    head[12..14].copy_from_slice(&error.to_bytes());
    head[14..16].copy_from_slice(&ssid.to_be_bytes());
    head[16..BASE_BYTES].fill(0);
    head[44] = UNRECOGNIZED;
    head[45] = EXTRA_PADDING;
    head[46..48].copy_from_slice(&value_bytes.to_be_bytes());
    head[48..].copy_from_slice(padding);
    #[expect(clippy::cast_possible_truncation, reason = "a pattern of the low bytes of the index")]
    rest.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
}

/// Writes the question which node answers, which follows a request.
pub const fn write_question(out: &mut [u8; QUESTION_BYTES]) {
    *out = [UNRECOGNIZED, NODE, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
}

/// Writes the request of a check.
pub fn write_check_request(
    out: &mut [u8; CHECK_REQUEST_BYTES],
    sequence: u32,
    ssid: u16,
    at: NtpTime,
    padding: &[u8; PADDING_BYTES],
) {
    let (request, rest) = out.split_at_mut(REQUEST_BYTES);
    write_request(request, sequence, ssid, at, ErrorEstimate::UNKNOWN, padding);
    if let Some((question, end)) = rest.split_first_chunk_mut() {
        write_question(question);
        end.copy_from_slice(&[UNRECOGNIZED, EXTRA_PADDING, 0, 0]);
    }
}

/// The node that sent an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The request did not ask.
    Unasked,
    /// The reflector does not know the question.
    Unknown,
    /// The node whose name has this hash.
    Node(u64),
}

/// Whether a request, or an answer, has the question behind our padding.
pub(super) fn asks(packet: &[u8]) -> bool {
    let question = packet.get(REQUEST_BYTES..).and_then(<[u8]>::first_chunk::<QUESTION_BYTES>);
    question.is_some_and(|question| question[1..TLV_HEADER_BYTES] == [NODE, 0, 8])
}

fn named(packet: &[u8]) -> Named {
    let flags = packet.get(REQUEST_BYTES).copied().unwrap_or_default();
    match field(packet, REQUEST_BYTES + TLV_HEADER_BYTES).filter(|_| asks(packet)) {
        None => Named::Unasked,
        Some(hash) if flags & (UNRECOGNIZED | MALFORMED | INTEGRITY) == 0 => Named::Node(u64::from_be_bytes(hash)),
        Some(_) => Named::Unknown,
    }
}

/// An answer to one of our requests, as its reflector wrote it. Only the padding can prove that the
/// request was ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampReply<'a> {
    /// Number of answers that the reflector had sent in this session before this one. A reflector
    /// without state copies the sequence number of the request.
    pub count: u32,
    /// When the request arrived at the reflector (T2), by the reflector's clock.
    pub received_at: NtpTime,
    /// When the answer left (T3), by the reflector's clock.
    pub reflected_at: NtpTime,
    /// Error Estimate of the reflector.
    pub error: ErrorEstimate,
    /// SSID of the session. Reflectors without RFC 8972 return 0.
    pub ssid: u16,
    /// Sequence number of the request.
    pub sender_sequence: u32,
    /// Time to live or hop limit of the request as it arrived. 0 if the reflector does not know it.
    pub sender_ttl: u8,
    /// The first bytes of the padding of the request, if the answer has them.
    pub padding: Option<&'a [u8; PADDING_BYTES]>,
    /// The node that sent it. Only with our padding does it mean anything.
    pub named: Named,
}

impl<'a> StampReply<'a> {
    /// Reads the UDP payload of an answer. `None` if it is too short to be one. Reserved bytes are
    /// ignored, as the RFCs demand.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (base, tlvs) = bytes.split_first_chunk::<BASE_BYTES>()?;
        let error = ErrorEstimate::from_bytes(field(base, 12)?);
        Some(Self {
            count: u32::from_be_bytes(field(base, 0)?),
            received_at: NtpTime::read(field(base, 16)?, error),
            reflected_at: NtpTime::read(field(base, 4)?, error),
            error,
            ssid: u16::from_be_bytes(field(base, 14)?),
            sender_sequence: u32::from_be_bytes(field(base, 24)?),
            sender_ttl: base[40],
            padding: padding(tlvs),
            named: named(bytes),
        })
    }

    /// Returns how long the request was at the reflector: T3 - T2. `None` if that is negative or
    /// longer than [`DWELL_PLAUSIBLE_MAX`]: the reflector's clock was stepped, or it lies.
    pub fn dwell(&self) -> Option<Nanos> {
        self.reflected_at.since(self.received_at).filter(|dwell| *dwell <= DWELL_PLAUSIBLE_MAX.into())
    }
}

/// Returns the first bytes of the padding, if the first TLV is whole and has them. Reflectors keep
/// the order.
///
/// The flag for a TLV that was not understood is ignored here, although RFC 8972 lets such TLVs be
/// skipped. A reflector of RFC 8762 alone copies it as it was sent, and a copy is all that we ask
/// for.
fn padding(tlvs: &[u8]) -> Option<&[u8; PADDING_BYTES]> {
    let ([flags, kind, length @ ..], value) = tlvs.split_first_chunk::<TLV_HEADER_BYTES>()?;
    let intact = flags & (MALFORMED | INTEGRITY) == 0;
    let value = value.get(..usize::from(u16::from_be_bytes(*length)))?;
    if intact && *kind == EXTRA_PADDING { value.first_chunk() } else { None }
}

/// Returns the `N` bytes at `at`.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PADDING: [u8; PADDING_BYTES] = *b"the identity of a probe!";
    const T1: Nanos = Nanos(1_795_467_890_123_456_789);

    fn request(bytes: usize) -> Vec<u8> {
        let mut out = vec![0xaa; bytes];
        write_request(&mut out, 0x0102_0304, 0x5678, NtpTime::from_unix(T1), ErrorEstimate::UNKNOWN, &PADDING);
        out
    }

    /// An answer to [`request`], as a reflector would write it that had the request for `dwell`.
    fn answer(request: &[u8], dwell: i64) -> Vec<u8> {
        let t2 = T1.plus(Nanos(50_000));
        let t3 = Nanos(t2.0.checked_add_signed(dwell).unwrap());
        let mut out = request.to_vec();
        out[..4].copy_from_slice(&7_u32.to_be_bytes());
        out[4..12].copy_from_slice(&NtpTime::from_unix(t3).to_bytes());
        out[12..14].copy_from_slice(&ErrorEstimate::new(Nanos(1_000), true).to_bytes());
        out[16..24].copy_from_slice(&NtpTime::from_unix(t2).to_bytes());
        out[24..38].copy_from_slice(&request[..14]);
        out[40] = 63;
        out[44] = 0;
        out
    }

    #[test]
    fn a_request_has_the_bytes_of_the_rfcs() {
        let bytes = request(REQUEST_BYTES);
        let seconds = u32::try_from(T1.0 / 1_000_000_000 + 2_208_988_800).unwrap();
        let expected = [
            &[1, 2, 3, 4][..],
            &seconds.to_be_bytes(),
            // 0.123456789 × 2^32, rounded.
            &530_242_871_u32.to_be_bytes(),
            &[63, 255, 0x56, 0x78],
            &[0; 28],
            &[0x80, 1, 0, 24],
            &PADDING,
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_large_request_is_one_padding_to_its_end() {
        let bytes = request(8_972);
        assert_eq!(bytes[44..48], [0x80, 1, 0x22, 0xdc], "8,924 bytes");
        assert_eq!(bytes[48..72], PADDING);
        assert_eq!(bytes[72..], (0..8_900).map(|i| u8::try_from(i % 256).unwrap()).collect::<Vec<_>>());
        assert_eq!(bytes[..44], request(REQUEST_BYTES)[..44]);
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let bytes = answer(&request(REQUEST_BYTES), 250_000_000);
        let reply = StampReply::read(&bytes).unwrap();
        let expected = StampReply {
            count: 7,
            received_at: NtpTime::from_unix(T1.plus(Nanos(50_000))),
            reflected_at: NtpTime::from_unix(T1.plus(Nanos(250_050_000))),
            error: ErrorEstimate::new(Nanos(1_000), true),
            ssid: 0x5678,
            sender_sequence: 0x0102_0304,
            sender_ttl: 63,
            padding: Some(&PADDING),
            named: Named::Unasked,
        };
        assert_eq!(reply, expected);
        assert!(reply.dwell().unwrap().0.abs_diff(250_000_000) <= 1, "{:?}", reply.dwell());
    }

    #[test]
    fn an_answer_names_its_node_if_the_reflector_knows_the_question() {
        let mut asking = request(ASKING_REQUEST_BYTES);
        assert_eq!(StampReply::read(&answer(&asking, 0)).unwrap().named, Named::Unasked, "all of it is padding");
        asking[46..48].copy_from_slice(&24_u16.to_be_bytes());
        write_question(asking.last_chunk_mut().unwrap());
        assert!(asks(&asking) && !asks(&asking[..ASKING_REQUEST_BYTES - 1]) && !asks(&request(REQUEST_BYTES)));
        let mut bytes = answer(&asking, 0);
        assert_eq!(StampReply::read(&bytes).unwrap().named, Named::Unknown, "it is returned as it was sent");
        bytes[REQUEST_BYTES..].copy_from_slice(&[0, NODE, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(StampReply::read(&bytes).unwrap().named, Named::Node(7));
        for flags in [UNRECOGNIZED, MALFORMED, INTEGRITY] {
            bytes[REQUEST_BYTES] = flags;
            assert_eq!(StampReply::read(&bytes).unwrap().named, Named::Unknown);
        }
        for len in BASE_BYTES..ASKING_REQUEST_BYTES {
            assert_eq!(StampReply::read(&bytes[..len]).unwrap().named, Named::Unasked, "{len}");
        }
    }

    #[test]
    fn the_request_of_a_check_asks_and_is_longer_than_a_probe() {
        let mut bytes = [0xaa; CHECK_REQUEST_BYTES];
        write_check_request(&mut bytes, 0x0102_0304, 0x5678, NtpTime::from_unix(T1), &PADDING);
        assert_eq!(bytes[..REQUEST_BYTES], request(REQUEST_BYTES));
        assert_eq!(bytes[ASKING_REQUEST_BYTES..], [UNRECOGNIZED, EXTRA_PADDING, 0, 0]);
        assert!(asks(&bytes));
    }

    #[test]
    fn a_dwell_time_that_is_negative_or_absurd_is_none() {
        let hour = 3_600_000_000_000;
        for (dwell, plausible) in [(-1, false), (-hour, false), (0, true), (hour, true), (hour + 1_000, false)] {
            let bytes = answer(&request(REQUEST_BYTES), dwell);
            assert_eq!(StampReply::read(&bytes).unwrap().dwell().is_some(), plausible, "{dwell}");
        }
    }

    #[test]
    fn a_reflector_that_writes_the_format_of_ptp_is_understood() {
        let mut bytes = answer(&request(REQUEST_BYTES), 0);
        bytes[12] |= 0x40;
        bytes[4..12].copy_from_slice(&[0x6a, 0xfd, 0x2b, 0x81, 0, 0, 0, 5]);
        bytes[16..24].copy_from_slice(&[0x6a, 0xfd, 0x2b, 0x80, 0x3b, 0x9a, 0xc9, 0xff]);
        let dwell = StampReply::read(&bytes).unwrap().dwell().unwrap();
        assert!(dwell.0.abs_diff(6) <= 1, "{dwell:?}");
    }

    #[test]
    fn padding_is_read_only_if_it_is_whole_and_the_reflector_found_no_fault() {
        let good = answer(&request(REQUEST_BYTES), 0);
        let read = |bytes: &[u8]| StampReply::read(bytes).map(|reply| reply.padding.copied());
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes)
        };
        assert_eq!(read(&good), Some(Some(PADDING)));
        assert_eq!(with(44, UNRECOGNIZED), Some(Some(PADDING)), "a reflector that knows no TLVs");
        assert_eq!(with(44, 0x1f), Some(Some(PADDING)), "reserved flags are ignored");
        assert_eq!((with(44, MALFORMED), with(44, INTEGRITY)), (Some(None), Some(None)));
        assert_eq!((with(45, 2), with(47, 23), with(47, 25)), (Some(None), Some(None), Some(None)));
        for len in BASE_BYTES..REQUEST_BYTES {
            assert_eq!(read(&good[..len]), Some(None), "{len} bytes");
        }
        for len in 0..BASE_BYTES {
            assert_eq!(read(&good[..len]), None, "{len} bytes");
        }
        assert_eq!(read(&answer(&request(100), 0)), Some(Some(PADDING)));
    }
}
