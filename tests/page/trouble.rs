//! When it fails, that is told, and the old picture stays.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::browser::Browser;
use crate::canary::{Canary, Gathering};
use crate::made_up::{Mesh, well};
use crate::{HELPERS, told};

/// Timers of a second and more wait for the test.
const TIMERS: &str = "
    window.timers = new Map();
    const [start, stop] = [setTimeout.bind(window), clearTimeout.bind(window)];
    window.setTimeout = (work, time, ...more) => {
        if (!(time >= 1000)) return start(work, time, ...more);
        const id = 1e6 + Math.floor(Math.random() * 1e9);
        timers.set(id, { work, time });
        return id;
    };
    window.clearTimeout = (id) => timers.delete(id) || stop(id);
    window.fire = () => {
        const [[id, { work }]] = timers;
        timers.delete(id);
        work();
    };
    window.waits = () => [...timers.values()].map(({ time }) => time);
";

fn three() -> Mesh {
    Mesh::new(3, |source, peer, _| Some(well(source, peer, 3)))
}

fn opened_with_timers(canary: &Canary) -> Browser {
    let browser = Browser::start(false);
    browser.before_pages(TIMERS);
    browser.before_pages(HELPERS);
    browser.open(&canary.address);
    browser.until("document.readyState === 'complete' && !turns.running && timers.size === 1");
    browser
}

#[test]
fn a_failing_canary_is_told_and_the_picture_stays() {
    let mesh = three();
    let whole: Arc<str> = mesh.answer().into();
    let mut canary = Canary::serve(&mesh.layers, || Gathering::Whole(Arc::clone(&whole)));
    let browser = opened_with_timers(&canary);
    told(&browser);
    let again = || {
        browser.run("window.before = $('trouble').textContent; $('again').click()");
        browser.until("!turns.running && $('trouble').textContent !== window.before && timers.size === 1");
        assert_eq!(browser.text("$('headline').textContent"), "All well", "the verdict stays");
        browser.until("!view.frame");
        assert_eq!(browser.run("return colors(0, 1).includes(tone('loss0'))"), true, "the picture stays");
        assert_eq!(browser.run("return $('trouble').hidden"), false);
        browser.text("$('trouble').textContent")
    };
    canary.next(Gathering::Busy);
    let said = again();
    assert!(said.contains("the canary answers 503: another gathering is under way. What is shown is of"), "{said}");
    assert!(said.ends_with("The next attempt is in 1 s."), "as the server asks: {said}");

    let after_two_rows = whole.match_indices('\n').nth(2).expect("rows").0 + 1;
    canary.next(Gathering::Broken(Arc::clone(&whole), after_two_rows));
    let said = again();
    assert!(said.contains("the answer broke off after 2 rows"), "{said}");
    assert!(said.ends_with("The next attempt is in 10 s."), "twice as long: {said}");
    assert_eq!(browser.run("return waits()[0]"), 10_000);

    canary.next(Gathering::Whole(Arc::clone(&whole)));
    browser.run("fire()");
    browser.until("!turns.running && $('trouble').hidden");
    assert_eq!(browser.run("return turns.failures"), 0);
    // Gone altogether.
    drop(canary.server.take());
    let said = again();
    assert!(said.contains("Failed to fetch"), "{said}");
    let console = browser.console();
    let of_ours = |entry: &&String| !entry.contains("503") && !entry.contains("ERR_CONNECTION_REFUSED");
    assert_eq!(console.iter().filter(of_ours).collect::<Vec<_>>(), [""; 0], "the browser's own words alone");
}

#[test]
fn a_first_gathering_that_fails_gives_no_verdict() {
    let canary = Canary::serve(&[("pod", "icmp")], || Gathering::Busy);
    let browser = opened_with_timers(&canary);
    assert_eq!(browser.text("$('headline').textContent"), "No verdict: the gathering failed");
    assert!(browser.text("$('trouble').textContent").contains("503"));
    canary.next(Gathering::Whole(three().answer().into()));
    browser.run("fire()");
    browser.until("$('headline').textContent === 'All well' && $('trouble').hidden");
}

#[test]
fn a_row_that_cannot_be_read_hides_no_other() {
    let mesh = three();
    let whole = mesh.answer();
    let line = whole.lines().nth(2).expect("a row");
    assert!(line.starts_with(",{\"source\":") && line.contains("\"cpus\":8"), "{line}");
    let broken = whole.replacen(line, &line.replace("\"cpus\":8", "\"cpus\":?"), 1);
    let canary = Canary::serve(&mesh.layers, || Gathering::Whole(broken.into()));
    let browser = opened_with_timers(&canary);
    told(&browser);
    assert_eq!(browser.text("$('headline').textContent"), "Nothing stands out, but 1 agent did not answer");
    assert!(browser.text("describe('node-2', 'node-1')").ends_with("node-2 did not answer (its row cannot be read)"));
    assert!(browser.text("describe('node-1', 'node-2')").contains("0 % lost"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn it_gathers_as_long_as_it_is_looked_at_and_not_paused() {
    let canary = Canary::of(&three());
    let browser = opened_with_timers(&canary);
    let gatherings = || canary.shared.gatherings.load(SeqCst);
    assert_eq!(gatherings(), 1);
    let wait = browser.run("return waits()[0]").as_f64().expect("a time");
    assert!(wait >= 15_000.0, "{wait}");
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(gatherings(), 2);

    browser.run("$('pause').click()");
    assert_eq!(browser.run("return timers.size"), 0, "paused, nothing is planned");
    assert_eq!(browser.text("$('pause').getAttribute('aria-pressed')"), "true");
    browser.run("$('again').click()");
    browser.until("!turns.running");
    assert_eq!((gatherings(), browser.run("return timers.size")), (3, 0.into()), "once, by hand");
    browser.run("$('pause').click()");
    assert_eq!(browser.run("return timers.size"), 1);

    let looked_at = |state: &str| {
        browser.run(&format!(
            "Object.defineProperty(document, 'visibilityState', {{ value: '{state}', configurable: true }});
            document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    looked_at("hidden");
    assert_eq!(browser.run("return timers.size"), 0, "hidden, nothing is planned");
    looked_at("visible");
    assert_eq!(browser.run("return timers.size"), 1);
    // A gathering that took 3 s is followed by ten times that.
    browser.run("const now = performance.now.bind(performance); let more = 0; performance.now = () => now() + (more += 1500); fire()");
    browser.until("!turns.running && timers.size === 1");
    let wait = browser.run("return waits()[0]").as_f64().expect("a time");
    assert!(wait > 30_000.0, "{wait}");
    assert_eq!(browser.console(), [""; 0]);
}
