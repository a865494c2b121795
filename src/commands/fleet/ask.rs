//! Requests to agents: which agents, over which connection, and how many at once.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, StatusCode, header};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{AgentUrl, Agents, Host};
use crate::discovery::dns::{self, AddressFamily, ResolveError, Servers};
use crate::http::client::{GetError, HttpConnection, RequestBody};
use crate::http::lines::BodyLines;
use crate::limits::{AGENTS_MAX, REPORT_BYTES_MAX};
use crate::report::{self, Network, Peer, Report};
use crate::sys::console;

/// Agents that are asked at once. Each report stays in memory until it is read: 1.3 MB for one
/// with 5,000 peers.
const AGENTS_AT_ONCE: usize = 8;
/// Timeout of one agent, the look-up of its name included. An agent renders a report of 5,000 peers
/// in about 50 ms.
pub const AGENT_TIME: Duration = Duration::from_secs(10);
/// How long an agent has before [`first`] asks the next one too. It asks three judges at a time,
/// each of which has 1 s.
const STEP: Duration = Duration::from_secs(1);
/// Agents that are asked in the order in which they are given: each of them has its turn within
/// [`AGENT_TIME`].
const ASKED_IN_ORDER_MAX: usize = 10;
/// Agents that answer something else, after which no other is asked: they are of another version,
/// or the mesh has no judge.
const REFUSALS_MAX: usize = 3;
/// Timeout of the agent beside the command, if it may not be there.
const OWN_TIME: Duration = Duration::from_secs(1);

/// The reason why an agent has given no report.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The name has no address.
    #[error("{0}")]
    Resolve(#[from] ResolveError),
    /// The connection failed or broke, or the request was refused.
    #[error("{0}")]
    Get(#[from] GetError),
    /// Another program listens at the address.
    #[error("{path} is not what an agent says: {reason}")]
    Foreign {
        /// The path of the request.
        path: &'static str,
        /// What is wrong with the answer.
        reason: String,
    },
}

impl AskError {
    /// Whether something has answered, and not with what was asked for.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Foreign { .. } | Self::Get(GetError::Status(_)))
    }
}

/// The agents that are asked now.
#[derive(Debug)]
pub struct Targets {
    /// Their URLs. In a pod, the first is the agent beside the command.
    pub urls: Vec<AgentUrl>,
    /// Why the Service could not be resolved, if the list of the agent beside the command is a part
    /// of the mesh. The other members are not asked.
    pub unresolved: Option<ResolveError>,
}

/// Returns the agents to ask now: the pods of a Service change. If the agent beside the command
/// knows all members, no name is resolved.
///
/// # Errors
/// [`ResolveError`] of a Service. The name in a URL is resolved only when it is asked.
pub async fn targets(agents: &Agents) -> Result<Targets, ResolveError> {
    let (name, port, own) = match agents {
        Agents::Urls(urls) => return Ok(Targets { urls: urls.clone(), unresolved: None }),
        Agents::Service { name, port, own } => (name, *port, own.as_ref()),
    };
    let listed = match own {
        Some(own) => ListedAgents::ask(own).await,
        None => None,
    };
    if let Some(ListedAgents { urls, is_whole: true }) = listed {
        return Ok(Targets { urls, unresolved: None });
    }
    match (dns::service_addresses(&Servers::System, name).await, listed) {
        (Ok(mut addresses), _) => {
            if addresses.len() > AGENTS_MAX {
                console::print_error(format_args!(
                    "{name}: {} addresses, of which {AGENTS_MAX} are asked",
                    addresses.len()
                ));
                addresses.truncate(AGENTS_MAX);
            }
            let urls = addresses.into_iter().map(|a| AgentUrl { host: Host::Address(a), port }).collect();
            Ok(Targets { urls, unresolved: None })
        }
        (Err(error), Some(ListedAgents { urls, .. })) => Ok(Targets { urls, unresolved: Some(error) }),
        (Err(error), None) => Err(error),
    }
}

/// Returns the addresses of a node's pod in the pods' network, as the agent beside the command
/// lists them. Empty if no agent answers there within [`OWN_TIME`], or if it lists no such node.
pub async fn node_addresses(own: &AgentUrl, node: &str, family: AddressFamily) -> Vec<IpAddr> {
    let Ok(text) = within(OWN_TIME, report(own)).await else { return Vec::new() };
    serde_json::from_slice(&text).map_or_else(|_| Vec::new(), |report| addresses_in_report(own, node, family, &report))
}

fn addresses_in_report(own: &AgentUrl, node: &str, family: AddressFamily, report: &Report<'_>) -> Vec<IpAddr> {
    let is_asked_for = |peer: &&Peer<'_>| peer.network == Network::Pod && peer.node == node && peer.state.is_evidence();
    let listed = report.peers.iter().filter(is_asked_for).filter_map(|peer| peer.address);
    // A report has no address of its own agent.
    let itself = match own.host {
        Host::Address(address) if report.source.node == node => Some(address),
        _ => None,
    };
    let mut addresses: Vec<IpAddr> = itself.into_iter().chain(listed).collect();
    addresses.retain(|address| family.accepts(*address));
    addresses
}

/// The agents that the agent beside the command lists, and itself.
struct ListedAgents {
    urls: Vec<AgentUrl>,
    /// Whether these are all members of the mesh.
    is_whole: bool,
}

impl ListedAgents {
    /// Asks the agent beside the command. `None` if none answers there, or if it has no list yet.
    async fn ask(own: &AgentUrl) -> Option<Self> {
        let text = report(own).await.ok()?;
        let report: Report<'_> = serde_json::from_slice(&text).ok()?;
        Some(Self::from_report(own, &report)).filter(|listed| listed.urls.len() > 1 || listed.is_whole)
    }

    /// Each node is listed once for each family and protocol: its first address in the pods'
    /// network counts.
    fn from_report(own: &AgentUrl, report: &Report<'_>) -> Self {
        let mut nodes = HashSet::new();
        let is_asked = |peer: &&Peer<'_>| peer.network == Network::Pod && peer.state.is_evidence();
        let mut urls = vec![own.clone()];
        for peer in report.peers.iter().filter(is_asked) {
            if let Some(address) = peer.address
                && urls.len() < AGENTS_MAX
                && nodes.insert(peer.node.as_ref())
            {
                urls.push(AgentUrl { host: Host::Address(address), port: own.port });
            }
        }
        let members = report.source.members.filter(|members| *members > 0);
        Self { is_whole: members.is_some_and(|members| members <= urls.len() as u64), urls }
    }
}

/// Asks each agent, a few at once. Passes each answer to `take` as it arrives, with its index in
/// `agents`.
pub async fn each<F>(agents: &[AgentUrl], ask: impl Fn(AgentUrl) -> F, mut take: impl FnMut(usize, F::Output))
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut waiting = agents.iter().cloned().enumerate();
    let mut asked = JoinSet::new();
    loop {
        while asked.len() < AGENTS_AT_ONCE
            && let Some((index, agent)) = waiting.next()
        {
            let answer = ask(agent);
            asked.spawn(async move { (index, answer.await) });
        }
        match asked.join_next().await {
            Some(Ok((index, answer))) => take(index, answer),
            // Only a panic ends one of these tasks without a result, and the release build aborts
            // on a panic.
            Some(Err(error)) => log::error!("asking an agent: {error}"),
            None => return,
        }
    }
}

/// Asks one agent after the other until one has an answer that counts. The next one is asked after
/// a second, or at once if one fails: a dead agent costs that second, however long its connection
/// would take. Returns the errors of the others, too.
pub async fn first<T, F>(agents: &[AgentUrl], ask: impl Fn(AgentUrl) -> F) -> (Option<T>, Vec<(AgentUrl, AskError)>)
where
    F: Future<Output = Result<T, AskError>> + Send + 'static,
    T: Send + 'static,
{
    let mut order: Vec<usize> = (0..agents.len()).collect();
    if order.len() > ASKED_IN_ORDER_MAX {
        // The list may have those of a rack or a zone that is off beside each other.
        order.sort_by_key(|place| place.reverse_bits());
    }
    let (mut waiting, end) = (order.into_iter(), Instant::now() + AGENT_TIME);
    let (mut asked, mut failed, mut refusals) = (JoinSet::new(), Vec::new(), 0);
    while refusals < REFUSALS_MAX {
        let is_time_left = Instant::now() < end;
        if is_time_left && let Some(place) = waiting.next() {
            let (agent, answer) = (agents[place].clone(), ask(agents[place].clone()));
            let late = |_| Err(GetError::Time(AGENT_TIME).into());
            asked.spawn(async move { (agent, timeout_at(end, answer).await.unwrap_or_else(late)) });
        }
        tokio::select! {
            done = asked.join_next() => match done {
                Some(Ok((_, Ok(answer)))) => return (Some(answer), failed),
                Some(Ok((agent, Err(error)))) => {
                    refusals += usize::from(error.is_refusal());
                    failed.push((agent, error));
                }
                // Only a panic ends such a task without a result.
                Some(Err(error)) => log::error!("asking an agent: {error}"),
                None => break,
            },
            () = sleep(STEP), if is_time_left => {}
        }
    }
    (None, failed)
}

/// Limits the time of a request to one agent.
///
/// # Errors
/// As `asking`, and [`GetError::Time`].
pub async fn within<T, E: From<GetError>>(time: Duration, asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::time::timeout(time, asking).await.unwrap_or_else(|_| Err(GetError::Time(time).into()))
}

/// Returns the text of an agent's report.
///
/// # Errors
/// [`AskError`].
pub async fn report(agent: &AgentUrl) -> Result<Vec<u8>, AskError> {
    let asking = async { AgentAnswer::request(agent, report::PATH).await?.whole(REPORT_BYTES_MAX).await };
    within(AGENT_TIME, asking).await
}

/// Returns an error for an answer of an agent that is not as expected.
pub fn foreign<E: fmt::Display>(path: &'static str) -> impl Fn(E) -> AskError {
    move |error| AskError::Foreign { path, reason: error.to_string() }
}

/// The answer of an agent, whose status was 200. Its body is still to be read.
pub struct AgentAnswer {
    link: HttpConnection,
    body: Incoming,
}

impl AgentAnswer {
    /// Sends a request to an agent and reads the head of the answer.
    ///
    /// # Errors
    /// [`AskError`].
    pub async fn request(agent: &AgentUrl, path: &str) -> Result<Self, AskError> {
        let addresses = match &agent.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => dns::host_addresses(name, AddressFamily::Any).await?,
        };
        // A port that is forwarded to a workstation may be open at one address of localhost only.
        let servers: Vec<SocketAddr> = addresses.into_iter().map(|a| SocketAddr::new(a, agent.port)).collect();
        let stream = TcpStream::connect(&servers[..]).await.map_err(GetError::Connect)?;
        let mut link = HttpConnection::handshake(stream).await.map_err(GetError::Wire)?;
        // The name as typed, because there may be a proxy at the address.
        let host = agent.to_string().replacen("http://", "", 1);
        let request = Request::get(path).header(header::HOST, host).body(RequestBody::default());
        let response = link.send(request.map_err(GetError::Path)?).await.map_err(GetError::Wire)?;
        match response.status() {
            StatusCode::OK => Ok(Self { link, body: response.into_body() }),
            status => Err(GetError::Status(status).into()),
        }
    }

    /// Returns the whole body, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`GetError`].
    pub async fn whole(mut self, limit: usize) -> Result<Vec<u8>, AskError> {
        Ok(self.link.collect(self.body, limit).await?)
    }

    /// Passes one line after the other to `reader`, until the body ends. Blank lines are skipped,
    /// and so is the text after the last newline. Returns whether there is no such text: an answer
    /// that ends within a line has lost its end. No line may be longer than `line_limit` bytes, nor
    /// the body longer than `limit`, blank lines included.
    ///
    /// # Errors
    /// As `reader`, and [`GetError`].
    pub async fn lines<E: From<GetError>>(
        mut self,
        line_limit: usize,
        limit: usize,
        mut reader: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut lines = BodyLines::new(line_limit);
        let mut bytes_left = limit;
        while let Some(frame) = self.link.frame(&mut self.body).await {
            let Ok(data) = frame.map_err(GetError::Wire)?.into_data() else { continue };
            bytes_left = bytes_left.checked_sub(data.len()).ok_or(GetError::TooLarge(limit))?;
            lines.push(&data).map_err(|_| GetError::TooLarge(line_limit))?;
            while let Some(line) = lines.next_line() {
                reader(line)?;
            }
        }
        Ok(lines.rest().trim_ascii().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn each_listed_node_is_asked_once_and_a_list_of_fewer_than_all_members_is_a_part() {
        let peer = |node: &str, address: &str, rest: &str| {
            format!(r#"{{"node":"{node}","network":"pod","protocol":"icmp","address":"{address}"{rest}}}"#)
        };
        let peers = [
            peer("b", "10.0.0.2", ""),
            peer("b", "fd00::2", r#","protocol":"icmpv6""#).replacen(r#""protocol":"icmp","#, "", 1),
            peer("c", "fd00::3", ""),
            peer("gone", "10.0.0.4", r#","state":"left""#),
            peer("c", "192.168.0.3", "").replace("pod", "node"),
        ];
        let own = AgentUrl { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port: 80 };
        let listed = |members: &str| {
            let text = format!(r#"{{"source":{{"node":"a"{members}}},"peers":[{}]}}"#, peers.join(","));
            let listed = ListedAgents::from_report(&own, &serde_json::from_str(&text).unwrap());
            (listed.urls.iter().map(ToString::to_string).collect::<Vec<_>>(), listed.is_whole)
        };
        let (urls, is_whole) = listed(r#","members":3"#);
        assert_eq!(urls, ["http://127.0.0.1:80", "http://10.0.0.2:80", "http://[fd00::3]:80"]);
        assert!(is_whole);
        for members in [r#","members":4"#, r#","members":0"#, ""] {
            assert!(!listed(members).1, "{members}");
        }
    }

    /// Returns the result of `targets` beside an agent with this report. The Service has no DNS
    /// name, so it cannot be resolved.
    async fn targets_beside(report: &str) -> Result<Targets, ResolveError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = Some(AgentUrl { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port });
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{report}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let agents = Agents::Service { name: "no..name".into(), port, own };
        tokio::join!(targets(&agents), server).0
    }

    #[tokio::test]
    async fn an_agent_beside_the_command_that_knows_all_members_needs_no_dns() {
        let report = |members: u32| {
            format!(
                r#"{{"source":{{"node":"a","members":{members}}},"peers":[{{"node":"b","address":"10.0.0.2"}},
                {{"node":"c","address":"10.0.0.3"}}]}}"#
            )
        };
        let whole = targets_beside(&report(3)).await.unwrap();
        assert!(whole.urls.len() == 3 && whole.unresolved.is_none(), "{whole:?}");
        let part = targets_beside(&report(300)).await.unwrap();
        assert!(part.urls.len() == 3 && matches!(part.unresolved, Some(ResolveError::Name(..))), "{part:?}");
        for another in ["<html>", r#"{"source":{"node":"a"},"peers":[]}"#] {
            assert!(targets_beside(another).await.is_err(), "{another}");
        }
    }

    #[test]
    fn a_node_has_the_addresses_of_its_pod_in_the_family_that_is_asked_for() {
        let text = r#"{"source":{"node":"a"},"peers":[{"node":"b","address":"10.0.0.2","protocol":"tcp"},
            {"node":"b","address":"fd00::2"},{"node":"b","address":"192.168.0.2","network":"node"},
            {"node":"gone","address":"10.0.0.4","state":"left"}]}"#;
        let report = serde_json::from_str(text).unwrap();
        let of = |node, family| {
            let own = AgentUrl { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port: 80 };
            let found: Vec<String> =
                addresses_in_report(&own, node, family, &report).iter().map(ToString::to_string).collect();
            found.join(" ")
        };
        assert_eq!([of("b", AddressFamily::Any), of("a", AddressFamily::Any)], ["10.0.0.2 fd00::2", "127.0.0.1"]);
        assert_eq!([of("b", AddressFamily::Ipv6), of("gone", AddressFamily::Any)], ["fd00::2", ""]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_agents_are_asked_at_once_and_each_answer_has_the_index_of_its_agent() {
        let host = || Host::Address(Ipv4Addr::LOCALHOST.into());
        let all: Vec<AgentUrl> = (1..=50).map(|port| AgentUrl { host: host(), port }).collect();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let ask = |agent: AgentUrl| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                // Later requests are answered sooner.
                sleep(Duration::from_millis(u64::from(100 - agent.port))).await;
                now.fetch_sub(1, Ordering::Relaxed);
                agent.port
            }
        };
        let mut answers = [0; 50];
        each(&all, ask, |index, port| answers[index] = port).await;
        assert!(answers.into_iter().eq(1..=50), "{answers:?}");
        assert_eq!(most.load(Ordering::Relaxed), AGENTS_AT_ONCE);
    }

    /// The ports of the agents that `first` asks, if those up to `dead` are silent and all others
    /// answer `of_others`.
    async fn asked_first(count: u16, dead: u16, of_others: fn() -> Result<u16, AskError>) -> (bool, Vec<u16>) {
        let host = || Host::Address(Ipv4Addr::LOCALHOST.into());
        let all: Vec<AgentUrl> = (1..=count).map(|port| AgentUrl { host: host(), port }).collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let ask = |agent: AgentUrl| {
            asked.lock().unwrap().push(agent.port);
            async move { if agent.port <= dead { std::future::pending().await } else { of_others() } }
        };
        let (answer, _) = first(&all, ask).await;
        let asked = asked.lock().unwrap().clone();
        (answer.is_some(), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_agents_do_not_keep_others_from_being_asked() {
        let begun = Instant::now();
        assert_eq!(asked_first(6, 5, || Ok(0)).await, (true, vec![1, 2, 3, 4, 5, 6]));
        assert!(begun.elapsed() < Duration::from_secs(6));
        let (is_found, asked) = asked_first(300, 100, || Ok(0)).await;
        assert!(is_found && asked.len() < 4, "a third of a long list: {asked:?}");
        let begun = Instant::now();
        assert!(!asked_first(300, 300, || Ok(0)).await.0);
        assert!((AGENT_TIME..AGENT_TIME + STEP).contains(&begun.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn after_three_agents_that_know_no_answer_none_is_asked() {
        let none = || Err(AskError::Get(GetError::Status(StatusCode::SERVICE_UNAVAILABLE)));
        assert_eq!(asked_first(5_000, 0, none).await.1.len(), REFUSALS_MAX);
        assert_eq!(asked_first(2, 0, none).await, (false, vec![1, 2]));
    }

    /// Returns the result of `lines` for an agent that answers with this body. The limits are 8
    /// bytes a line and 20 in all.
    async fn read_lines(body: &'static [u8]) -> (Result<bool, GetError>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // The body ends with the connection. The reader may have stopped before.
            let answer = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", body].concat();
            let _ = stream.write_all(&answer).await;
        };
        let mut found = Vec::new();
        let asking = async {
            let agent = AgentUrl { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port };
            let take = |line: &[u8]| {
                found.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(())
            };
            AgentAnswer::request(&agent, "/").await.unwrap().lines(8, 20, take).await
        };
        let (done, ()) = tokio::join!(asking, server);
        (done, found)
    }

    #[tokio::test]
    async fn an_answer_that_ends_within_a_line_has_lost_its_end() {
        for (body, is_whole) in [(&b"a\nb\n"[..], true), (b"a\n\nb\n \n", true), (b"a\nb\nc", false)] {
            let (done, found) = read_lines(body).await;
            assert_eq!((done.unwrap(), &found[..]), (is_whole, &["a".to_owned(), "b".to_owned()][..]), "{body:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_or_a_line_beyond_its_limit_is_an_error() {
        for (body, limit) in [(&[b'\n'; 21][..], 20), (&[b'x'; 9], 8), (b"1234567\n1234567\n1234567\n", 20)] {
            let (done, _) = read_lines(body).await;
            assert!(matches!(done, Err(GetError::TooLarge(found)) if found == limit), "{done:?}");
        }
        assert!(read_lines(&[b'\n'; 20]).await.0.is_ok());
    }

    #[tokio::test]
    async fn endless_interim_answers_are_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let agent = AgentUrl { host: Host::Address(address.ip()), port: address.port() };
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The request fits into one read.
            assert!(stream.read(&mut [0; 1_000]).await.unwrap() > 0);
            while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {}
        };
        let asking = async move { AgentAnswer::request(&agent, report::PATH).await?.whole(9).await };
        let (got, ()) = tokio::join!(asking, server);
        assert!(got.as_ref().is_err_and(|error| error.to_string().contains("beside the body")), "{got:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_hangs_ends_after_its_time() {
        let time = Duration::from_secs(10);
        let hangs = within(time, std::future::pending::<Result<(), AskError>>()).await;
        assert!(matches!(hangs, Err(AskError::Get(GetError::Time(t))) if t == time), "{hangs:?}");
    }
}
