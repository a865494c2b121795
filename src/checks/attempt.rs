//! One attempt at a target, with its phases timed apart.
//!
//! An attempt is one future without a task of its own. It does not block, and what it allocates has
//! a bound that no answer moves.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use kube_canary_model::check::{CheckFailure, CheckKind, CheckPhase};
use kube_canary_model::method::Family;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::authorities::AuthoritiesFile;
use super::dns::DnsRecord;
use super::failure::failure_of_io;
use super::{CheckTarget, dns, http, icmp, stamp, tls};
use crate::sys::clock;
use crate::units::Nanos;

/// Timeout of a question to the DNS, by UDP and then by TCP. Resolvers ask again after 2 to 5 s.
const DNS_TIME: Duration = Duration::from_secs(2);
/// Timeout of an ICMP echo: the longest RTT on earth many times.
const ECHO_TIME: Duration = Duration::from_secs(2);
/// Timeout of a connection, of a STAMP request, and of an agent behind its Service. A lost SYN is
/// sent again after 1 s, and a request after 1 and 2 s.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Timeout of connection, handshake and head of the answer together.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// If a timeout is noticed later than this, the worker was busy, and the answer may have had no
/// chance.
const LATE: Duration = Duration::from_millis(100);

/// What an attempt has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The time of each phase that has ended, in the order of [`CheckPhase::ALL`].
    pub phases: [Option<Nanos>; CheckPhase::ALL.len()],
    /// Why it failed, if it did.
    pub end: Result<(), CheckFailure>,
    /// When the certificate of the target expires, in Unix seconds.
    pub certificate_not_after: Option<u64>,
    /// Whether the answer came from this agent itself, so that it says nothing of the network.
    pub is_own_answer: bool,
    /// Whether the agent behind a Service was asked from another address than that of this pod.
    pub is_rewritten: bool,
    /// The family of the address that was asked. `None` if there was none.
    pub family: Option<Family>,
}

/// What an attempt must know besides its target.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The name of this node.
    pub own_node: &'a str,
    /// The file of `--check-ca`. `None`: any certificate is accepted that is valid now.
    pub authorities: Option<&'a AuthoritiesFile>,
    /// The full name that [`CheckTarget::ClusterDns`] asks for.
    pub cluster_name: &'a str,
    /// The record that is asked of the DNS.
    pub record: DnsRecord,
}

/// Returns the time after which an attempt at this target has failed. If the worker was busy then,
/// the attempt has the same time once more.
pub const fn attempt_time(target: &CheckTarget) -> Duration {
    match target.kind() {
        CheckKind::Dns => DNS_TIME,
        CheckKind::Icmp => ECHO_TIME,
        CheckKind::Tcp | CheckKind::Udp | CheckKind::Service => CONNECT_TIME,
        CheckKind::Tls | CheckKind::Http | CheckKind::Other => ANSWER_TIME,
    }
}

/// Makes one attempt at `target`, at this address of its host, or at this server of the DNS. For an
/// ICMP echo the port is ignored. It takes at most twice [`attempt_time`].
pub async fn attempt(target: &CheckTarget, to: SocketAddr, context: &Context<'_>) -> Attempt {
    let mut found = Attempt { family: Some(Family::from_address(to.ip().to_canonical())), ..Attempt::default() };
    let end = in_time(attempt_time(target), run(target, to, context, &mut found)).await;
    Attempt { end, ..found }
}

async fn run(
    target: &CheckTarget,
    to: SocketAddr,
    context: &Context<'_>,
    found: &mut Attempt,
) -> Result<(), CheckFailure> {
    // Each kind has a future of its own size, so only that of the kind is allocated.
    match target {
        CheckTarget::Dns { name, .. } => Box::pin(dns::ask(name, to, context.record, found)).await,
        CheckTarget::ClusterDns => Box::pin(dns::ask(context.cluster_name, to, context.record, found)).await,
        CheckTarget::Tcp(_) => Box::pin(found.connect(to)).await.map(drop),
        CheckTarget::Tls(host) => Box::pin(tls::check(&host.host, to, context.authorities, found)).await,
        CheckTarget::ApiServer { server, authorities } => {
            Box::pin(tls::check(&server.host, to, Some(authorities), found)).await
        }
        CheckTarget::Http { is_secure: false, host, path } => Box::pin(http::check(host, path, to, found)).await,
        CheckTarget::Http { is_secure: true, host, path } => {
            Box::pin(http::check_secure(host, path, to, context.authorities, found)).await
        }
        CheckTarget::Icmp(_) => Box::pin(icmp::check(to.ip(), found)).await,
        CheckTarget::Udp(_) | CheckTarget::ServiceUdp(_) => Box::pin(stamp::check(to, context.own_node, found)).await,
        CheckTarget::Service(_) => Box::pin(http::check_service(to, context.own_node, found)).await,
    }
}

/// Runs `work` for at most `limit`, or once more for `limit` if its end was noticed late. What is
/// there when the limit ends still counts, because `work` is polled first.
async fn in_time(limit: Duration, work: impl Future<Output = Result<(), CheckFailure>>) -> Result<(), CheckFailure> {
    let mut work = pin!(work);
    let due = Instant::now() + limit;
    match timeout_at(due, work.as_mut()).await {
        Ok(end) => end,
        Err(_) if due.elapsed() < LATE => Err(CheckFailure::Timeout),
        Err(_) => timeout(limit, work).await.unwrap_or(Err(CheckFailure::Timeout)),
    }
}

impl Default for Attempt {
    /// Returns an attempt that has found nothing yet.
    fn default() -> Self {
        Self {
            phases: Default::default(),
            end: Ok(()),
            certificate_not_after: None,
            is_own_answer: false,
            is_rewritten: false,
            family: None,
        }
    }
}

impl Attempt {
    /// Times `work` as a phase, if it succeeds.
    pub(super) async fn timed<T>(
        &mut self,
        phase: CheckPhase,
        work: impl Future<Output = Result<T, CheckFailure>>,
    ) -> Result<T, CheckFailure> {
        let begun = clock::monotonic();
        let done = work.await?;
        self.phases[phase as usize] = Some(clock::monotonic().since(begun));
        Ok(done)
    }

    /// Opens a connection by TCP, and times it as a phase.
    pub(super) async fn connect(&mut self, to: SocketAddr) -> Result<TcpStream, CheckFailure> {
        let connecting = async { TcpStream::connect(to).await.map_err(|error| failure_of_io(&error)) };
        self.timed(CheckPhase::Connect, connecting).await
    }
}
