//! The batch of requests in preparation.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::wire::{Flow, Outgoing, UdpWire};
use crate::prober::SendError;
use crate::prober::mmsg::BATCH;
use crate::prober::packet::{Codec, Label};
use crate::prober::stamp::packet::{
    ASKING_REQUEST_BYTES, EXTRA_REQUEST_BYTES, REQUEST_BYTES, write_question, write_request,
};
use crate::prober::stamp::{ErrorEstimate, NtpTime};
use crate::units::Nanos;

/// Which request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A usual request.
    Usual,
    /// A usual one that asks which node answers.
    Asking,
    /// An extra one of a flow.
    Extra,
}

impl Form {
    const fn bytes(self) -> usize {
        match self {
            Self::Usual => REQUEST_BYTES,
            Self::Asking => ASKING_REQUEST_BYTES,
            Self::Extra => EXTRA_REQUEST_BYTES,
        }
    }
}

/// Bytes of the longest form.
const MESSAGE_BYTES: usize = ASKING_REQUEST_BYTES;
const _: () = assert!(MESSAGE_BYTES >= EXTRA_REQUEST_BYTES);

/// A request in preparation.
#[derive(Clone, Copy, Debug)]
struct Item {
    label: Label,
    sequence: u32,
    flow: Flow,
    to: SocketAddr,
    form: Form,
}

/// Buffers of the requests in preparation, allocated once. A turn writes them, and
/// [`UdpWire::send`] borrows them for one call (the kernel copies).
#[derive(Debug)]
pub struct Outbox {
    ssid: u16,
    /// How far our clock is to be trusted.
    pub error: ErrorEstimate,
    items: Vec<Item>,
    messages: Box<[[u8; MESSAGE_BYTES]]>,
}

impl Outbox {
    /// Makes an empty batch for the session `ssid`.
    pub fn new(ssid: u16) -> Self {
        let messages = vec![[0; MESSAGE_BYTES]; BATCH].into_boxed_slice();
        Self { ssid, error: ErrorEstimate::UNKNOWN, items: Vec::with_capacity(BATCH), messages }
    }

    /// Returns the session identifier.
    pub const fn ssid(&self) -> u16 {
        self.ssid
    }

    /// Adds a request. A batch has at most [`BATCH`].
    pub fn push(&mut self, label: Label, sequence: u32, flow: Flow, to: SocketAddr, form: Form) {
        debug_assert!(self.items.len() < BATCH, "a full batch is sent");
        self.items.push(Item { label, sequence, flow, to, form });
    }

    /// Returns the labels of the batch.
    pub fn labels(&self) -> impl Iterator<Item = Label> {
        self.items.iter().map(|item| item.label)
    }

    /// Writes the requests. Those of one family follow each other, so that one call sends them.
    pub fn write(&mut self, codec: &Codec, at: Nanos) {
        self.items.sort_unstable_by_key(|item| (item.to.is_ipv6(), item.flow));
        let at = NtpTime::from_unix(at);
        for (item, message) in self.items.iter().zip(&mut self.messages) {
            let identity = codec.identity(item.label, item.to.ip());
            let request = &mut message[..item.form.bytes()];
            let mut bytes = request.len();
            if let (Form::Asking, Some(question)) = (item.form, request.last_chunk_mut()) {
                write_question(question);
                bytes = REQUEST_BYTES;
            }
            write_request(&mut request[..bytes], item.sequence, self.ssid, at, self.error, &identity);
        }
    }

    /// Sends the batch, and reports the result of each request. It is empty then.
    pub fn send(&mut self, wire: &mut impl UdpWire, sent: &mut dyn FnMut(Label, Result<(), SendError>)) {
        const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let Self { items, messages, .. } = self;
        let mut packets = [Outgoing { to: NOWHERE, flow: Flow(0), ttl: None, bytes: &[] }; BATCH];
        for ((packet, item), message) in packets.iter_mut().zip(&*items).zip(messages.iter()) {
            *packet = Outgoing { to: item.to, flow: item.flow, ttl: None, bytes: &message[..item.form.bytes()] };
        }
        wire.send(&packets[..items.len()], &mut |index, result| {
            sent(items[index].label, result);
        });
        items.clear();
    }
}
