//! Carries out what [`super::machine`] decides: requests, timers and channels. It is one future and
//! has no task of its own.
//!
//! There are two connections. The watch occupies its own for minutes, so slices are read over a
//! second one. That one is opened when the first slice is due, and closed when it was unused for
//! some seconds. If it fails, the watch continues.

use std::future::pending;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until, timeout};

use super::api::{ObjectKind, WatchEvent};
use super::backoff::Backoff;
use super::config::KubernetesConfig;
use super::connect::ConnectionUse;
use super::failure::ApiFailure;
use super::inbox::{ListItems, ListPiece, WatchEvents};
use super::machine::{self, ChangeOutcome, Machine};
use super::plan;
use super::requests::{ApiConnection, ApiRequest};
use crate::discovery::random;
use crate::discovery::report::Reporter;
use crate::discovery::timer::until;
use crate::discovery::update::{Ourselves, Questions, Update, Updates};
use crate::limits;

/// How often the state is checked for changes by time alone, if there may be any.
const TICK: Duration = Duration::from_secs(10);

/// Lists, watches and reads until the receiver is closed.
pub async fn run(config: KubernetesConfig, ourselves: Ourselves, questions: Questions, updates: Updates) {
    let config = Arc::new(config);
    let timing = config.timing;
    let watcher = SliceWatch {
        machine: Machine::new(ourselves, timing),
        in_touch: false,
        reader: SliceReader {
            connection: Some(ApiConnection::new(Arc::clone(&config), ConnectionUse::Read)),
            reading: None,
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
            not_before: Instant::now(),
            used: Instant::now(),
        },
        reporter: Reporter::new("kubernetes"),
        read_reporter: Reporter::new("kubernetes"),
        confirmed: None,
        updates: updates.clone(),
        config: Arc::clone(&config),
    };
    tokio::select! {
        () = updates.closed() => {}
        () = watcher.run(ApiConnection::new(config, ConnectionUse::Watch), questions) => {}
    }
}

/// A finished reading: the slice, the result, and the connection.
struct SliceRead {
    name: String,
    /// The minimum version that was asked for.
    version: u64,
    body: Result<Option<Vec<u8>>, ApiFailure>,
    connection: ApiConnection,
}

/// Reads slices, one after the other.
struct SliceReader {
    /// None while a reading is in progress, which owns it.
    connection: Option<ApiConnection>,
    /// The reading in progress. It outlives the watch that began it.
    reading: Option<Pin<Box<dyn Future<Output = SliceRead> + Send>>>,
    backoff: Backoff,
    /// No reading starts before this, after a failure.
    not_before: Instant,
    /// When the last reading ended.
    used: Instant,
}

impl SliceReader {
    /// Waits for the end of the reading in progress. Never returns if there is none.
    async fn done(&mut self) -> SliceRead {
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
                SliceRead { name, version, body, connection }
            }));
        }
    }

    /// Returns when the connection has been idle for long enough. None if it is closed or in use.
    fn idle_at(&self, idle: Duration) -> Option<Instant> {
        self.connection.as_ref().filter(|connection| connection.is_open()).map(|_| self.used + idle)
    }
}

struct SliceWatch {
    config: Arc<KubernetesConfig>,
    machine: Machine,
    /// A list or a watch has just arrived or ended well. The reported state is as new as possible,
    /// and slices may be read.
    in_touch: bool,
    reader: SliceReader,
    reporter: Reporter,
    /// Reports failures of readings. A watch that continues does not mean that readings work.
    read_reporter: Reporter,
    /// When the list was last sent or confirmed.
    confirmed: Option<Instant>,
    updates: Updates,
}

impl SliceWatch {
    /// Runs for ever. [`run`] drops it when the channel closes. Lists and the watch use `main`.
    async fn run(mut self, mut main: ApiConnection, mut questions: Questions) {
        let updates = self.updates.clone();
        loop {
            let done = match self.machine.ask() {
                machine::NextRequest::List { whole, consistent } => {
                    meanwhile(&mut questions, &updates, self.list(&mut main, whole, consistent)).await
                }
                machine::NextRequest::Watch { version } => self.watch(&mut main, version, &mut questions).await,
            };
            let wait = match done {
                Ok(ChangeOutcome::LookAgain) => plan::second_look(random::unit(), &self.config.timing),
                Ok(ChangeOutcome::Settled) => {
                    self.in_touch = true;
                    continue;
                }
                Err(failure) => {
                    main.close();
                    match failure {
                        // Both are part of the protocol: the server keeps its history for minutes,
                        // and a quiet cluster sends nothing.
                        ApiFailure::Gone | ApiFailure::Silent => log::debug!("kubernetes discovery: {failure}"),
                        _ => _ = self.reporter.failed(failure.kind(), &failure),
                    }
                    self.machine.failed(&failure, [random::unit(), random::unit()])
                }
            };
            self.in_touch = false;
            self.give_up_doubts().await;
            meanwhile(&mut questions, &updates, tokio::time::sleep(wait)).await;
        }
    }

    /// Asks for a list and processes it as it arrives.
    async fn list(
        &mut self,
        main: &mut ApiConnection,
        whole: bool,
        consistent: bool,
    ) -> Result<ChangeOutcome, ApiFailure> {
        let timing = self.config.timing;
        let mut body = main.get(&ApiRequest::list(&self.config, whole, consistent)).await?;
        let mut items = ListItems::new(
            if whole { ObjectKind::SLICES } else { ObjectKind::METADATA_LIST },
            limits::API_BODY_BYTES_MAX,
        );
        self.machine.list_begins();
        // The limit is as long as a watch may last. Without it, a server could send a byte now and
        // then for ever.
        let end = Instant::now() + timing.watch;
        let mut bytes = 0_usize;
        loop {
            let next = main.link()?.frame(&mut body);
            let frame = timeout(timing.request, tokio::time::timeout_at(end, next)).await;
            let frame = frame.ok().and_then(Result::ok).ok_or(ApiFailure::Time("a list"))?;
            let Some(frame) = frame.transpose()? else { break };
            let Ok(data) = frame.into_data() else { continue };
            bytes = bytes.saturating_add(data.len());
            if bytes > limits::API_LIST_BYTES_MAX {
                return Err(ApiFailure::TooLarge(limits::API_LIST_BYTES_MAX));
            }
            items.push(&data);
            while let Some(piece) = items.next_piece()? {
                match piece {
                    ListPiece::Metadata(metadata) => self.machine.list_metadata(metadata)?,
                    ListPiece::Item(item) => self.machine.list_item(item, whole, Instant::now(), random::unit())?,
                }
            }
        }
        items.finish()?;
        drop(items);
        let outcome = self.machine.list_ends(Instant::now())?;
        self.reporter.recovered();
        if outcome == ChangeOutcome::Settled {
            self.report().await;
        } else {
            // The next list is seconds away, and may come from another server.
            main.close();
        }
        Ok(outcome)
    }

    /// Watches until the server or the connection ends the watch, or a new list is needed.
    async fn watch(
        &mut self,
        main: &mut ApiConnection,
        version: u64,
        questions: &mut Questions,
    ) -> Result<ChangeOutcome, ApiFailure> {
        let timing = self.config.timing;
        let lasting = Duration::from_secs(random::spread(timing.watch, 0.2, random::unit()).as_secs().max(1));
        let started = Instant::now();
        let ask = ApiRequest::watch(&self.config, version, lasting.as_secs());
        let Some(mut body) = self.open(main, &ask, questions).await? else { return Ok(ChangeOutcome::LookAgain) };
        let opened = Instant::now();
        self.in_touch = true;
        self.confirm().await;
        let end = started + lasting + timing.watch_grace;
        let done = self.follow(main, &mut body, end, questions).await;
        self.machine.watched(opened.elapsed());
        match done {
            // The rest of the watch is not read, so this connection cannot be reused.
            Ok(ChangeOutcome::LookAgain) => main.close(),
            Ok(ChangeOutcome::Settled) if plan::is_early(started.elapsed(), lasting) => return Err(ApiFailure::Ended),
            _ => {}
        }
        done
    }

    /// Asks for a watch. One watch usually follows the other within milliseconds, but the server
    /// may queue us for a minute. For as long as a doubt lasts, readings continue and questions wait
    /// for the watch. After that the client is out of touch. Returns None if all peers are gone, so
    /// that a new list must be requested.
    async fn open(
        &mut self,
        main: &mut ApiConnection,
        ask: &ApiRequest,
        questions: &mut Questions,
    ) -> Result<Option<Incoming>, ApiFailure> {
        let mut head = pin!(main.get(ask));
        let in_touch_until = Instant::now() + self.config.timing.doubt;
        loop {
            let due = if self.in_touch { self.reading_due() } else { None };
            tokio::select! {
                biased;
                body = &mut head => return body.map(Some),
                read = self.reader.done() => {
                    if self.read(read).await == ChangeOutcome::LookAgain {
                        return Ok(None);
                    }
                }
                () = until(due) => self.begin_reading(),
                () = sleep_until(in_touch_until), if self.in_touch => self.in_touch = false,
                Some(address) = questions.recv(), if !self.in_touch => self.send(Update::Unsure(address)).await,
            }
        }
    }

    /// Returns when a slice is to be read next. None while one is being read.
    fn reading_due(&self) -> Option<Instant> {
        let due = self.machine.next_reading(Instant::now()).map(|(.., due)| due.max(self.reader.not_before));
        due.filter(|_| self.reader.reading.is_none())
    }

    fn begin_reading(&mut self) {
        if let Some((name, version, _)) = self.machine.next_reading(Instant::now()) {
            self.reader.begin(name.to_owned(), version);
        }
    }

    async fn follow(
        &mut self,
        main: &mut ApiConnection,
        body: &mut Incoming,
        end: Instant,
        questions: &mut Questions,
    ) -> Result<ChangeOutcome, ApiFailure> {
        let timing = self.config.timing;
        let mut events = WatchEvents::new(limits::API_BODY_BYTES_MAX);
        let mut silent_at = Instant::now() + timing.watch_silence;
        let mut tick = Instant::now() + TICK;
        loop {
            let due = self.reading_due();
            let idle = self.reader.idle_at(timing.read_idle);
            let outcome = tokio::select! {
                // The watch comes first: a question may be about what has arrived of it.
                biased;
                frame = main.link()?.frame(body) => {
                    let Some(frame) = frame.transpose()? else { return Ok(ChangeOutcome::Settled) };
                    let Ok(data) = frame.into_data() else { continue };
                    silent_at = Instant::now() + timing.watch_silence;
                    events.push(&data);
                    self.events(&mut events).await?
                }
                () = sleep_until(end) => return Err(ApiFailure::Time("a watch")),
                () = sleep_until(silent_at) => return Err(ApiFailure::Silent),
                read = self.reader.done() => self.read(read).await,
                () = until(due) => {
                    self.begin_reading();
                    continue;
                }
                Some(address) = questions.recv() => {
                    self.doubt(address).await;
                    continue;
                }
                () = until(idle) => {
                    self.reader.connection.iter_mut().for_each(ApiConnection::close);
                    continue;
                }
                () = sleep_until(tick), if self.machine.has_absent() => {
                    tick = Instant::now() + TICK;
                    let outcome = self.machine.settle(Instant::now());
                    self.report_changes().await;
                    outcome
                }
            };
            if outcome == ChangeOutcome::LookAgain {
                return Ok(outcome);
            }
        }
    }

    /// Processes the arrived events of the watch.
    async fn events(&mut self, events: &mut WatchEvents) -> Result<ChangeOutcome, ApiFailure> {
        let mut bookmark = false;
        let mut any = false;
        while let Some(frame) = events.next_event()? {
            let event = WatchEvent::read(frame).map_err(ApiFailure::Malformed)?;
            if self.machine.event(&event, Instant::now(), random::unit())? == ChangeOutcome::LookAgain {
                return Ok(ChangeOutcome::LookAgain);
            }
            bookmark |= matches!(event, WatchEvent::Bookmark(_));
            any = true;
            self.reporter.recovered();
        }
        if !self.report_changes().await
            && any
            && (bookmark || self.confirmed.is_none_or(|at| at.elapsed() >= self.config.timing.confirm))
        {
            self.confirm().await;
        }
        Ok(ChangeOutcome::Settled)
    }

    /// Takes the result of a reading.
    async fn read(&mut self, read: SliceRead) -> ChangeOutcome {
        let SliceRead { name, version, body, connection } = read;
        let now = Instant::now();
        self.reader.used = now;
        let connection = self.reader.connection.insert(connection);
        let done = body.and_then(|body| self.machine.read(&name, version, body.as_deref(), now));
        match done {
            Ok(outcome) => {
                self.reader.backoff.reset();
                self.read_reporter.recovered();
                if self.in_touch {
                    self.report().await;
                } else {
                    // One slice is read, but the state of the others is not known.
                    self.report_changes().await;
                }
                outcome
            }
            Err(failure) => {
                connection.close();
                self.read_reporter.failed(failure.kind(), &format_args!("EndpointSlice {name}: {failure}"));
                self.machine.reading_failed(&name, now);
                self.reader.not_before = now + self.reader.backoff.next(random::unit()) + failure.retry_after();
                ChangeOutcome::Settled
            }
        }
    }

    /// Takes a doubt about an address, if it can be resolved now.
    async fn doubt(&mut self, address: IpAddr) {
        if !self.machine.doubt(address, Instant::now()) {
            return self.send(Update::Unsure(address)).await;
        }
        // Our known state answers the question if it can. That is not from the server, so it does
        // not confirm the list.
        self.report_changes().await;
    }

    /// Answers all doubts as unsure, because nothing can be read now.
    async fn give_up_doubts(&mut self) {
        for address in self.machine.give_up_doubts() {
            self.send(Update::Unsure(address)).await;
        }
    }

    /// Sends what has changed, or else confirms the list. Then sends the answers to questions,
    /// which may depend on it.
    async fn report(&mut self) {
        if !self.report_changes().await {
            self.confirm().await;
        }
    }

    /// Sends what has changed, and then the answers to questions. Returns whether there was a list.
    async fn report_changes(&mut self) -> bool {
        let changes = self.machine.changes();
        let has_list = changes.list.is_some();
        if let Some(mesh) = changes.mesh {
            self.send(Update::Mesh(mesh)).await;
        }
        if let Some(roster) = changes.roster {
            self.send(Update::Roster(roster)).await;
        }
        if let Some(list) = changes.list {
            self.confirmed = Some(Instant::now());
            self.send(Update::List(list)).await;
        }
        while let Some(address) = self.machine.answer() {
            self.send(Update::Sure(address)).await;
        }
        has_list
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
            // The receiver is closed: `run` is about to drop this future.
            pending::<()>().await;
        }
    }
}

/// Does `work` without contact to the API server. Nothing can be read in that time, so every
/// question is answered as unsure at once.
async fn meanwhile<T>(questions: &mut Questions, updates: &Updates, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut left = None;
    loop {
        if let Some(address) = left.take() {
            match updates.try_send(Update::Unsure(address)) {
                Err(TrySendError::Full(_)) => {}
                _ => continue,
            }
            // The channel is full, perhaps because of `work` itself, so `work` must continue.
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
