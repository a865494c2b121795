//! Probes both networks: it adds the node's address to each peer's pod address. Only the peer
//! itself reports that address (`GET /api/v1/identity`), so no further right in any API is needed.
//!
//! This is an adapter. A source's updates go in on one side, and come out on the other with entries
//! of [`Network::Node`] in their lists. [`addresses`] decides, this module asks.
//!
//! The traps:
//! * The pods' network may be down, and then the nodes' network is of interest. So known addresses
//!   survive every failure to ask.
//! * A list that is sent again with new addresses does not confirm the source's list
//!   ([`Update::Amended`]).
//! * The probe loop may doubt a node's address, which the source does not know. The address of its
//!   pod is asked about instead.
//!
//! [`Network::Node`]: crate::method::Network::Node

mod addresses;
mod doubts;

use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::discovery::identity::{IdentityAnswer, IdentityQuestion, IdentityRequests};
use crate::discovery::random;
use crate::discovery::timer::until;
use crate::discovery::update::{Ourselves, Questions, Update, Updates};
use addresses::{AnswerOutcome, NodeAddresses};
use doubts::NodeDoubts;

/// The four channel ends of the adapter, and its timing.
pub struct Ends {
    /// Updates from the source.
    pub from_source: mpsc::Receiver<Update>,
    /// Questions to the source.
    pub to_source: mpsc::Sender<IpAddr>,
    /// Questions from the probe loop.
    pub questions: Questions,
    /// Updates to the probe loop.
    pub updates: Updates,
    /// Timeout of a peer's identity, and how long new addresses wait for more. 2
    /// s, except in tests.
    pub identity_time: Duration,
}

/// Passes updates and questions on until either side is closed.
pub async fn run(ourselves: &Ourselves, ends: Ends) {
    let mut underlay = Underlay {
        addresses: NodeAddresses::new(ourselves),
        doubts: NodeDoubts::default(),
        requests: IdentityRequests::new("node addresses", ends.identity_time),
        ends,
        publish_at: None,
        warned: false,
    };
    loop {
        let now = Instant::now();
        underlay.requests.start(|| underlay.addresses.next_to_ask(now));
        let ask_at = underlay.addresses.ask_at().filter(|_| underlay.requests.has_room());
        tokio::select! {
            update = underlay.ends.from_source.recv() => match update {
                Some(update) => underlay.update(update).await,
                None => return,
            },
            Some(address) = underlay.ends.questions.recv() => underlay.question(address).await,
            (question, answer) = underlay.requests.ended() => underlay.answered(&question, answer.as_ref()),
            () = until(underlay.publish_at) => underlay.publish().await,
            () = until(ask_at) => {}
            () = underlay.ends.updates.closed() => return,
        }
    }
}

struct Underlay {
    addresses: NodeAddresses,
    doubts: NodeDoubts,
    requests: IdentityRequests,
    ends: Ends,
    /// When to send new addresses. None if there are none.
    publish_at: Option<Instant>,
    /// A warning was logged that a peer has no address to report.
    warned: bool,
}

impl Underlay {
    /// Sends an update. If the channel is closed, [`run`] ends.
    async fn send(&self, update: Update) {
        _ = self.ends.updates.send(update).await;
    }

    async fn update(&mut self, update: Update) {
        match update {
            Update::List(list) => {
                self.addresses.listed(list, Instant::now());
                self.publish_at = None;
                self.send(Update::List(self.addresses.list())).await;
            }
            Update::Amended(list) => {
                self.addresses.listed(list, Instant::now());
                self.publish().await;
            }
            Update::Sure(pod) => self.pass_on(Update::Sure, pod).await,
            Update::Unsure(pod) => self.pass_on(Update::Unsure, pod).await,
            other => self.send(other).await,
        }
    }

    /// Passes on an answer about a pod, and answers for its node as well.
    async fn pass_on(&mut self, answer: fn(IpAddr) -> Update, pod: IpAddr) {
        self.send(answer(pod)).await;
        while let Some(node) = self.doubts.answered(pod) {
            self.send(answer(node)).await;
        }
    }

    /// Takes a question of the probe loop. If the source has no room for it, the question is
    /// answered at once. The same happens if our own channel has no room.
    async fn question(&mut self, address: IpAddr) {
        let pod = self.addresses.pod_of(address);
        if let Some(pod) = pod {
            self.doubts.add(pod, address);
        }
        if self.ends.to_source.try_send(pod.unwrap_or(address)).is_err() {
            self.send(Update::Unsure(address)).await;
        }
    }

    fn answered(&mut self, question: &IdentityQuestion, answer: Option<&IdentityAnswer>) {
        let IdentityQuestion { node, server } = question;
        let now = Instant::now();
        match self.addresses.answered(question, answer, now, random::unit()) {
            AnswerOutcome::Unchanged => {}
            // Other answers follow soon. One list serves all of them, but it does not wait for
            // ever.
            AnswerOutcome::NewAddresses => _ = self.publish_at.get_or_insert(now + self.ends.identity_time),
            AnswerOutcome::NoneUsable => {
                if !std::mem::replace(&mut self.warned, true) {
                    log::warn!(
                        "node addresses: {node} reports none that can be probed; is --node-addresses set there?"
                    );
                }
            }
            AnswerOutcome::OtherNode => {
                let other = answer.map_or("", |answer| &answer.identity.node);
                log::debug!("node addresses: {node} is listed at {server}, where {other} answers");
            }
        }
        if self.publish_at.is_some() && self.addresses.all_tried() {
            self.publish_at = Some(now);
        }
    }

    async fn publish(&mut self) {
        self.publish_at = None;
        self.send(Update::Amended(self.addresses.list())).await;
    }
}
