//! Probes both networks: it adds the node's address to each peer's pod address. Only the peer
//! itself reports that address (`GET /api/v1/identity`), so no further right in any API is needed.
//!
//! This is an adapter. A source's updates go in on one side, and come out on the other with entries
//! of [`Network::Node`] in their lists. [`book`] decides, this module asks.
//!
//! The traps:
//! * The pods' network may be down, and then the nodes' network is of interest. So known addresses
//!   survive every failure to ask.
//! * A list that is sent again with new addresses does not confirm the source's list
//!   ([`Update::Amended`]).
//! * The probe loop may doubt a node's address, which the source does not know. The address of its
//!   pod is asked about instead.
//!
//! [`Network::Node`]: super::Network::Node

mod book;
mod doubts;

use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::identity::{self, Answer, IdentityError};
use super::{Ourselves, Questions, Update, Updates, random, until};
use crate::limits;
use book::{Book, Learnt, Question};
use doubts::Doubts;

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
    /// Timeout of a peer's identity, and how long new addresses wait for more:
    /// [`limits::IDENTITY_TIME`], except in tests.
    pub identity_time: Duration,
}

/// Passes updates and questions on until either side is closed.
pub async fn run(ourselves: &Ourselves, ends: Ends) {
    let Ends { mut from_source, to_source, mut questions, updates, identity_time } = ends;
    let mut underlay = Underlay {
        book: Book::new(ourselves),
        doubts: Doubts::default(),
        to_source,
        updates,
        identity_time,
        tasks: JoinSet::new(),
        publish_at: None,
        warned: false,
    };
    loop {
        underlay.start_tasks();
        let (ask_at, publish_at) = (underlay.ask_at(), underlay.publish_at);
        let sent = tokio::select! {
            update = from_source.recv() => match update {
                Some(update) => underlay.update(update).await,
                None => return,
            },
            Some(address) = questions.recv() => underlay.question(address).await,
            Some(done) = underlay.tasks.join_next() => {
                match done {
                    Ok((question, result)) => underlay.answered(&question, result),
                    // Only a panic ends such a task without a result, and the release build aborts
                    // on a panic.
                    Err(error) => log::error!("node addresses: {error}"),
                }
                Ok(())
            }
            () = until(publish_at) => underlay.publish().await,
            () = until(ask_at) => Ok(()),
            () = underlay.updates.closed() => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The receiver of updates is closed.
struct Closed;

struct Underlay {
    book: Book,
    doubts: Doubts,
    to_source: mpsc::Sender<IpAddr>,
    updates: Updates,
    identity_time: Duration,
    /// Tasks on the same current-thread runtime. They end with this set.
    tasks: JoinSet<(Question, Result<Answer, IdentityError>)>,
    /// When to send new addresses. None if there are none.
    publish_at: Option<Instant>,
    /// A warning was logged that a peer has no address to report.
    warned: bool,
}

impl Underlay {
    /// Returns when the next question is due, if another request may start.
    fn ask_at(&self) -> Option<Instant> {
        if self.tasks.len() < limits::IDENTITY_REQUESTS_MAX { self.book.ask_at() } else { None }
    }

    fn start_tasks(&mut self) {
        let now = Instant::now();
        while self.tasks.len() < limits::IDENTITY_REQUESTS_MAX
            && let Some(question) = self.book.next_to_ask(now)
        {
            let time = self.identity_time;
            self.tasks.spawn(async move {
                let answer = identity::ask(question.server, time).await;
                (question, answer)
            });
        }
    }

    async fn send(&self, update: Update) -> Result<(), Closed> {
        self.updates.send(update).await.map_err(|_| Closed)
    }

    async fn update(&mut self, update: Update) -> Result<(), Closed> {
        match update {
            Update::List(list) => {
                self.book.listed(list, Instant::now());
                self.publish_at = None;
                self.send(Update::List(self.book.list())).await
            }
            Update::Amended(list) => {
                self.book.listed(list, Instant::now());
                self.publish().await
            }
            Update::Sure(pod) => self.pass_on(Update::Sure, pod).await,
            Update::Unsure(pod) => self.pass_on(Update::Unsure, pod).await,
            other => self.send(other).await,
        }
    }

    /// Passes on an answer about a pod, and answers for its node as well.
    async fn pass_on(&mut self, answer: fn(IpAddr) -> Update, pod: IpAddr) -> Result<(), Closed> {
        self.send(answer(pod)).await?;
        while let Some(node) = self.doubts.answered(pod) {
            self.send(answer(node)).await?;
        }
        Ok(())
    }

    /// Takes a question of the probe loop. If the source has no room for it, the question is
    /// answered at once. The same happens if our own channel has no room.
    async fn question(&mut self, address: IpAddr) -> Result<(), Closed> {
        let pod = self.book.pod_of(address);
        if let Some(pod) = pod {
            self.doubts.add(pod, address);
        }
        match self.to_source.try_send(pod.unwrap_or(address)) {
            Ok(()) => Ok(()),
            Err(_) => self.send(Update::Unsure(address)).await,
        }
    }

    fn answered(&mut self, question: &Question, result: Result<Answer, IdentityError>) {
        let Question { node, server } = question;
        // Not a warning: a peer that starts later than we do is normal, and is asked again.
        let answer = result.inspect_err(|error| log::debug!("node addresses: asking {node} at {server}: {error}")).ok();
        let now = Instant::now();
        match self.book.answered(question, answer.as_ref(), now, random::unit()) {
            Learnt::Nothing => {}
            // Other answers follow soon. One list serves all of them, but it does not wait for
            // ever.
            Learnt::Addresses => _ = self.publish_at.get_or_insert(now + self.identity_time),
            Learnt::NoneUsable => {
                if !std::mem::replace(&mut self.warned, true) {
                    log::warn!(
                        "node addresses: {node} has none to tell that can be probed; is --node-addresses set there?"
                    );
                }
            }
            Learnt::Another => {
                let other = answer.map(|answer| answer.identity.node).unwrap_or_default();
                log::debug!("node addresses: {node} is listed at {server}, where {other} answers");
            }
        }
        if self.publish_at.is_some() && self.book.all_tried() {
            self.publish_at = Some(now);
        }
    }

    async fn publish(&mut self) -> Result<(), Closed> {
        self.publish_at = None;
        self.send(Update::Amended(self.book.list())).await
    }
}
