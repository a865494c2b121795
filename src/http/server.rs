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
    Hosts, Routes, ServerStats,
    gate::Gate,
    listen, places,
    worker::{Common, Worker},
};
use crate::{limits, priority};

/// Why the server does not start. None of these passes by itself.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Another socket has the address.
    #[error("cannot listen on {listen}: the address is in use; stop what uses it, or choose another with --listen")]
    AddressInUse {
        /// What was asked for.
        listen: SocketAddr,
    },
    /// The listening socket cannot be made.
    #[error("cannot listen on {listen}: {source}; choose an address of this host with --listen")]
    Listen {
        /// What was asked for.
        listen: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A number of workers outside 1 to [`limits::HTTP_WORKERS_MAX`].
    #[error("{workers} HTTP workers: 1 to {max} are possible; set --http-workers", max = limits::HTTP_WORKERS_MAX)]
    Workers {
        /// What was asked for.
        workers: usize,
    },
    /// Not even one connection for each worker.
    #[error(
        "{available} file descriptors are too few, {needed} are needed: raise the limit of open files \
         (RLIMIT_NOFILE), or use fewer --http-workers"
    )]
    Descriptors {
        /// The limit.
        available: usize,
        /// What one connection of each class takes for each worker.
        needed: usize,
    },
    /// A worker's thread, or its event loop, cannot be made.
    #[error("cannot start HTTP worker {worker}: {source}; it needs a thread and 5 file descriptors")]
    Start {
        /// Which one, from 0.
        worker: usize,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The bounds of a server. The default is [`limits`]; tests use shorter times.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections that one worker serves.
    pub connections: usize,
    /// Connections that one worker takes beyond those, for health alone.
    pub health_connections: usize,
    /// How long a health connection stays at least before it gives way to the next.
    pub health_stay: Duration,
    /// How long a connection may be idle, or take to send a request's head.
    pub request_head_time: Duration,
    /// How long one response may take to be read.
    pub response_time: Duration,
    /// How long a refused request is read and forgotten.
    pub drain_time: Duration,
    /// How long a shutdown waits for responses under way.
    pub shutdown_time: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_PER_WORKER,
            health_connections: limits::HEALTH_CONNECTIONS_PER_WORKER,
            health_stay: limits::HEALTH_STAY_MIN,
            request_head_time: limits::REQUEST_HEAD_TIME,
            response_time: limits::RESPONSE_TIME,
            drain_time: limits::DRAIN_TIME,
            shutdown_time: limits::HTTP_SHUTDOWN_TIME,
        }
    }
}

/// A socket that listens, before any thread serves it: clients queue up in its backlog.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    stats: Arc<ServerStats>,
    hosts: Option<Arc<Hosts>>,
}

impl Bound {
    /// The address that is listened on: with the port that the kernel chose if port 0 was asked for, and `0.0.0.0` where
    /// the host has no IPv6.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What the server will count.
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.stats)
    }

    /// Refuses requests that are sent to another name with 403, `/metrics` and the paths of health
    /// excepted. Without this, every name is accepted.
    #[must_use]
    pub fn only_for(self, hosts: Hosts) -> Self {
        Self { hosts: Some(Arc::new(hosts)), ..self }
    }

    /// Starts exactly `workers` threads, named `http-0` and on, and none later. Each serves as many
    /// connections as [`limits`] says, or fewer if there are not enough file descriptors.
    ///
    /// # Errors
    /// [`ServeError::Workers`], [`ServeError::Descriptors`] and [`ServeError::Start`]; no thread is
    /// left behind then.
    pub fn start(self, workers: usize, routes: Arc<dyn Routes>) -> Result<Server, ServeError> {
        check(workers)?;
        let limits = places::available(ServeLimits::default(), workers)?;
        self.start_with(workers, routes, limits)
    }

    /// [`Bound::start`] with bounds of one's own, whatever the file descriptors allow.
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
        let gate = Arc::new(Gate::new(workers, limits.connections));
        let (hosts, stats) = (self.hosts, Arc::clone(&self.stats));
        let common = Common { gate: Arc::clone(&gate), routes, hosts, limits, stats };
        // From here on, an early return drops the server, which stops the threads that did start.
        let mut server =
            Server { gate, threads: Vec::with_capacity(workers), address: self.address, stats: self.stats };
        let (ready, started) = mpsc::sync_channel(workers);
        for worker in 0..workers {
            let failed = |source| ServeError::Start { worker, source };
            let listener = self.listener.try_clone().map_err(failed)?;
            let (common, ready) = (common.clone(), ready.clone());
            let thread = thread::Builder::new()
                .name(format!("http-{worker}"))
                .stack_size(limits::HTTP_WORKER_STACK_BYTES)
                .spawn(move || {
                    priority::of_http();
                    let (runtime, listener) = match event_loop(listener) {
                        Ok(made) => made,
                        Err(source) => return drop(ready.send(Err(ServeError::Start { worker, source }))),
                    };
                    drop(ready.send(Ok(())));
                    runtime.block_on(Rc::new(Worker::new(worker, common)).run(listener));
                })
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

/// A worker's event loop, and the socket registered with it. The event loop cannot leave the thread that made it.
fn event_loop(listener: TcpListener) -> io::Result<(LocalRuntime, tokio::net::TcpListener)> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Room for the events of one turn: there are no more connections than this.
        .max_io_events_per_tick(32)
        .build_local(LocalOptions::default())?;
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

/// A running server. Dropping it is [`Server::shutdown`].
#[derive(Debug)]
pub struct Server {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<()>>,
    address: SocketAddr,
    stats: Arc<ServerStats>,
}

impl Server {
    /// Opens the listening socket. `[::]` takes both families, and is `0.0.0.0` where the host has no IPv6.
    ///
    /// # Errors
    /// [`ServeError::AddressInUse`] and [`ServeError::Listen`].
    pub fn bind(listen: SocketAddr) -> Result<Bound, ServeError> {
        let failed = |source| ServeError::Listen { listen, source };
        let listener = listen::open(listen)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Bound { listener, address, stats: Arc::default(), hosts: None })
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What the server counts.
    pub fn stats(&self) -> Arc<ServerStats> {
        Arc::clone(&self.stats)
    }

    /// Stops accepting, lets responses under way finish for [`ServeLimits::shutdown_time`], and joins the threads.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.gate.stop();
        for thread in self.threads.drain(..) {
            // A panic there has been reported by the hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}
