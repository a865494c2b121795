//! Decompresses gzip (RFC 1952) by another implementation than the one under test, and checks its
//! sums.
#![allow(dead_code, reason = "each test binary uses its own part")]

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

const HEADER_BYTES: usize = 10;

/// Returns the content of a complete gzip stream, or `None` if the bytes are
/// not exactly one stream.
pub fn gunzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let (content, rest) = inflate(bytes)?;
    let (sum, length) = rest?.split_first_chunk::<4>()?;
    let is_whole = u32::from_le_bytes(*sum) == crc32(&content)
        && u32::from_le_bytes(length.try_into().ok()?) as usize == content.len();
    is_whole.then_some(content)
}

/// Returns the readable content of an incomplete gzip stream.
pub fn beginning(bytes: &[u8]) -> Vec<u8> {
    inflate(bytes).map_or_else(Vec::new, |(content, _)| content)
}

/// Returns the content so far. If the stream has ended, also returns the bytes after its end.
fn inflate(bytes: &[u8]) -> Option<(Vec<u8>, Option<&[u8]>)> {
    let (header, mut deflated) = bytes.split_at_checked(HEADER_BYTES)?;
    // The method is deflate, and there are no further fields.
    if header[..4] != [0x1f, 0x8b, 8, 0] {
        return None;
    }
    let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (mut state, mut content, mut written) = (Box::<DecompressorOxide>::default(), vec![0; 1 << 16], 0);
    loop {
        let (status, read, more) = decompress(&mut state, deflated, &mut content, written, flags);
        (deflated, written) = (&deflated[read..], written + more);
        match status {
            TINFLStatus::HasMoreOutput => content.resize(content.len() * 2, 0),
            TINFLStatus::Done | TINFLStatus::NeedsMoreInput => {
                content.truncate(written);
                return Some((content, (status == TINFLStatus::Done).then_some(deflated)));
            }
            _ => return None,
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
