//! One worker thread: which connections it accepts, and how long each may stay.
//!
//! Everything here lives on one thread, hence `Rc` and `Cell`. The rules:
//! - If an ordinary permit is free here, accept the connection.
//! - If none is free here but another worker has one, leave the connection to that worker.
//! - If none is free anywhere, accept it for health checks alone. It becomes an ordinary connection
//!   if a permit is free when it requests another path.
//! - If no health permit is free either, accept it, and close the health connection that has waited
//!   longest. That one must have had [`ServeLimits::health_stay`] to send its request. A kubelet's
//!   probe is answered as soon as it is read, so a connection that still waits after that time is
//!   not one.
//! - If all health connections are younger, leave it in the backlog until the oldest has had its
//!   time.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::Poll,
};

use hyper::server::conn::http1;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{AbortHandle, spawn_local},
    time::{Duration, Instant, Sleep, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    Hosts, Routes, ServeLimits, ServerStats,
    answer::Answering,
    frames::FramePool,
    gate::Gate,
    line::{Class, Line, LineIo},
};
use crate::limits::{ACCEPT_PAUSE, DRAIN_BYTES_MAX, REQUEST_HEAD_BYTES_MAX};

/// State that all workers share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) gate: Arc<Gate>,
    pub(super) routes: Arc<dyn Routes>,
    /// The accepted host names. None accepts every name.
    pub(super) hosts: Option<Arc<Hosts>>,
    pub(super) limits: ServeLimits,
    pub(super) stats: Arc<ServerStats>,
}

/// A worker's permits, and what its connections share.
pub(super) struct Worker {
    index: usize,
    common: Common,
    frames: FramePool,
    protocol: http1::Builder,
    ordinary: Cell<usize>,
    health: Cell<usize>,
    /// The connections in order of arrival.
    seats: RefCell<Vec<Seat>>,
}

struct Seat {
    line: Rc<Line>,
    /// When the connection was accepted.
    since: Instant,
    task: AbortHandle,
    evicted: bool,
}

/// The permit of a connection, held as long as its task lives.
struct Place(Rc<Line>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.worker().leave(&self.0);
    }
}

impl Worker {
    pub(super) fn new(index: usize, common: Common) -> Self {
        let mut protocol = http1::Builder::new();
        // Timeouts are handled in this module. hyper's own covers only the head, and allocates a
        // timer for each request.
        protocol.max_buf_size(REQUEST_HEAD_BYTES_MAX).header_read_timeout(None).half_close(true);
        Self {
            index,
            frames: FramePool::new(Arc::clone(&common.stats)),
            protocol,
            ordinary: Cell::new(0),
            health: Cell::new(0),
            seats: RefCell::new(Vec::with_capacity(common.limits.connections + common.limits.health_connections)),
            common,
        }
    }

    pub(super) fn routes(&self) -> &dyn Routes {
        &*self.common.routes
    }

    /// The names under which the server may be addressed. None if any name is accepted.
    pub(super) fn hosts(&self) -> Option<&Hosts> {
        self.common.hosts.as_deref()
    }

    pub(super) fn limits(&self) -> &ServeLimits {
        &self.common.limits
    }

    pub(super) fn stats(&self) -> &ServerStats {
        &self.common.stats
    }

    pub(super) fn frames(&self) -> &FramePool {
        &self.frames
    }

    pub(super) fn bell(&self) -> &Notify {
        self.common.gate.bell(self.index)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.common.gate.is_stopping()
    }

    /// How long to wait for the next request of a connection.
    pub(super) fn patience(&self) -> Duration {
        if self.is_stopping() { Duration::ZERO } else { self.common.limits.request_head_time }
    }

    /// Turns a health connection into an ordinary one, if a permit is free.
    pub(super) fn promote(&self, line: &Line) -> bool {
        if self.ordinary.get() == self.common.limits.connections {
            return false;
        }
        self.health.update(|count| count - 1);
        self.ordinary.update(|count| count + 1);
        self.common.gate.take();
        line.set_class(Class::Ordinary);
        // The last permit may now be taken while this worker waits for a connection. That
        // connection would then be for health checks alone.
        self.bell().notify_one();
        true
    }

    /// Serves until the gate signals the stop, then lets the answers in progress finish
    /// for a short time.
    pub(super) async fn run(self: Rc<Self>, listener: TcpListener) {
        while !self.is_stopping() {
            match self.accepts_from() {
                Some(due) if due <= Instant::now() => {}
                due => {
                    self.change(due).await;
                    continue;
                }
            }
            let accepted = tokio::select! {
                biased;
                () = self.bell().notified() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.seat(stream).await,
                Err(error) if is_of_one_connection(&error) => {}
                // The next call may fail as well. Without descriptors or memory, the connection
                // stays in the backlog. A broken socket stays broken.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(listener);
        self.close_idle();
        let all_left = async {
            while self.ordinary.get() + self.health.get() > 0 {
                self.bell().notified().await;
            }
        };
        let _ = timeout(self.common.limits.shutdown_time, all_left).await;
    }

    /// The time from which the worker may accept a connection, unless the state changes before.
    /// None if it cannot accept until the state changes.
    fn accepts_from(&self) -> Option<Instant> {
        let limits = self.limits();
        if self.ordinary.get() < limits.connections {
            return Some(Instant::now());
        }
        match self.common.gate.is_full() {
            false => None,
            true if self.health.get() < limits.health_connections => Some(Instant::now()),
            true => self.oldest_waiting().map(|(_, due)| due),
        }
    }

    /// Waits for the worker's notification, or until `due`.
    async fn change(&self, due: Option<Instant>) {
        let bell = self.bell().notified();
        match due {
            Some(due) => drop(timeout_at(due, bell).await),
            None => bell.await,
        }
    }

    async fn seat(self: &Rc<Self>, stream: TcpStream) {
        while self.ordinary.get() == self.common.limits.connections
            && self.health.get() == self.common.limits.health_connections
        {
            if self.is_stopping() {
                return;
            }
            match self.oldest_waiting() {
                Some((index, due)) if due <= Instant::now() => {
                    self.evict(index);
                    self.change(None).await;
                }
                waiting => self.change(waiting.map(|(_, due)| due)).await,
            }
        }
        let class = if self.ordinary.get() < self.common.limits.connections {
            self.ordinary.update(|count| count + 1);
            self.common.gate.take();
            Class::Ordinary
        } else {
            self.health.update(|count| count + 1);
            Class::Health
        };
        self.common.stats.connected();
        let line = Rc::new(Line::new(stream, Rc::clone(self), class));
        let task = spawn_local(converse(Place(Rc::clone(&line)))).abort_handle();
        self.seats.borrow_mut().push(Seat { line, since: Instant::now(), task, evicted: false });
    }

    /// The health connection that has waited longest for its client, and the time from which it may
    /// be evicted. None if one is being evicted already.
    fn oldest_waiting(&self) -> Option<(usize, Instant)> {
        let seats = self.seats.borrow();
        if seats.iter().any(|seat| seat.evicted) {
            return None;
        }
        let waits = |seat: &Seat| seat.line.class() == Class::Health && !seat.line.is_fresh();
        let index = seats.iter().position(waits)?;
        Some((index, seats[index].since + self.common.limits.health_stay))
    }

    fn evict(&self, index: usize) {
        let seat = &mut self.seats.borrow_mut()[index];
        seat.evicted = true;
        seat.task.abort();
    }

    fn close_idle(&self) {
        self.seats.borrow().iter().filter(|seat| !seat.line.is_answering()).for_each(|seat| seat.task.abort());
    }

    fn leave(&self, line: &Rc<Line>) {
        match line.class() {
            Class::Ordinary => {
                self.ordinary.update(|count| count - 1);
                self.common.gate.give();
            }
            Class::Health => self.health.update(|count| count - 1),
        }
        self.common.stats.disconnected();
        self.seats.borrow_mut().retain(|seat| !Rc::ptr_eq(&seat.line, line));
        self.bell().notify_one();
    }
}

/// Serves a connection from its first byte to its last.
async fn converse(place: Place) {
    let line = &place.0;
    let mut alarm = pin!(sleep_until(line.deadline()));
    // An idle client costs a socket and this future. hyper's 16 KiB of buffers are allocated only
    // with its first byte.
    if before_deadline(line, alarm.as_mut(), pin!(line.readable())).await.is_none() {
        return;
    }
    let io = LineIo(Rc::clone(line));
    let mut protocol = Box::pin(line.worker().protocol.serve_connection(io, Answering(Rc::clone(line))));
    // A client that disconnects or sends an invalid request is not worth a log line.
    let refused = match before_deadline(line, alarm.as_mut(), protocol.as_mut()).await {
        None => return,
        Some(outcome) => outcome.is_err_and(|error| error.is_parse()),
    };
    drop(protocol);
    if refused || line.has_unread() {
        let _ = timeout_at(Instant::now() + line.worker().limits().drain_time, line.drain(DRAIN_BYTES_MAX)).await;
    }
}

/// Runs `future` until the connection's deadline, which may change while it runs.
async fn before_deadline<F: Future>(
    line: &Line,
    mut alarm: Pin<&mut Sleep>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if alarm.deadline() != line.deadline() {
            alarm.as_mut().reset(line.deadline());
        }
        alarm.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Whether an error of accept(2) concerns only the connection that was to be accepted, which is
/// gone with it. Either the connection was aborted, or Linux passes a network error on from the new
/// socket (accept(2), "Error handling"). An interruption by a signal is no error of the socket. All
/// other errors concern the socket or the system.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
        )
    )
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::{
        task::{LocalSet, yield_now},
        time::advance,
    };

    use super::*;
    use crate::http::Reply;

    struct Nothing;

    impl Routes for Nothing {
        fn route(&self, _: &str, _: &str) -> Reply {
            Reply::text(404, "")
        }
    }

    /// The only worker of a server.
    fn worker(limits: ServeLimits) -> Rc<Worker> {
        let (gate, stats) = (Arc::new(Gate::new(1, limits.connections)), Arc::default());
        Rc::new(Worker::new(0, Common { gate, routes: Arc::new(Nothing), hosts: None, limits, stats }))
    }

    /// A client, and its connection as it is accepted. It does not wait, because a paused clock
    /// would advance while it waits.
    fn connection(listener: &std::net::TcpListener) -> (std::net::TcpStream, TcpStream) {
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        (client, TcpStream::from_std(accepted).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_health_connection_has_its_time_before_it_gives_way() {
        let limits = ServeLimits { connections: 0, health_connections: 1, ..ServeLimits::default() };
        let (stay, worker) = (limits.health_stay, worker(limits));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        LocalSet::new()
            .run_until(async {
                let begun = Instant::now();
                let (_probe, accepted) = connection(&listener);
                assert!(worker.accepts_from() == Some(begun), "the place is free");
                worker.seat(accepted).await;
                assert_eq!(worker.accepts_from(), None, "what came with it has not been looked at");
                yield_now().await;
                assert_eq!(worker.accepts_from(), Some(begun + stay), "then the next one has to wait");

                // The worker has nevertheless accepted the next one.
                let (_next, accepted) = connection(&listener);
                let mut seated = pin!(worker.seat(accepted));
                let mut cx = Context::from_waker(Waker::noop());
                advance(stay / 2).await;
                assert!(seated.as_mut().poll(&mut cx).is_pending());
                assert!(!worker.seats.borrow()[0].evicted, "it may still send its request");
                advance(stay / 2).await;
                assert!(seated.as_mut().poll(&mut cx).is_pending());
                assert!(worker.seats.borrow()[0].evicted);
                yield_now().await;
                assert!(seated.as_mut().poll(&mut cx).is_ready());
                assert_eq!(worker.seats.borrow()[0].since, begun + stay);
            })
            .await;
    }

    #[test]
    fn only_errors_of_the_connection_itself_are_passed_over_without_a_pause() {
        let of_one = |code| is_of_one_connection(&io::Error::from_raw_os_error(code));
        assert!([libc::ECONNABORTED, libc::EPROTO, libc::ENETDOWN, libc::EHOSTUNREACH].into_iter().all(of_one));
        let lasting = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EBADF, libc::EINVAL, libc::EPERM];
        assert!(!lasting.into_iter().any(of_one));
        assert!(!is_of_one_connection(&io::Error::other("not of the system")));
    }

    #[tokio::test]
    async fn a_worker_looks_again_whether_it_may_accept_when_a_promotion_took_its_last_place() {
        let limits = ServeLimits { connections: 1, health_connections: 1, ..ServeLimits::default() };
        let (gate, stats) = (Arc::new(Gate::new(2, limits.connections)), Arc::default());
        let worker = Rc::new(Worker::new(0, Common { gate, routes: Arc::new(Nothing), hosts: None, limits, stats }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let line = Line::new(stream, Rc::clone(&worker), Class::Health);
        worker.health.set(1);
        // The state while the worker waits in accept(2).
        let mut bell = pin!(worker.bell().notified());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(worker.accepts_from().is_some() && bell.as_mut().poll(&mut cx).is_pending());
        assert!(worker.promote(&line));
        assert!(bell.as_mut().poll(&mut cx).is_ready() && worker.accepts_from().is_none());
        assert!(!worker.promote(&line), "there is no other");
    }
}
