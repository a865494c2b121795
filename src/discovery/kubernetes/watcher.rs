//! Does what [`super::machine`] decides: requests, timers, the channels. One future, no task of its own.
//!
//! Two connections: the watch occupies its own for minutes, so slices are read over a second one, which is made when the first is
//! due and closed when none has been for some seconds. Whatever goes wrong on that one, the watch goes on.

use std::future::pending;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until, timeout};

use super::api::{Event, Kind};
use super::backoff::Backoff;
use super::config::KubernetesConfig;
use super::failure::Failure;
use super::inbox::{Events, Items, Piece};
use super::machine::{self, Machine, Outcome};
use super::plan;
use super::requests::{Ask, Connection};
use crate::discovery::report::Reporter;
use crate::discovery::{Ourselves, Questions, Update, Updates, random, until};
use crate::limits;

/// How often time alone is looked at, where it may change something.
const TICK: Duration = Duration::from_secs(10);
/// Events confirm the list at most so often: in a rollout they come by the dozen.
const CONFIRM: Duration = Duration::from_secs(1);

/// Lists, watches and reads until nobody listens any more.
pub async fn run(config: KubernetesConfig, ourselves: Ourselves, questions: Questions, updates: Updates) {
    let config = Arc::new(config);
    let timing = config.timing;
    let watcher = Watcher {
        machine: Machine::new(ourselves, timing),
        main: Connection::new(Arc::clone(&config)),
        reader: Reader {
            connection: Some(Connection::new(Arc::clone(&config))),
            reading: None,
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
            not_before: Instant::now(),
            used: Instant::now(),
        },
        reporter: Reporter::new("kubernetes"),
        read_reporter: Reporter::new("kubernetes"),
        confirmed: None,
        updates: updates.clone(),
        config,
    };
    tokio::select! {
        () = updates.closed() => {}
        () = watcher.run(questions) => {}
    }
}

/// A slice that was asked for, what came of it, and the connection.
struct Read {
    name: String,
    /// That was asked for, at least.
    version: u64,
    body: Result<Option<Vec<u8>>, Failure>,
    connection: Connection,
}

/// Reads slices, one after the other.
struct Reader {
    /// None while a reading is under way, which has it.
    connection: Option<Connection>,
    /// Outlives the watch that began it.
    reading: Option<Pin<Box<dyn Future<Output = Read> + Send>>>,
    backoff: Backoff,
    /// After a failure.
    not_before: Instant,
    /// When a reading was last done.
    used: Instant,
}

impl Reader {
    /// The next reading's end; never, where none is under way.
    async fn done(&mut self) -> Read {
        match &mut self.reading {
            Some(reading) => {
                let read = reading.await;
                self.reading = None;
                read
            }
            None => pending().await,
        }
    }

    fn begin(&mut self, name: String, version: u64) {
        if let Some(mut connection) = self.connection.take() {
            self.reading = Some(Box::pin(async move {
                let body = connection.read(&name, version).await;
                Read { name, version, body, connection }
            }));
        }
    }

    /// When the connection has been idle for long enough; None where there is none, or it is in use.
    fn idle_at(&self, idle: Duration) -> Option<Instant> {
        self.connection.as_ref().filter(|connection| connection.is_open()).map(|_| self.used + idle)
    }
}

struct Watcher {
    config: Arc<KubernetesConfig>,
    machine: Machine,
    main: Connection,
    reader: Reader,
    reporter: Reporter,
    /// Of readings: a watch that goes on is no sign that they do.
    read_reporter: Reporter,
    /// When the list was last told or confirmed.
    confirmed: Option<Instant>,
    updates: Updates,
}

impl Watcher {
    /// Goes on for ever; [`run`] drops it when the channel closes.
    async fn run(mut self, mut questions: Questions) {
        let updates = self.updates.clone();
        loop {
            let done = match self.machine.ask() {
                machine::Ask::List { whole, consistent } => {
                    meanwhile(&mut questions, &updates, self.list(whole, consistent)).await
                }
                machine::Ask::Watch { version } => self.watch(version, &mut questions).await,
            };
            let wait = match done {
                Ok(Outcome::LookAgain) => plan::second_look(random::unit(), &self.config.timing),
                Ok(Outcome::Settled) => continue,
                Err(failure) => {
                    self.main.close();
                    match failure {
                        // Part of the protocol: the server keeps its history for minutes, and a quiet cluster is quiet.
                        Failure::Gone | Failure::Silent => log::debug!("kubernetes discovery: {failure}"),
                        _ => _ = self.reporter.failed(failure.kind(), &failure),
                    }
                    self.machine.failed(&failure, [random::unit(), random::unit()])
                }
            };
            meanwhile(&mut questions, &updates, tokio::time::sleep(wait)).await;
        }
    }

    /// Asks for a list and takes it as it comes.
    async fn list(&mut self, whole: bool, consistent: bool) -> Result<Outcome, Failure> {
        let timing = self.config.timing;
        let mut body = self.main.get(&Ask::list(&self.config, whole, consistent)).await?;
        let mut items = Items::new(if whole { Kind::SLICES } else { Kind::METADATA_LIST }, limits::API_BODY_BYTES_MAX);
        self.machine.list_begins();
        // As long as a watch may take: a server that sends a byte now and then is none.
        let end = Instant::now() + timing.watch;
        loop {
            let next = self.main.link()?.frame(&mut body);
            let frame = timeout(timing.request, tokio::time::timeout_at(end, next)).await;
            let frame = frame.ok().and_then(Result::ok).ok_or(Failure::Time("a list"))?;
            let Some(frame) = frame.transpose()? else { break };
            let Ok(data) = frame.into_data() else { continue };
            items.push(&data);
            while let Some(piece) = items.next_piece()? {
                match piece {
                    Piece::Metadata(metadata) => self.machine.list_metadata(metadata)?,
                    Piece::Item(item) => self.machine.list_item(item, whole, Instant::now(), random::unit())?,
                }
            }
        }
        items.finish()?;
        drop(items);
        let outcome = self.machine.list_ends(Instant::now())?;
        self.reporter.recovered();
        if outcome == Outcome::Settled {
            self.tell().await;
        } else {
            // The next one is seconds away, and perhaps another server's.
            self.main.close();
        }
        Ok(outcome)
    }

    /// Watches until the server or the connection ends it, or something asks for a new list.
    async fn watch(&mut self, version: u64, questions: &mut Questions) -> Result<Outcome, Failure> {
        let timing = self.config.timing;
        let lasting = Duration::from_secs(random::spread(timing.watch, 0.2, random::unit()).as_secs().max(1));
        let started = Instant::now();
        let ask = Ask::watch(&self.config, version, lasting.as_secs());
        let updates = self.updates.clone();
        let mut body = meanwhile(questions, &updates, self.main.get(&ask)).await?;
        self.confirm().await;
        let end = started + lasting + timing.watch_grace;
        let done = self.follow(&mut body, end, questions).await;
        self.give_up_doubts().await;
        if started.elapsed() >= timing.backoff_max.min(lasting / 2) {
            self.machine.healthy();
        }
        match done {
            // The rest of the watch is not read: this connection cannot be used again.
            Ok(Outcome::LookAgain) => self.main.close(),
            Ok(Outcome::Settled) if plan::is_early(started.elapsed(), lasting) => return Err(Failure::Ended),
            _ => {}
        }
        done
    }

    async fn follow(
        &mut self,
        body: &mut Incoming,
        end: Instant,
        questions: &mut Questions,
    ) -> Result<Outcome, Failure> {
        let timing = self.config.timing;
        let mut events = Events::new(limits::API_BODY_BYTES_MAX);
        let mut silent_at = Instant::now() + timing.watch_silence;
        let mut tick = Instant::now() + TICK;
        let mut asked = true;
        loop {
            let due = self.machine.next_reading().map(|(.., due)| due.max(self.reader.not_before));
            let due = due.filter(|_| self.reader.reading.is_none());
            let idle = self.reader.idle_at(timing.read_idle);
            let outcome = tokio::select! {
                // The watch before all else: what has arrived of it may be what a question is about.
                biased;
                frame = self.main.link()?.frame(body) => {
                    let Some(frame) = frame.transpose()? else { return Ok(Outcome::Settled) };
                    let Ok(data) = frame.into_data() else { continue };
                    silent_at = Instant::now() + timing.watch_silence;
                    events.push(&data);
                    self.events(&mut events).await?
                }
                () = sleep_until(end) => return Err(Failure::Time("a watch")),
                () = sleep_until(silent_at) => return Err(Failure::Silent),
                read = self.reader.done() => self.read(read).await,
                () = until(due) => {
                    if let Some((name, version, _)) = self.machine.next_reading() {
                        self.reader.begin(name.to_owned(), version);
                    }
                    continue;
                }
                question = questions.recv(), if asked => {
                    match question {
                        Some(address) => self.doubt(address).await,
                        None => asked = false,
                    }
                    continue;
                }
                () = until(idle) => {
                    self.reader.connection.iter_mut().for_each(Connection::close);
                    continue;
                }
                () = sleep_until(tick), if self.machine.has_absent() => {
                    tick = Instant::now() + TICK;
                    let outcome = self.machine.settle(Instant::now());
                    self.tell().await;
                    outcome
                }
            };
            if outcome == Outcome::LookAgain {
                return Ok(outcome);
            }
        }
    }

    /// Takes what has arrived of the watch.
    async fn events(&mut self, events: &mut Events) -> Result<Outcome, Failure> {
        let mut bookmark = false;
        let mut any = false;
        while let Some(frame) = events.next_event()? {
            let event = Event::read(frame).map_err(Failure::Malformed)?;
            if self.machine.event(&event, Instant::now(), random::unit())? == Outcome::LookAgain {
                return Ok(Outcome::LookAgain);
            }
            bookmark |= matches!(event, Event::Bookmark(_));
            any = true;
            self.reporter.recovered();
        }
        if !self.tell_news().await && any && (bookmark || self.confirmed.is_none_or(|at| at.elapsed() >= CONFIRM)) {
            self.confirm().await;
        }
        Ok(Outcome::Settled)
    }

    /// Takes a slice.
    async fn read(&mut self, read: Read) -> Outcome {
        let Read { name, version, body, connection } = read;
        let now = Instant::now();
        self.reader.used = now;
        let connection = self.reader.connection.insert(connection);
        let done = body.and_then(|body| self.machine.read(&name, version, body.as_deref(), now));
        match done {
            Ok(outcome) => {
                self.reader.backoff.reset();
                self.read_reporter.recovered();
                self.tell().await;
                outcome
            }
            Err(failure) => {
                connection.close();
                self.read_reporter.failed(failure.kind(), &format_args!("EndpointSlice {name}: {failure}"));
                self.machine.reading_failed(&name, now);
                self.reader.not_before = now + self.reader.backoff.next(random::unit()) + failure.retry_after();
                self.give_up_late_doubts(now).await;
                Outcome::Settled
            }
        }
    }

    /// Has a doubted address looked up, where that is possible now.
    async fn doubt(&mut self, address: IpAddr) {
        let now = Instant::now();
        if !self.machine.doubt(address, now) {
            return self.send(Update::Unsure(address)).await;
        }
        self.tell().await;
        self.give_up_late_doubts(now).await;
    }

    /// Where the next reading comes too late for who doubts now, nobody waits for it.
    async fn give_up_late_doubts(&mut self, now: Instant) {
        if now + limits::DOUBT_TIME <= self.reader.not_before {
            self.give_up_doubts().await;
        }
    }

    /// What cannot be looked up now is not waited for.
    async fn give_up_doubts(&mut self) {
        for address in self.machine.give_up_doubts() {
            self.send(Update::Unsure(address)).await;
        }
    }

    /// Tells what is new, else that all is as it was; then the answers to questions, which may be about it.
    async fn tell(&mut self) {
        if !self.tell_news().await {
            self.confirm().await;
        }
    }

    async fn tell_news(&mut self) -> bool {
        let news = self.machine.news();
        let told = news.list.is_some();
        if let Some(mesh) = news.mesh {
            self.send(Update::Mesh(mesh)).await;
        }
        if let Some(list) = news.list {
            self.confirmed = Some(Instant::now());
            self.send(Update::List(list)).await;
        }
        while let Some(address) = self.machine.answer() {
            self.send(Update::Sure(address)).await;
        }
        told
    }

    /// Says that the list is still right, if it is.
    async fn confirm(&mut self) {
        let now = Instant::now();
        if self.machine.is_sure(now) {
            self.confirmed = Some(now);
            self.send(Update::Confirmed).await;
        }
    }

    async fn send(&mut self, update: Update) {
        if self.updates.send(update).await.is_err() {
            // Nobody listens: `run` is about to drop us.
            pending::<()>().await;
        }
    }
}

/// Does something while we are out of touch: nothing can be looked up, and every question is told so at once.
async fn meanwhile<T>(questions: &mut Questions, updates: &Updates, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut left = None;
    loop {
        if let Some(address) = left.take() {
            match updates.try_send(Update::Unsure(address)) {
                Err(TrySendError::Full(_)) => {}
                _ => continue,
            }
            // Full: the work may be what fills it, so it must go on meanwhile.
            tokio::select! {
                biased;
                done = &mut work => {
                    let _ = updates.send(Update::Unsure(address)).await;
                    return done;
                }
                _ = updates.reserve() => left = Some(address),
            }
            continue;
        }
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(address) = questions.recv() => left = Some(address),
        }
    }
}
