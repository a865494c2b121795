//! Gathers the rows of all canaries into one document, and judges them.
//!
//! Members beyond the agent's own list are found by the rows of those that are asked ([`Frontier`]).
//!
//! Rows come from other pods and are hostile until proven otherwise. A row counts under the name that
//! discovery gives its address, and may speak only of nodes that discovery knows. Its bytes, objects
//! and time are bounded, and whatever it says, the other rows come as they would without it.
//!
//! Everything here is bounded by what one row takes, and not by their number: a row is passed on as it arrives, object by
//! object, and 8 bytes of each cell stay for the verdicts. The rows come one after the other, for they go into one stream;
//! meanwhile the next canaries are being connected to. The traps: a row may break off in its middle, and the document must
//! still be whole; a canary may answer for another node than the one that was asked; whoever reads slowly must not make
//! the canaries look slow.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::frontier::Frontier;
use super::matrix::Matrix;
use super::pipe::Pipe;
use super::row::{PeerRow, Source};
use super::split::{Object, SplitError, Splitter};
use super::targets::{Target, Targets};
use super::times::Times;
use crate::exposition::{PeersBody, View};
use crate::http::Render as _;
use crate::http::client::{self, GetError, Link};
use crate::limits::{FRAME_BYTES, PEER_SLOTS_MAX, ROW_BYTES_MAX, ROW_REQUESTS_MAX};

/// Why a node has no row, or half of one.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The request, or the connection.
    #[error(transparent)]
    Get(#[from] GetError),
    /// It did not go on.
    #[error("nothing more within {0:?}")]
    Stalled(Duration),
    /// It went on too slowly.
    #[error("not whole within {0:?}")]
    Slow(Duration),
    /// What came is no row.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// An object of it is not what a canary writes.
    #[error("not a row: {0}")]
    Parse(#[from] serde_json::Error),
    /// Its address belongs to another node by now.
    #[error("answers as {0}")]
    Another(String),
    /// It names a node twice at one network and address family, or is longer than a row can be.
    #[error("{0}")]
    Implausible(String),
    /// The whole gathering took too long.
    #[error("not within the {0:?} that all rows have")]
    NoTime(Duration),
}

/// What a gathering has come to; its rows have gone through the pipe.
pub struct Gathered {
    /// For the verdicts.
    pub matrix: Matrix,
    /// Who gave no row, or half of one, and why.
    pub missing: Vec<(String, String)>,
    /// Further nodes, which were not asked.
    pub further: usize,
}

/// Asks our own node and all others, and writes `{row}\n,{row}\n…` into `rows`.
pub async fn gather(view: Arc<View>, port: u16, times: Times, rows: Pipe) -> Gathered {
    let mut missing = Vec::new();
    let (matrix, frontier) = walk(&view, port, times, rows, |node, error| missing.push((node, error))).await;
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    let members = usize::try_from(directory.mesh().members).unwrap_or_default();
    // Ourselves are asked, too.
    let further = matrix.unsought().max(members.saturating_sub(frontier.count() + 1));
    Gathered { matrix, missing, further }
}

async fn walk(
    view: &Arc<View>,
    port: u16,
    times: Times,
    rows: Pipe,
    mut missing: impl FnMut(String, String),
) -> (Matrix, Frontier) {
    let frontier = RefCell::new(Frontier::new(Targets::of(view, port)));
    let mut gathering = Gathering { matrix: listed(view), rows, count: 0, frontier: &frontier, times };
    let mut note = |matrix: &mut Matrix, node: &str, error: &RowError| {
        let error = error.to_string();
        matrix.missing(node, &error);
        missing(node.to_owned(), error);
    };
    if let Err(error) = gathering.own(Arc::clone(view)).await {
        note(&mut gathering.matrix, &view.node, &error);
    }
    for target in frontier.borrow().waiting() {
        gathering.matrix.seek(&target.node);
    }
    let until = Instant::now() + times.gathering;
    let mut openings = Openings { frontier: &frontier, under_way: Vec::with_capacity(ROW_REQUESTS_MAX), until, times };
    while let Some((target, opened)) = poll_fn(|cx| openings.poll_next(cx)).await {
        let done = match opened {
            Ok(opened) => {
                let mut row = pin!(gathering.other(&target, opened, until));
                poll_fn(|cx| {
                    openings.drive(cx);
                    row.as_mut().poll(cx)
                })
                .await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            note(&mut gathering.matrix, &target.node, &error);
        }
    }
    gathering.matrix.finish();
    let matrix = gathering.matrix;
    drop(openings);
    (matrix, frontier.into_inner())
}

/// Returns a matrix of the agent's own list: names and zones as discovery has them.
fn listed(view: &View) -> Matrix {
    let mut matrix = Matrix::new();
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    matrix.member(&view.node, directory.own_zone());
    for (_, peer) in directory.peers() {
        matrix.member(peer.node(), directory.zone_name(peer.zone()));
    }
    matrix
}

type Opened = (Link, Incoming);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, RowError>>>>;

/// Canaries that are being asked, the next few at a time.
struct Openings<'a> {
    frontier: &'a RefCell<Frontier>,
    under_way: Vec<(Target, State)>,
    until: Instant,
    times: Times,
}

enum State {
    Asked(Opening),
    Answered(Result<Opened, RowError>),
}

impl Openings<'_> {
    /// Lets all that are under way go on, and asks further ones where there is room.
    fn drive(&mut self, cx: &mut Context<'_>) {
        while self.under_way.len() < ROW_REQUESTS_MAX
            && let Some(target) = self.frontier.borrow_mut().next()
        {
            let opening = Box::pin(open(target.address, self.until, self.times));
            self.under_way.push((target, State::Asked(opening)));
        }
        for (_, state) in &mut self.under_way {
            if let State::Asked(opening) = state
                && let Poll::Ready(opened) = opening.as_mut().poll(cx)
            {
                *state = State::Answered(opened);
            }
        }
    }

    /// The next that has answered, or failed to; none once there are no more.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Target, Result<Opened, RowError>)>> {
        self.drive(cx);
        if self.under_way.is_empty() {
            return Poll::Ready(None);
        }
        let Some(at) = self.under_way.iter().position(|(_, state)| matches!(state, State::Answered(_))) else {
            return Poll::Pending;
        };
        match self.under_way.swap_remove(at) {
            (target, State::Answered(opened)) => Poll::Ready(Some((target, opened))),
            (_, State::Asked(_)) => Poll::Pending,
        }
    }
}

async fn open(address: SocketAddr, until: Instant, times: Times) -> Result<Opened, RowError> {
    let opening = async { Ok(client::open(address, "/api/v1/peers").await?) };
    let answer = GetError::Time(times.row).into();
    in_time(opening, [(Instant::now() + times.row, answer), (until, RowError::NoTime(times.gathering))]).await
}

/// Waits no longer than until the first of these moments, and then says what was too late.
async fn in_time<T, const N: usize>(
    waiting: impl Future<Output = Result<T, RowError>>,
    dues: [(Instant, RowError); N],
) -> Result<T, RowError> {
    let Some((due, late)) = dues.into_iter().min_by_key(|(due, _)| *due) else { return waiting.await };
    if Instant::now() >= due {
        return Err(late);
    }
    match timeout_at(due, waiting).await {
        Ok(done) => done,
        Err(_) => Err(late),
    }
}

struct Gathering<'a> {
    matrix: Matrix,
    rows: Pipe,
    /// Rows that were begun.
    count: usize,
    frontier: &'a RefCell<Frontier>,
    times: Times,
}

impl Gathering<'_> {
    async fn own(&mut self, view: Arc<View>) -> Result<(), RowError> {
        let (mut body, mut frame) = (PeersBody::new(view), Vec::with_capacity(FRAME_BYTES));
        let mut row = Row::new(self, None);
        let done = loop {
            frame.clear();
            let more = body.render(&mut frame);
            match row.take(&frame).await {
                Ok(()) if more => {}
                done => break done,
            }
        };
        row.end(done).await
    }

    async fn other(&mut self, target: &Target, (mut link, mut body): Opened, until: Instant) -> Result<(), RowError> {
        let times = self.times;
        let mut row = Row::new(self, Some(target));
        let whole = Instant::now() + times.whole_row;
        let done = loop {
            // Only the canary's time is limited here; who reads our document has the server's limits.
            let frame = async { link.frame(&mut body).await.transpose().map_err(|error| GetError::Wire(error).into()) };
            let dues = [
                (Instant::now() + times.row, RowError::Stalled(times.row)),
                (whole, RowError::Slow(times.whole_row)),
                (until, RowError::NoTime(times.gathering)),
            ];
            let frame = match in_time(frame, dues).await {
                Err(error) => break Err(error),
                Ok(None) => break Ok(()),
                Ok(Some(frame)) => frame,
            };
            if let Some(bytes) = frame.data_ref()
                && let Err(error) = row.take(bytes).await
            {
                break Err(error);
            }
        };
        row.end(done).await
    }
}

/// A row on its way from a canary into the document.
struct Row<'a, 'b> {
    gathering: &'a mut Gathering<'b>,
    /// Who was asked; none for our own.
    target: Option<&'a Target>,
    splitter: Splitter,
    /// The source has come.
    has_begun: bool,
    /// Peers that have come, and those of them that were passed on.
    come: usize,
    peers: usize,
    bytes: usize,
}

impl<'a, 'b> Row<'a, 'b> {
    fn new(gathering: &'a mut Gathering<'b>, target: Option<&'a Target>) -> Self {
        Self { gathering, target, splitter: Splitter::default(), has_begun: false, come: 0, peers: 0, bytes: 0 }
    }

    async fn take(&mut self, mut bytes: &[u8]) -> Result<(), RowError> {
        self.bytes += bytes.len();
        if self.bytes > ROW_BYTES_MAX {
            return Err(RowError::Implausible(format!("a row of more than {ROW_BYTES_MAX} bytes")));
        }
        while let Some(object) = self.splitter.next(&mut bytes)? {
            let (Object::Source(text) | Object::Peer(text)) = object;
            // A row is one line of the document, which is text as a whole.
            if text.contains(&b'\n') || std::str::from_utf8(text).is_err() {
                return Err(SplitError::NotARow.into());
            }
            let Gathering { matrix, rows, count, frontier, .. } = &mut *self.gathering;
            let is_known = |matrix: &Matrix, node: &str| matrix.knows(node) || frontier.borrow().has_member(node);
            match object {
                Object::Source(text) => {
                    let source: Source<'_> = serde_json::from_slice(text)?;
                    // An agent of which discovery has no name yet may give one that no other has.
                    let is_right = self.target.is_none_or(|target| {
                        source.node == target.node || target.is_nameless() && !is_known(matrix, &source.node)
                    });
                    if !is_right {
                        return Err(RowError::Another(source.node.into_owned()));
                    }
                    matrix.begin_row(&source);
                    let comma: &[u8] = if *count > 0 { b"," } else { b"" };
                    rows.write(&[comma, b"{\"source\":", text, b",\"peers\":["]).await;
                    *count += 1;
                    self.has_begun = true;
                }
                Object::Peer(text) => {
                    self.come += 1;
                    if self.come > PEER_SLOTS_MAX {
                        return Err(RowError::Implausible(format!("a row of more than {PEER_SLOTS_MAX} peers")));
                    }
                    let peer: PeerRow<'_> = serde_json::from_slice(text)?;
                    // What discovery does not know is nothing that a row may add: an agent that hears of
                    // a new node earlier than this one is complete the next time.
                    if !is_known(matrix, &peer.node) {
                        continue;
                    }
                    if !matrix.peer(&peer) {
                        return Err(RowError::Implausible(format!("not a row: it names {} twice", peer.node)));
                    }
                    // The own row has the peers of the own list, which are there already.
                    if self.target.is_some() {
                        frontier.borrow_mut().learn(&peer, matrix);
                    }
                    let comma: &[u8] = if self.peers > 0 { b"," } else { b"" };
                    rows.write(&[comma, text]).await;
                    self.peers += 1;
                }
            }
        }
        Ok(())
    }

    async fn end(self, done: Result<(), RowError>) -> Result<(), RowError> {
        let done = done.and_then(|()| Ok(self.splitter.end()?));
        if self.has_begun {
            if done.is_ok() {
                self.gathering.matrix.end_row();
            }
            self.gathering.rows.write(&[b"]}\n"]).await;
        }
        done
    }
}
