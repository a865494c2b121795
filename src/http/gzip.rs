//! A gzip compressor whose memory is one mapping of [`GZIP_BYTES`].
//!
//! zlib's state, its input and its held output are in that mapping, and zlib allocates from it
//! through our own `zalloc`. So a response costs a known number of bytes, uses no malloc, and
//! returns all memory at once when it ends. `docs/adr/0019-gzip-by-zlib.md` explains why it is
//! zlib, and why it has these parameters.
//!
//! zlib keeps addresses within the mapping, which all come from the mapping's own start. So they
//! stay valid while the buffers are read and written between its calls. The mapping never moves:
//! zlib checks that the stream is still at the address at which it was initialized.
#![expect(unsafe_code, reason = "zlib is C, and its memory is a mapping")]

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::null_mut;

use kube_canary_kernel::region::Table;
use libz_sys as zlib;
use zerocopy::FromZeros;

use crate::limits::{FRAME_BYTES, GZIP_BYTES};

#[cfg(test)]
#[path = "../../tests/common/gunzip.rs"]
mod gunzip;
/// zlib's default. It takes half as long again as level 1, and saves a quarter of the bytes.
const LEVEL: c_int = 6;
/// A window of 2¹⁰ bytes. The added 16 requests gzip's header and trailer.
const WINDOW_BITS: c_int = 16 + 10;
/// A hash table of 2¹⁰ entries, and blocks of 2⁹ symbols.
const MEMORY_LEVEL: c_int = 3;
/// Output that is held back until there is more of it. A frame compresses to some 500 bytes, and
/// each piece costs a write and a packet.
const HELD_BYTES: usize = 3_584;
/// Bytes for zlib's state. Version 1.3.2 uses 14,160 of them.
const ARENA_BYTES: usize = GZIP_BYTES - FRAME_BYTES - HELD_BYTES - size_of::<zlib::z_stream>() - ALIGNMENT;
/// The alignment of malloc's blocks, which zlib expects of its allocator.
const ALIGNMENT: usize = 16;

/// The contents of the mapping.
#[derive(FromZeros)]
#[repr(C)]
struct GzipMemory {
    stream: MaybeUninit<zlib::z_stream>,
    arena: MaybeUninit<Arena>,
    /// Bytes of the arena that zlib uses.
    used: usize,
    /// The frame that is being compressed.
    input: [u8; FRAME_BYTES],
    /// Compressed bytes that are not sent yet.
    held: [u8; HELD_BYTES],
}

#[repr(C, align(16))]
struct Arena([u8; ARENA_BYTES]);

const _: () = assert!(size_of::<GzipMemory>() <= GZIP_BYTES && align_of::<Arena>() == ALIGNMENT);
const _: () = assert!(HELD_BYTES < FRAME_BYTES, "what is held back leaves room in a frame");

/// The work that zlib was given and has not finished yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Nothing,
    /// zlib must read the input.
    Compress,
    /// zlib must write everything that it has read.
    Flush,
    /// zlib must end the stream.
    Finish,
}

/// A gzip stream. It owns its mapping, which is unmapped on drop. zlib owns nothing outside of it.
pub(super) struct Compressor {
    memory: Table<GzipMemory>,
    work: Work,
    /// Bytes of [`GzipMemory::input`] that zlib has not been given yet.
    input: c_uint,
    /// Whether input was read since the last flush.
    unflushed: bool,
    finished: bool,
    /// Bytes of [`GzipMemory::held`] that are in use.
    held: usize,
}

impl Compressor {
    /// Creates an empty stream. Returns none if the system has no memory.
    pub(super) fn new() -> Option<Self> {
        let size = c_int::try_from(size_of::<zlib::z_stream>()).ok()?;
        let memory = Table::<GzipMemory>::try_new(1)?;
        let start = memory.start();
        let stream = zlib::z_stream {
            next_in: null_mut(),
            avail_in: 0,
            total_in: 0,
            next_out: null_mut(),
            avail_out: 0,
            total_out: 0,
            msg: null_mut(),
            state: null_mut(),
            zalloc: allocate,
            zfree: free,
            opaque: start.cast(),
            data_type: 0,
            adler: 0,
            reserved: 0,
        };
        // SAFETY: the mapping is ours alone, and begins with the stream, which is valid once it is
        // written. Its two functions keep zlib's contract, and version and size are those of the
        // zlib that is linked.
        let result = unsafe {
            start.cast::<zlib::z_stream>().write(stream);
            zlib::deflateInit2_(
                start.cast(),
                LEVEL,
                zlib::Z_DEFLATED,
                WINDOW_BITS,
                MEMORY_LEVEL,
                zlib::Z_DEFAULT_STRATEGY,
                zlib::zlibVersion(),
                size,
            )
        };
        let this = Self { memory, work: Work::Nothing, input: 0, unflushed: false, finished: false, held: 0 };
        (result == zlib::Z_OK).then_some(this)
    }

    /// Whether it accepts no input now, because the last call of [`Compressor::compress`]
    /// had too little room.
    pub(super) fn is_busy(&self) -> bool {
        self.work != Work::Nothing
    }

    /// Copies the bytes of a frame and empties it. Call it only if the compressor is not busy.
    ///
    /// # Panics
    /// If the frame has more than [`FRAME_BYTES`], which no renderer may write.
    pub(super) fn take(&mut self, frame: &mut Vec<u8>) {
        assert!(frame.len() <= FRAME_BYTES && !self.is_busy(), "more than a frame at a time");
        self.input = c_uint::try_from(frame.len()).unwrap_or(0);
        if self.input > 0 {
            self.memory[0].input[..frame.len()].copy_from_slice(frame);
            frame.clear();
            (self.work, self.unflushed) = (Work::Compress, true);
        }
    }

    /// Requests that all input is written now. Returns whether there is anything left to write.
    pub(super) fn flush(&mut self) -> bool {
        if self.unflushed {
            self.work = Work::Flush;
        }
        self.unflushed || self.held > 0
    }

    /// Ends the input: no more frames follow.
    pub(super) fn finish(&mut self) {
        self.work = Work::Finish;
    }

    /// Writes into `out`, which is empty and does not grow. A short output is held until there is
    /// more of it, or until a flush or the end. Returns whether more output follows.
    pub(super) fn compress(&mut self, out: &mut Vec<u8>) -> bool {
        let may_hold = self.work == Work::Compress;
        out.extend_from_slice(&self.memory[0].held[..self.held]);
        self.held = 0;
        self.run(out);
        if may_hold && !self.is_busy() && out.len() <= HELD_BYTES {
            self.memory[0].held[..out.len()].copy_from_slice(out);
            self.held = out.len();
            out.clear();
        }
        !self.finished
    }

    /// Lets zlib do its work and write into the free room of `out`.
    fn run(&mut self, out: &mut Vec<u8>) {
        let flush = match self.work {
            Work::Nothing => return,
            Work::Compress => zlib::Z_NO_FLUSH,
            Work::Flush => zlib::Z_SYNC_FLUSH,
            Work::Finish => zlib::Z_FINISH,
        };
        let room = out.spare_capacity_mut();
        let bytes = c_uint::try_from(room.len()).unwrap_or(c_uint::MAX);
        let stream = self.memory.start().cast::<zlib::z_stream>();
        let input = self.memory.start().wrapping_byte_add(offset_of!(GzipMemory, input));
        // SAFETY: the stream is initialized and has not moved. Its input is in the mapping, and
        // zlib has read all that it was given before. Its output is the room of `out`, of which it
        // writes the first `bytes - avail_out` bytes.
        let (result, left) = unsafe {
            if self.input > 0 {
                ((*stream).next_in, (*stream).avail_in) = (input.cast(), std::mem::take(&mut self.input));
            }
            ((*stream).next_out, (*stream).avail_out) = (room.as_mut_ptr().cast(), bytes);
            let result = zlib::deflate(stream, flush);
            let left = (*stream).avail_out;
            out.set_len(out.len() + (bytes - left) as usize);
            (result, left)
        };
        // Z_BUF_ERROR: there was nothing to do (zlib.h, deflate).
        debug_assert!(matches!(result, zlib::Z_OK | zlib::Z_STREAM_END | zlib::Z_BUF_ERROR), "{result}");
        // If zlib leaves room, it has finished its work (zlib.h, deflate).
        if left > 0 || result == zlib::Z_STREAM_END {
            self.unflushed &= self.work == Work::Compress;
            self.finished |= self.work == Work::Finish;
            self.work = Work::Nothing;
        }
    }
}

/// zlib's `zalloc`: returns the next piece of the arena, or null if too little is left.
unsafe extern "C" fn allocate(memory: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void {
    let memory = memory.cast::<GzipMemory>();
    // SAFETY: `opaque` of the stream, which is its mapping. There is no other reference into it
    // during a call of zlib.
    let used = unsafe { &mut (*memory).used };
    let piece = next_piece(used, items as usize, size as usize);
    piece.map_or(null_mut(), |at| memory.wrapping_byte_add(offset_of!(GzipMemory, arena) + at).cast())
}

/// Takes the next piece of an arena of which this many bytes are used. Returns its place, which is
/// aligned, or none if too little is left.
fn next_piece(used: &mut usize, items: usize, size: usize) -> Option<usize> {
    let end = used.checked_add(items.checked_mul(size)?).filter(|end| *end <= ARENA_BYTES)?;
    Some(std::mem::replace(used, end.next_multiple_of(ALIGNMENT).min(ARENA_BYTES)))
}

/// zlib's `zfree`: does nothing, because all pieces are freed together, with the mapping.
unsafe extern "C" fn free(_memory: *mut c_void, _piece: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::gunzip::{beginning, gunzip};
    use super::*;
    use crate::splitmix::Random;

    /// Test contents: lines like those of metrics, bytes that do not compress, and
    /// a single repeated byte.
    fn contents(bytes: usize) -> [Vec<u8>; 3] {
        let mut random = Random(7);
        let lines = (0..).flat_map(|n| format!("made_up_total{{peer=\"{}\"}} {n}\n", n % 24).into_bytes());
        [lines.take(bytes).collect(), (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect(), vec![b'x'; bytes]]
    }

    /// Compresses as a response does, and returns the frames that would be sent.
    fn frames(content: &[u8], mut flush_behind: impl FnMut() -> bool) -> Vec<Vec<u8>> {
        let mut compressor = Compressor::new().unwrap();
        let mut frames = Vec::new();
        let mut send = |compressor: &mut Compressor| {
            let mut frame = Vec::with_capacity(FRAME_BYTES);
            let more = compressor.compress(&mut frame);
            assert_eq!(frame.capacity(), FRAME_BYTES);
            frames.extend(Some(frame).filter(|frame| !frame.is_empty()));
            more
        };
        for piece in content.chunks(FRAME_BYTES - 100) {
            let mut frame = piece.to_vec();
            compressor.take(&mut frame);
            assert!(frame.is_empty());
            while send(&mut compressor) && compressor.is_busy() {}
            if flush_behind() && compressor.flush() {
                while send(&mut compressor) && compressor.is_busy() {}
                assert!(!compressor.flush(), "all is written");
            }
        }
        compressor.finish();
        while send(&mut compressor) {}
        frames
    }

    #[test]
    fn gunzip_restores_content_of_any_size() {
        for bytes in [0, 1, 2, 255, 1_024, FRAME_BYTES - 100, FRAME_BYTES, 30_000, 65_536, 131_071, 200_000] {
            for content in contents(bytes) {
                let compressed = frames(&content, || false).concat();
                assert_eq!(gunzip(&compressed).as_deref(), Some(&content[..]), "{bytes}");
            }
        }
        let [lines, random, _] = contents(200_000);
        let (lines, random) = (frames(&lines, || false), frames(&random, || false));
        assert!(lines.concat().len() < 40_000 && random.concat().len() < 202_000);
        // All but the last are long enough to justify a packet.
        assert!(lines.iter().rev().skip(1).all(|frame| frame.len() > HELD_BYTES), "{}", lines.len());
    }

    #[test]
    fn the_output_may_have_any_room() {
        for (room, bytes) in [(1, 3_000), (2, 3_000), (7, 6_000), (100, 6_000)] {
            for content in contents(bytes) {
                let (mut compressor, mut compressed) = (Compressor::new().unwrap(), Vec::new());
                compressor.take(&mut content.clone());
                while !compressor.finished {
                    let mut out = Vec::with_capacity(room);
                    compressor.run(&mut out);
                    compressed.extend(out);
                    if !compressor.is_busy() && !compressor.finished {
                        compressor.finish();
                    }
                }
                assert_eq!(gunzip(&compressed), Some(content), "{room}");
            }
        }
    }

    #[test]
    fn a_flush_makes_all_earlier_input_readable() {
        let [lines, random, _] = contents(50_000);
        for content in [lines, random] {
            let (mut compressor, mut sent) = (Compressor::new().unwrap(), Vec::new());
            assert!(!compressor.flush(), "there is nothing yet");
            for (number, piece) in content.chunks(1_000).enumerate() {
                let mut frame = Vec::with_capacity(FRAME_BYTES);
                frame.extend(piece);
                compressor.take(&mut frame);
                assert!(compressor.compress(&mut frame) && !compressor.is_busy());
                sent.append(&mut frame);
                assert!(compressor.flush());
                assert!(compressor.compress(&mut frame) && !compressor.is_busy());
                sent.append(&mut frame);
                assert_eq!(beginning(&sent), content[..number * 1_000 + piece.len()]);
                assert!(!compressor.flush(), "nothing is left");
            }
        }
    }

    #[test]
    fn flushes_do_not_change_the_content() {
        for seed in 0..20 {
            let mut random = Random(seed);
            for content in contents(usize::try_from(random.next() % 100_000).unwrap()) {
                let compressed = frames(&content, || random.next().is_multiple_of(3)).concat();
                assert_eq!(gunzip(&compressed), Some(content), "{seed}");
            }
        }
    }

    #[test]
    fn a_compressor_may_be_dropped_at_any_moment() {
        let [lines, random, _] = contents(6_000);
        for mut content in [lines, random] {
            drop(Compressor::new());
            let mut compressor = Compressor::new().unwrap();
            compressor.take(&mut content);
            drop(compressor);
        }
    }

    #[test]
    fn zlib_allocates_at_most_the_arena() {
        let mut compressor = Compressor::new().unwrap();
        let used = &mut compressor.memory[0].used;
        assert!((10_000..=ARENA_BYTES).contains(used), "{used}");
        let (start, rest) = (*used, ARENA_BYTES - *used);
        assert_eq!(next_piece(used, 1, rest + 1), None);
        assert_eq!(next_piece(used, 1, rest), Some(start));
        assert_eq!(next_piece(used, 1, 1), None);
        assert_eq!(next_piece(used, usize::MAX, usize::MAX), None);
    }
}
