//! The answers of the reflector: each is made of its request alone.
//!
//! An answer has the length of its request (RFC 8762, section 4.3: symmetrical packets) up to
//! [`STAMP_ANSWER_BYTES_MAX`]. A longer request probes the MTU of the path to us. It gets a small
//! answer, which the path back always lets through, so each direction is measured apart.

use super::packet::{
    BASE_BYTES, EXTRA_PADDING, MALFORMED, NODE, PADDING_BYTES, REQUEST_BYTES, TLV_HEADER_BYTES, UNRECOGNIZED,
};
use super::time::{ErrorEstimate, NtpTime};
use crate::limits::STAMP_ANSWER_BYTES_MAX;

/// Bytes of our TLV.
const TLV_BYTES: usize = TLV_HEADER_BYTES + PADDING_BYTES;
/// [`PADDING_BYTES`] as the length of a TLV.
#[expect(clippy::cast_possible_truncation, reason = "24")]
const PADDING_LENGTH: u16 = PADDING_BYTES as u16;
const _: () = assert!(REQUEST_BYTES <= STAMP_ANSWER_BYTES_MAX, "our own requests get symmetrical answers");

/// What an answer adds to its request.
#[derive(Clone, Copy, Debug)]
pub struct Reflection {
    /// When the request arrived (T2).
    pub received_at: NtpTime,
    /// When the answer leaves (T3).
    pub reflected_at: NtpTime,
    /// Error Estimate of our clock.
    pub error: ErrorEstimate,
    /// Time to live of the request as it arrived, 0 if unknown.
    pub ttl: u8,
    /// Hash of our node's name.
    pub node: u64,
}

/// Writes the answer to `request` into the beginning of `out`, and returns its length. `None` if
/// the request is shorter than a STAMP packet. It would get an answer that is longer.
pub(super) fn write(
    out: &mut [u8; STAMP_ANSWER_BYTES_MAX],
    request: &[u8],
    count: u32,
    with: &Reflection,
) -> Option<usize> {
    let (base, tlvs) = request.split_first_chunk::<BASE_BYTES>()?;
    out[..4].copy_from_slice(&count.to_be_bytes());
    out[4..12].copy_from_slice(&with.reflected_at.to_bytes());
    out[12..14].copy_from_slice(&with.error.to_bytes());
    out[14..16].copy_from_slice(&base[14..16]);
    out[16..24].copy_from_slice(&with.received_at.to_bytes());
    out[24..38].copy_from_slice(&base[..14]);
    out[38..BASE_BYTES].copy_from_slice(&[0, 0, with.ttl, 0, 0, 0]);
    let rest = &mut out[BASE_BYTES..];
    Some(if let Some(copy) = rest.get_mut(..tlvs.len()) {
        copy.copy_from_slice(tlvs);
        judge(copy, with.node);
        request.len()
    } else {
        shorten(rest, tlvs)
    })
}

/// Sets the time at which an answer leaves (T3). The answers of a batch are written first, and sent
/// together.
pub fn set_reflected_at(answer: &mut [u8], at: NtpTime) {
    if let Some(field) = answer.get_mut(4..12) {
        field.copy_from_slice(&at.to_bytes());
    }
}

/// Sets the flags of all TLVs, as a reflector must that knows Extra Padding and [`NODE`] alone (RFC
/// 8972, section 4), and answers the question which node answers. What the sender has set is
/// ignored. TLVs after a malformed one stay as they are.
fn judge(mut tlvs: &mut [u8], node: u64) {
    while let [flags, rest @ ..] = tlvs {
        *flags = if rest.first() == Some(&EXTRA_PADDING) { 0 } else { UNRECOGNIZED };
        if let [NODE, 0, 8, value @ ..] = &mut *rest
            && let Some(value) = value.first_chunk_mut()
        {
            (*flags, *value) = (0, node.to_be_bytes());
        }
        let next = match rest {
            [_, high, low, value @ ..] => value.get_mut(usize::from(u16::from_be_bytes([*high, *low]))..),
            _ => None,
        };
        let Some(next) = next else {
            *flags |= MALFORMED;
            return;
        };
        tlvs = next;
    }
}

/// Writes the first TLV with only the first [`PADDING_BYTES`] of its value, if it is an Extra
/// Padding that has them. Returns the length of the whole answer.
///
/// It is not checked whether the rest of the value is there: a buffer may have cut the request.
fn shorten(out: &mut [u8], tlvs: &[u8]) -> usize {
    let (Some(out), Some(tlv)) = (out.first_chunk_mut::<TLV_BYTES>(), tlvs.first_chunk::<TLV_BYTES>()) else {
        return BASE_BYTES;
    };
    let length = u16::from_be_bytes([tlv[2], tlv[3]]);
    if tlv[1] != EXTRA_PADDING || length < PADDING_LENGTH {
        return BASE_BYTES;
    }
    out.copy_from_slice(tlv);
    out[0] = 0;
    out[2..TLV_HEADER_BYTES].copy_from_slice(&PADDING_LENGTH.to_be_bytes());
    REQUEST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::udp::stamp::StampReply;
    use crate::prober::udp::stamp::packet::write_request;
    use crate::units::Nanos;

    const PADDING: [u8; PADDING_BYTES] = *b"the identity of a probe!";
    const NOW: Nanos = Nanos(1_795_467_890_123_456_789);

    fn reflection() -> Reflection {
        Reflection {
            received_at: NtpTime::from_unix(NOW),
            reflected_at: NtpTime::from_unix(NOW.plus(Nanos(1_000_000))),
            error: ErrorEstimate::new(Nanos(500_000), true),
            ttl: 61,
            node: 0x0102_0304_0506_0708,
        }
    }

    fn request(bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        write_request(&mut out, 9, 0x1234, NtpTime::from_unix(NOW), ErrorEstimate::UNKNOWN, &PADDING);
        out
    }

    fn answered(request: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0xaa; STAMP_ANSWER_BYTES_MAX];
        let bytes = write(&mut out, request, 4, &reflection())?;
        Some(out[..bytes].to_vec())
    }

    /// The TLVs of the answer to a request with these TLVs.
    fn reflected(tlvs: &[u8]) -> Vec<u8> {
        answered(&[&[0; BASE_BYTES], tlvs].concat()).unwrap()[BASE_BYTES..].to_vec()
    }

    #[test]
    fn an_answer_has_the_bytes_of_the_rfcs() {
        let mut request = request(REQUEST_BYTES);
        request[16..44].fill(0xee);
        let answer = answered(&request).unwrap();
        let expected = [
            &[0, 0, 0, 4][..],
            &reflection().reflected_at.to_bytes(),
            &reflection().error.to_bytes(),
            &[0x12, 0x34],
            &reflection().received_at.to_bytes(),
            &request[..14],
            &[0, 0, 61, 0, 0, 0],
            &[0, 1, 0, 24],
            &PADDING,
        ];
        assert_eq!(answer, expected.concat());
        let reply = StampReply::read(&answer).unwrap();
        assert_eq!((reply.count, reply.ssid, reply.sender_sequence, reply.sender_ttl), (4, 0x1234, 9, 61));
        assert_eq!((reply.padding, reply.error), (Some(&PADDING), reflection().error));
        assert!(reply.dwell().unwrap().0.abs_diff(1_000_000) <= 1);
    }

    #[test]
    fn the_time_of_departure_is_set_last() {
        let mut answer = answered(&request(REQUEST_BYTES)).unwrap();
        let at = NtpTime::from_unix(NOW.plus(Nanos(7_000_000)));
        set_reflected_at(&mut answer, at);
        assert!(StampReply::read(&answer).unwrap().dwell().unwrap().0.abs_diff(7_000_000) <= 1);
        answer[4..12].copy_from_slice(&reflection().reflected_at.to_bytes());
        assert_eq!(answer, answered(&request(REQUEST_BYTES)).unwrap(), "nothing else was changed");
        set_reflected_at(&mut [0; 11], at);
    }

    #[test]
    fn a_request_below_the_base_gets_none_and_a_usual_one_gets_an_answer_of_its_length() {
        for bytes in 0..BASE_BYTES {
            assert_eq!(answered(&vec![0; bytes]), None, "{bytes}");
        }
        for bytes in BASE_BYTES..=STAMP_ANSWER_BYTES_MAX {
            assert_eq!(answered(&vec![0; bytes]).unwrap().len(), bytes);
        }
    }

    #[test]
    fn a_large_request_gets_a_small_answer_that_proves_the_same() {
        for bytes in [STAMP_ANSWER_BYTES_MAX + 1, 1_472, 8_972, 65_507] {
            let large = request(bytes);
            let answer = answered(&large).unwrap();
            assert_eq!(answer, answered(&request(REQUEST_BYTES)).unwrap(), "{bytes}");
            assert_eq!(answered(&large[..=STAMP_ANSWER_BYTES_MAX]).unwrap(), answer, "as a buffer has cut it");
        }
        // Without such a padding the answer has none.
        let large = request(1_000);
        for tlv in [[0x80, 2, 3, 0xb8], [0x80, 1, 0, 23]] {
            let mut other = large.clone();
            other[44..48].copy_from_slice(&tlv);
            assert_eq!(answered(&other).unwrap().len(), BASE_BYTES, "{tlv:?}");
        }
    }

    #[test]
    fn flags_of_tlvs_say_what_was_understood() {
        // Extra Padding is understood, in any place and of any length. Type 2 (Location) is not.
        assert_eq!(reflected(&[0x80, 1, 0, 0]), [0, 1, 0, 0]);
        assert_eq!(
            reflected(&[0x80, 2, 0, 3, 7, 8, 9, 0x80, 1, 0, 2, 5, 6, 0x80, 1, 0, 0]),
            [0x80, 2, 0, 3, 7, 8, 9, 0, 1, 0, 2, 5, 6, 0, 1, 0, 0]
        );
        assert_eq!(reflected(&[0, 8, 0, 0]), [0x80, 8, 0, 0], "also if the sender did not set the flag");
        assert_eq!(reflected(&[0xff, 1, 0, 0, 0xff, 2, 0, 0]), [0, 1, 0, 0, 0x80, 2, 0, 0], "other flags are zero");
        assert_eq!(reflected(&[0; 6]), [0x80, 0, 0, 0, 0xc0, 0], "not a TLV");
    }

    #[test]
    fn the_question_which_node_answers_gets_the_name_of_our_node() {
        let hash = [1, 2, 3, 4, 5, 6, 7, 8];
        let asked = [&[0x80, 1, 0, 0, 0x80, 252, 0, 8][..], &[0; 8], &[0x80, 1, 0, 0]].concat();
        assert_eq!(reflected(&asked), [&[0, 1, 0, 0, 0, 252, 0, 8][..], &hash, &[0, 1, 0, 0]].concat());
        // Of another length it is not our question. Cut, it is none.
        assert_eq!(reflected(&[0x80, 252, 0, 2, 0, 0]), [0x80, 252, 0, 2, 0, 0]);
        assert_eq!(reflected(&[0x80, 252, 0, 8, 0, 0]), [0xc0, 252, 0, 8, 0, 0]);
    }

    #[test]
    fn a_malformed_tlv_is_flagged_and_ends_the_reading() {
        // The length is beyond the end.
        assert_eq!(reflected(&[0x80, 1, 0, 3, 1, 2]), [0x40, 1, 0, 3, 1, 2]);
        assert_eq!(reflected(&[0x80, 2, 0xff, 0xff, 0x80, 1, 0, 0]), [0xc0, 2, 0xff, 0xff, 0x80, 1, 0, 0]);
        // The header is cut.
        assert_eq!(reflected(&[0x80]), [0xc0]);
        assert_eq!(reflected(&[0x80, 1, 0]), [0x40, 1, 0]);
        assert_eq!(reflected(&[0x80, 1, 0, 0, 0x80, 2]), [0, 1, 0, 0, 0xc0, 2]);
    }
}
