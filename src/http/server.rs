//! The worker pool: a fixed number of threads over one listening socket.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::{
    Hosts, Routes, ServerStats, listen,
    permits::Permits,
    places,
    worker::{SharedByWorkers, Worker},
};
use crate::limits;
use crate::sys::priority;

/// Minimum time that a health connection stays before the next one may evict it. A kubelet sends
/// its request once it learns that it is connected: within a millisecond, or one time slice later
/// (3 ms) on a busy node. It must not be evicted in that time.
///
/// A longer time would help an attacker. The 16 health permits of four workers take 3,200
/// connections a second, so a full backlog is served in 40 ms. At 100 ms they would take 160 a
/// second. The kubelet's connection would then wait behind 128 others in the backlog for 0.8 s of
/// its 1 s timeout (Kubernetes' default).
const HEALTH_STAY_MIN: Duration = Duration::from_millis(5);
/// How long discarding a refused request may take.
const DRAIN_TIME: Duration = Duration::from_millis(250);
/// Stack of an HTTP worker. After parallel scrapes, 28 KiB were measured in a release build and 68
/// KiB in a debug build. Untouched pages cost nothing.
const STACK_BYTES: usize = 192 * 1_024;
const _: () = assert!(DRAIN_TIME.as_millis() < limits::HTTP_SHUTDOWN_TIME.as_millis());

/// The reason why the server does not start. None of these is temporary.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Another socket uses the address.
    #[error("cannot listen on {listen}: the address is in use; stop what uses it, or choose another with --listen")]
    AddressInUse {
        /// The address that was requested.
        listen: SocketAddr,
    },
    /// The address is not of this host, or not permitted.
    #[error("cannot listen on {listen}: {source}; choose an address of this host, and a permitted port, with --listen")]
    Listen {
        /// The address that was requested.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel lacks what the listening socket needs, whatever its address.
    #[error("cannot open the socket for HTTP at {listen}: {source}")]
    Socket {
        /// The address that was requested.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The number of workers is outside 1 to [`limits::HTTP_WORKERS_MAX`].
    #[error("{workers} HTTP workers: 1 to {max} are possible; set --http-workers", max = limits::HTTP_WORKERS_MAX)]
    Workers {
        /// The number that was requested.
        workers: usize,
    },
    /// There are too few descriptors for even one connection of each class for each worker.
    #[error(
        "{available} file descriptors are too few, {needed} are needed: raise the limit of open files \
         (RLIMIT_NOFILE), or use fewer --http-workers"
    )]
    Descriptors {
        /// The limit of open files.
        available: usize,
        /// Number of descriptors for one connection of each class for each worker.
        needed: usize,
    },
    /// The thread or the event loop of a worker cannot be created.
    #[error("cannot start HTTP worker {worker}: {source}; it needs a thread and 5 file descriptors")]
    Start {
        /// The number of the worker, from 0.
        worker: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The limits of a server. The default is [`limits`]; tests use shorter times.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Number of connections that one worker serves.
    pub connections: usize,
    /// Number of connections that one worker accepts in addition, for health checks alone.
    pub health_connections: usize,
    /// How long a health connection stays at least before the next one may replace it.
    pub health_stay: Duration,
    /// How long a connection may be idle, or take to send a request's head.
    pub request_head_time: Duration,
    /// How long the client may take to read one response.
    pub response_time: Duration,
    /// How long the bytes of a refused request are read and discarded.
    pub drain_time: Duration,
    /// How long a shutdown waits for responses in progress.
    pub shutdown_time: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_PER_WORKER,
            health_connections: limits::HEALTH_CONNECTIONS_PER_WORKER,
            health_stay: HEALTH_STAY_MIN,
            request_head_time: limits::REQUEST_HEAD_TIME,
            response_time: limits::RESPONSE_TIME,
            drain_time: DRAIN_TIME,
            shutdown_time: limits::HTTP_SHUTDOWN_TIME,
        }
    }
}

/// A listening socket without threads yet: clients wait in its backlog.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    stats: Arc<ServerStats>,
    hosts: Option<Hosts>,
}

impl Bound {
    /// Returns the address of the listening socket. It has the port that the kernel chose if port 0
    /// was requested, and is `0.0.0.0` if `[::]` was requested and the host has no IPv6.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of the future server.
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.stats)
    }

    /// Refuses requests that are sent to another host name with 403, except for `/metrics` and the
    /// health paths. Without this, every name is accepted.
    #[must_use]
    pub fn only_for(self, hosts: Hosts) -> Self {
        Self { hosts: Some(hosts), ..self }
    }

    /// Starts exactly `workers` threads, named `http-0` and so on. No thread is started
    /// later. Each serves as many connections as [`limits`] says, or fewer if there are
    /// not enough file descriptors.
    ///
    /// # Errors
    /// [`ServeError::Workers`], [`ServeError::Descriptors`] and [`ServeError::Start`]. No
    /// thread is left running in these cases.
    pub fn start(self, workers: usize, routes: Arc<dyn Routes>) -> Result<Server, ServeError> {
        check(workers)?;
        let limits = places::available(ServeLimits::default(), workers)?;
        self.start_with(workers, routes, limits)
    }

    /// Does the same as [`Bound::start`] with the given limits, regardless of the file descriptors.
    ///
    /// # Errors
    /// [`ServeError::Workers`] and [`ServeError::Start`], as [`Bound::start`].
    pub fn start_with(
        self,
        workers: usize,
        routes: Arc<dyn Routes>,
        limits: ServeLimits,
    ) -> Result<Server, ServeError> {
        check(workers)?;
        let permits = Arc::new(Permits::new(workers, limits.connections));
        let (address, stats) = (self.address, self.stats);
        let shared = SharedByWorkers {
            permits: Arc::clone(&permits),
            routes,
            hosts: self.hosts,
            limits,
            stats: Arc::clone(&stats),
        };
        let shared = Arc::new(shared);
        // From here on, an early return drops the server, which stops the threads that were
        // started.
        let mut server = Server { permits, threads: Vec::with_capacity(workers), address, stats };
        let (ready, started) = mpsc::sync_channel(workers);
        for worker in 0..workers {
            let failed = move |source| ServeError::Start { worker, source };
            let listener = self.listener.try_clone().map_err(failed)?;
            let (shared, ready) = (Arc::clone(&shared), ready.clone());
            let serve = move || {
                priority::mark_http_thread();
                match event_loop(listener) {
                    Ok((runtime, listener)) => {
                        drop(ready.send(Ok(())));
                        runtime.block_on(Rc::new(Worker::new(worker, shared)).run(listener));
                    }
                    Err(source) => drop(ready.send(Err(failed(source)))),
                }
            };
            let thread = thread::Builder::new()
                .name(format!("http-{worker}"))
                .stack_size(STACK_BYTES)
                .spawn(serve)
                .map_err(failed)?;
            server.threads.push(thread);
        }
        drop(ready);
        started.iter().take(workers).collect::<Result<(), _>>()?;
        Ok(server)
    }
}

const fn check(workers: usize) -> Result<(), ServeError> {
    if workers == 0 || workers > limits::HTTP_WORKERS_MAX { Err(ServeError::Workers { workers }) } else { Ok(()) }
}

/// Creates a worker's event loop, and registers the socket with it. The event loop cannot leave the
/// thread that created it.
fn event_loop(listener: TcpListener) -> io::Result<(LocalRuntime, tokio::net::TcpListener)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Room for the events of one turn. A worker has no more connections than this.
        .max_io_events_per_tick(32)
        .build_local(LocalOptions::default())?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

/// A running server. Dropping it has the same effect as [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    permits: Arc<Permits>,
    threads: Vec<JoinHandle<()>>,
    address: SocketAddr,
    stats: Arc<ServerStats>,
}

impl Server {
    /// Opens the listening socket. `[::]` accepts both families, and becomes `0.0.0.0` if the
    /// host has no IPv6.
    ///
    /// # Errors
    /// [`ServeError::AddressInUse`], [`ServeError::Listen`] and [`ServeError::Socket`].
    pub fn bind(listen: SocketAddr) -> Result<Bound, ServeError> {
        let failed = |source| ServeError::Socket { listen, source };
        let listener = listen::open(listen)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Bound { listener, address, stats: Arc::default(), hosts: None })
    }

    /// Returns the address of the listening socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of the server.
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.stats)
    }

    /// Stops accepting, lets responses in progress finish for [`ServeLimits::shutdown_time`],
    /// and joins the threads.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.permits.stop();
        for thread in self.threads.drain(..) {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}
