//! One worker thread, and each of its connections from accept to close. This is the server's state
//! machine. The files that it imports do not know it.
//!
//! ```text
//!  backlog of the kernel
//!    │ accepted, and given a permit         Worker::run, Worker::admit
//!    ▼
//!  New
//!    │ tried to read                        serve, ServedConnection::tried_to_read
//!    ▼
//!  Waiting ◀──┐                             before_deadline
//!    │ head   │ body ended, and all written ServedConnection::answer, poll_flush
//!    ▼        │
//!  Answering ─┘                             AnswerBody::poll_frame, frame by frame
//!
//!  At the end, in any phase: drained if bytes are unread, and closed. Then the permit is free.
//! ```
//!
//! All connections of a worker live on its thread, hence `Rc` and `Cell`. The rules of accepting:
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
    convert::Infallible,
    future::{Future, poll_fn},
    io::{self, IoSlice},
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use kube_canary_kernel::stack;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{AbortHandle, spawn_local},
    time::{Duration, Instant, Sleep, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    BACKGROUND_PARTS, Hosts, Reply, Routes, ServeLimits, ServerStats,
    answer::{self, AnswerForm},
    body::AnswerBody,
    permits::Permits,
    socket::{ClientSocket, FramePool},
};
use crate::limits::{ACCEPT_PAUSE, REQUEST_HEAD_BYTES_MAX};

/// Time from an answer until the worker gives back the stack that it has used. Answers in between
/// share it.
const REST_AFTER_ANSWER: Duration = Duration::from_millis(500);
/// The longest time between two rests of a worker that has work beside its connections.
const REST_OF_BACKGROUND: Duration = Duration::from_secs(10);

/// What all workers share.
pub(super) struct SharedByWorkers {
    pub(super) permits: Arc<Permits>,
    pub(super) routes: Arc<dyn Routes>,
    /// The accepted host names. None accepts every name.
    pub(super) hosts: Option<Hosts>,
    pub(super) limits: ServeLimits,
    pub(super) stats: Arc<ServerStats>,
}

/// A worker: its permits, and what its connections share.
pub(super) struct Worker {
    index: usize,
    shared: Arc<SharedByWorkers>,
    frames: Rc<FramePool>,
    protocol: http1::Builder,
    /// Notified when an answer begins.
    answers: Notify,
    /// The connections in order of arrival, with their tasks.
    connections: RefCell<Vec<(Rc<ServedConnection>, AbortHandle)>>,
}

/// What a connection may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionClass {
    /// Any path may be requested.
    Ordinary,
    /// Only the health checks may be requested.
    Health,
}

/// The phase of a connection in the diagram above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// The server has not yet checked for bytes that arrived with the connection. The connection
    /// must not be evicted as idle before.
    New,
    /// The head of a request is not complete.
    Waiting,
    /// A request was read, and its answer is not written yet.
    Answering,
    /// Its task is about to be dropped, to make room for the next connection.
    Evicted,
}

/// A client's connection, shared by its task and its worker.
struct ServedConnection {
    socket: Rc<ClientSocket>,
    worker: Rc<Worker>,
    accepted: Instant,
    class: Cell<ConnectionClass>,
    phase: Cell<ConnectionPhase>,
    /// When the client must have sent a request, or read its answer.
    deadline: Cell<Instant>,
    /// Whether the client may continue to send bytes that the server will not read.
    unread: Cell<bool>,
}

/// The permit of a connection, held as long as its task lives.
struct Permit(Rc<ServedConnection>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.worker.release(&self.0);
    }
}

impl Worker {
    pub(super) fn new(index: usize, shared: Arc<SharedByWorkers>) -> Self {
        let mut protocol = http1::Builder::new();
        // Timeouts are handled in this module. hyper's own covers only the head, and allocates a
        // timer for each request.
        protocol.max_buf_size(REQUEST_HEAD_BYTES_MAX).header_read_timeout(None).half_close(true);
        let connections_max = shared.limits.connections + shared.limits.health_connections;
        Self {
            index,
            frames: Rc::new(FramePool::new(Arc::clone(&shared.stats))),
            protocol,
            answers: Notify::new(),
            connections: RefCell::new(Vec::with_capacity(connections_max)),
            shared,
        }
    }

    fn notify(&self) -> &Notify {
        self.shared.permits.notify(self.index)
    }

    fn is_stopping(&self) -> bool {
        self.shared.permits.is_stopping()
    }

    /// Serves until the server stops, then lets the answers in progress finish for a short time.
    pub(super) async fn run(self: Rc<Self>, listener: TcpListener) {
        let parts = (0..BACKGROUND_PARTS).filter(|part| part % self.shared.permits.workers() == self.index);
        let mut background: Vec<_> =
            parts.filter_map(|part| self.shared.routes.background(part)).map(spawn_local).collect();
        background.push(spawn_local(Rc::clone(&self).rest(!background.is_empty())));
        while !self.is_stopping() {
            let due = self.accepts_from();
            if due.is_none_or(|due| due > Instant::now()) {
                self.change(due).await;
                continue;
            }
            let accepted = tokio::select! {
                biased;
                () = self.notify().notified() => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.admit(stream).await,
                Err(error) if concerns_one_connection(&error) => {}
                // The next call may fail as well. Without descriptors or memory, the connection
                // stays in the backlog. A broken socket stays broken.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(listener);
        for task in background {
            task.abort();
        }
        for (connection, task) in &*self.connections.borrow() {
            if connection.phase.get() != ConnectionPhase::Answering {
                task.abort();
            }
        }
        let all_closed = async {
            while !self.connections.borrow().is_empty() {
                self.notify().notified().await;
            }
        };
        let _ = timeout(self.shared.limits.shutdown_time, all_closed).await;
    }

    /// Gives back the stack that answers, and the work beside them, have used.
    async fn rest(self: Rc<Self>, has_background: bool) {
        loop {
            let answers = self.answers.notified();
            if has_background {
                _ = timeout(REST_OF_BACKGROUND, answers).await;
            } else {
                answers.await;
            }
            sleep(REST_AFTER_ANSWER).await;
            stack::give_back();
        }
    }

    /// The time from which the worker may accept a connection, unless the state changes before.
    /// None if it cannot accept until the state changes.
    fn accepts_from(&self) -> Option<Instant> {
        match self.free_class() {
            Some(ConnectionClass::Ordinary) => Some(Instant::now()),
            _ if !self.shared.permits.all_taken() => None,
            Some(ConnectionClass::Health) => Some(Instant::now()),
            None => self.oldest_waiting().map(|(_, due)| due),
        }
    }

    /// The class that a new connection gets. None if all permits of this worker are taken.
    fn free_class(&self) -> Option<ConnectionClass> {
        let connections = self.connections.borrow();
        let ordinary =
            connections.iter().filter(|(connection, _)| connection.class.get() == ConnectionClass::Ordinary).count();
        let SharedByWorkers { limits, .. } = &*self.shared;
        if ordinary < limits.connections {
            return Some(ConnectionClass::Ordinary);
        }
        (connections.len() - ordinary < limits.health_connections).then_some(ConnectionClass::Health)
    }

    /// Waits for the worker's notification, or until `due`.
    async fn change(&self, due: Option<Instant>) {
        let notified = self.notify().notified();
        match due {
            Some(due) => drop(timeout_at(due, notified).await),
            None => notified.await,
        }
    }

    /// Gives a connection a permit, and starts its task. Evicts a health connection if
    /// no permit is free.
    async fn admit(self: &Rc<Self>, stream: TcpStream) {
        let class = loop {
            if let Some(class) = self.free_class() {
                break class;
            }
            if self.is_stopping() {
                return;
            }
            match self.oldest_waiting() {
                Some((index, due)) if due <= Instant::now() => {
                    let (connection, task) = &self.connections.borrow()[index];
                    connection.phase.set(ConnectionPhase::Evicted);
                    task.abort();
                }
                waiting => self.change(waiting.map(|(_, due)| due)).await,
            }
        };
        if class == ConnectionClass::Ordinary {
            self.shared.permits.take();
        }
        self.shared.stats.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Rc::new(ServedConnection::new(stream, Rc::clone(self), class));
        let task = spawn_local(serve(Permit(Rc::clone(&connection)))).abort_handle();
        self.connections.borrow_mut().push((connection, task));
    }

    /// The health connection that has waited longest for its client, and the time from which it may
    /// be evicted. None if one is being evicted already.
    fn oldest_waiting(&self) -> Option<(usize, Instant)> {
        let connections = self.connections.borrow();
        if connections.iter().any(|(connection, _)| connection.phase.get() == ConnectionPhase::Evicted) {
            return None;
        }
        let waits = |connection: &ServedConnection| {
            connection.class.get() == ConnectionClass::Health && connection.phase.get() != ConnectionPhase::New
        };
        let index = connections.iter().position(|(connection, _)| waits(connection))?;
        Some((index, connections[index].0.accepted + self.shared.limits.health_stay))
    }

    /// Turns a health connection into an ordinary one, if a permit is free.
    fn promote(&self, connection: &ServedConnection) -> bool {
        if self.free_class() != Some(ConnectionClass::Ordinary) {
            return false;
        }
        self.shared.permits.take();
        connection.class.set(ConnectionClass::Ordinary);
        // The last permit may now be taken while this worker waits for a connection. That
        // connection would then be for health checks alone.
        self.notify().notify_one();
        true
    }

    /// Records that a connection is closed, and its permit free.
    fn release(&self, closed: &Rc<ServedConnection>) {
        self.connections.borrow_mut().retain(|(connection, _)| !Rc::ptr_eq(connection, closed));
        if closed.class.get() == ConnectionClass::Ordinary {
            self.shared.permits.give();
        }
        self.shared.stats.connections.fetch_sub(1, Ordering::Relaxed);
        self.notify().notify_one();
    }
}

/// Serves a connection from its first byte to its last.
///
/// hyper implements the protocol, but does not say when an answer is completely written. It also
/// allocates 16 KiB for a client that has not sent a byte. Both are visible at the socket: hyper
/// flushes it once everything is written, and it becomes readable before hyper is needed.
async fn serve(permit: Permit) {
    let connection = &*permit.0;
    let mut timer = pin!(sleep_until(connection.deadline.get()));
    let readable = pin!(connection.socket.readable(|| connection.tried_to_read()));
    if before_deadline(connection, timer.as_mut(), readable).await.is_none() {
        return;
    }
    let service = service_fn(|request| connection.answer(&request));
    let mut protocol = Box::pin(connection.worker.protocol.serve_connection(connection, service));
    // A client that disconnects or sends an invalid request is not worth a log line.
    let refused = match before_deadline(connection, timer.as_mut(), protocol.as_mut()).await {
        None => return,
        Some(outcome) => outcome.is_err_and(|error| error.is_parse()),
    };
    drop(protocol);
    if refused || connection.unread.get() {
        let _ = timeout(connection.worker.shared.limits.drain_time, connection.socket.drain()).await;
    }
}

/// Runs `future` until the connection's deadline, which may change while it runs.
async fn before_deadline<F: Future>(
    connection: &ServedConnection,
    mut timer: Pin<&mut Sleep>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if timer.deadline() != connection.deadline.get() {
            timer.as_mut().reset(connection.deadline.get());
        }
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

impl ServedConnection {
    fn new(stream: TcpStream, worker: Rc<Worker>, class: ConnectionClass) -> Self {
        let accepted = Instant::now();
        Self {
            socket: Rc::new(ClientSocket::new(stream, Rc::clone(&worker.frames))),
            accepted,
            class: Cell::new(class),
            phase: Cell::new(ConnectionPhase::New),
            deadline: Cell::new(accepted + worker.shared.limits.request_head_time),
            unread: Cell::new(false),
            worker,
        }
    }

    /// Records that the bytes that arrived with the connection have been read.
    fn tried_to_read(&self) {
        if self.phase.get() == ConnectionPhase::New {
            self.phase.set(ConnectionPhase::Waiting);
            if self.class.get() == ConnectionClass::Health {
                self.worker.notify().notify_one();
            }
        }
    }

    /// Answers a request whose head is complete.
    fn answer(
        &self,
        request: &Request<Incoming>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + use<'_> {
        let (socket, shared) = (&self.socket, &self.worker.shared);
        self.phase.set(ConnectionPhase::Answering);
        self.worker.answers.notify_one();
        self.deadline.set(Instant::now() + shared.limits.response_time);
        // This holds even before the body is known: hyper may flush in between, which would look
        // like the end of the answer.
        socket.has_body.set(true);
        let form = AnswerForm::new(request);
        self.unread.update(|unread| unread || form.closes);
        let reply = self.reply(request);
        async move {
            let reply = reply.known(|| socket.client()).await;
            let mut response = form.respond(reply, Rc::clone(socket), &shared.stats);
            let is_refused = response.status() == StatusCode::SERVICE_UNAVAILABLE;
            if form.closes || is_refused || self.worker.is_stopping() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    }

    fn reply(&self, request: &Request<Incoming>) -> Reply {
        let SharedByWorkers { routes, hosts, stats, .. } = &*self.worker.shared;
        let path = request.uri().path();
        let refusal = answer::refusal(request, hosts.as_ref());
        let may_request =
            || answer::is_health(path) || self.class.get() == ConnectionClass::Ordinary || self.worker.promote(self);
        if refusal.is_none() && !may_request() {
            stats.refused.fetch_add(1, Ordering::Relaxed);
            return Reply::text(503, "every place is taken; try again\n");
        }
        stats.requests.fetch_add(1, Ordering::Relaxed);
        refusal.unwrap_or_else(|| {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Reply::text(405, "only GET and HEAD are answered\n");
            }
            let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
            routes.route(path, accept)
        })
    }
}

impl Read for &ServedConnection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_read(cx, into, || self.tried_to_read())
    }
}

impl Write for &ServedConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper calls this once all its bytes are written.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.phase.get() == ConnectionPhase::Answering && !self.socket.has_body.get() {
            self.phase.set(ConnectionPhase::Waiting);
            let head_time = self.worker.shared.limits.request_head_time;
            self.deadline.set(Instant::now() + if self.worker.is_stopping() { Duration::ZERO } else { head_time });
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.end_writing())
    }
}

/// Whether an error of accept(2) concerns only the connection that was to be accepted, which is
/// gone with it. Either the connection was aborted, or Linux passes a network error on from the new
/// socket (accept(2), "Error handling"). An interruption by a signal is no error of the socket. All
/// other errors concern the socket or the system.
fn concerns_one_connection(error: &io::Error) -> bool {
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
    use std::task::Waker;

    use tokio::{
        task::{LocalSet, yield_now},
        time::advance,
    };

    use super::*;

    struct NoRoutes;

    impl Routes for NoRoutes {
        fn route(&self, _: &str, _: &str) -> Reply {
            Reply::text(404, "")
        }
    }

    /// The first worker of a server of this many.
    fn worker(workers: usize, limits: ServeLimits) -> Rc<Worker> {
        let (permits, stats) = (Arc::new(Permits::new(workers, limits.connections)), Arc::default());
        Rc::new(Worker::new(
            0,
            Arc::new(SharedByWorkers { permits, routes: Arc::new(NoRoutes), hosts: None, limits, stats }),
        ))
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
    async fn a_health_connection_is_evicted_only_after_its_minimum_stay() {
        let limits = ServeLimits { connections: 0, health_connections: 1, ..ServeLimits::default() };
        let (stay, worker) = (limits.health_stay, worker(1, limits));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        LocalSet::new()
            .run_until(async {
                let begun = Instant::now();
                let (_probe, accepted) = connection(&listener);
                assert!(worker.accepts_from() == Some(begun), "a permit is free");
                worker.admit(accepted).await;
                assert_eq!(worker.accepts_from(), None, "its first bytes have not been read");
                yield_now().await;
                assert_eq!(worker.accepts_from(), Some(begun + stay), "then the next one has to wait");

                // The worker has nevertheless accepted the next one.
                let (_next, accepted) = connection(&listener);
                let mut admitted = pin!(worker.admit(accepted));
                let mut cx = Context::from_waker(Waker::noop());
                let phase = || worker.connections.borrow()[0].0.phase.get();
                advance(stay / 2).await;
                assert!(admitted.as_mut().poll(&mut cx).is_pending());
                assert_eq!(phase(), ConnectionPhase::Waiting, "it may still send its request");
                advance(stay / 2).await;
                assert!(admitted.as_mut().poll(&mut cx).is_pending());
                assert_eq!(phase(), ConnectionPhase::Evicted);
                yield_now().await;
                assert!(admitted.as_mut().poll(&mut cx).is_ready());
                assert_eq!(worker.connections.borrow()[0].0.accepted, begun + stay);
            })
            .await;
    }

    #[test]
    fn only_errors_of_one_connection_are_ignored_without_a_pause() {
        let concerns_one = |code| concerns_one_connection(&io::Error::from_raw_os_error(code));
        assert!([libc::ECONNABORTED, libc::EPROTO, libc::ENETDOWN, libc::EHOSTUNREACH].into_iter().all(concerns_one));
        let lasting = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EBADF, libc::EINVAL, libc::EPERM];
        assert!(!lasting.into_iter().any(concerns_one));
        assert!(!concerns_one_connection(&io::Error::other("not of the system")));
    }

    #[tokio::test]
    async fn a_promotion_that_takes_the_last_permit_notifies_the_worker() {
        let limits = ServeLimits { connections: 1, health_connections: 1, ..ServeLimits::default() };
        let worker = worker(2, limits);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        LocalSet::new()
            .run_until(async {
                let (_client, accepted) = connection(&listener);
                let connection = Rc::new(ServedConnection::new(accepted, Rc::clone(&worker), ConnectionClass::Health));
                let task = spawn_local(async {}).abort_handle();
                worker.connections.borrow_mut().push((Rc::clone(&connection), task));
                // The state while the worker waits in accept(2).
                let mut notified = pin!(worker.notify().notified());
                let mut cx = Context::from_waker(Waker::noop());
                assert!(worker.accepts_from().is_some() && notified.as_mut().poll(&mut cx).is_pending());
                assert!(worker.promote(&connection));
                assert!(notified.as_mut().poll(&mut cx).is_ready() && worker.accepts_from().is_none());
                assert!(!worker.promote(&connection), "no other permit is free");
                // The worker and its connections hold each other.
                worker.connections.borrow_mut().clear();
            })
            .await;
    }
}
