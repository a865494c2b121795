//! The mesh page in a real, headless Chromium, against our own server with made-up meshes.
//!
//! `cargo test --test page`; needs Debian's packages chromium and chromium-driver. No request
//! leaves 127.0.0.1. `KUBE_CANARY_SCREENSHOTS=1` writes docs/images/mesh-*.png.
//!
//! The test controls the page's time ([`CLOCK`]), so no result depends on how fast the browser is.
//!
//! The tests read the page's own names (`view`, `pen`) where only pixels show the truth: a canvas
//! has no other content to query.

mod agent;
mod browser;
#[path = "../common/leaks.rs"]
mod leaks;
mod made_up;
mod picture;

mod contents;
mod judged;
mod large;
mod link;
mod looks;
mod networks;
mod partial;
mod trouble;
mod zones;

use agent::Agent;
use browser::Browser;

/// Begins to open the page. `place(row, column)` is the place of a cell in the window, and
/// `colors(row, column)` are all colours that it is drawn in.
fn opening(agent: &Agent, watched: bool) -> Browser {
    opening_at(agent, "", watched)
}

/// The same with a query, as in a pasted address.
fn opening_at(agent: &Agent, query: &str, watched: bool) -> Browser {
    let browser = Browser::start(watched);
    browser.before_pages(CLOCK);
    browser.before_pages(HELPERS);
    browser.open(&format!("{}{query}", agent.address));
    browser
}

/// Opens the page and waits for its verdict.
fn opened(agent: &Agent, watched: bool) -> Browser {
    let browser = opening(agent, watched);
    wait_until_shown(&browser);
    browser
}

/// Opens the page of a mesh that is drawn only if the address asks for it.
fn opened_with_matrix(agent: &Agent) -> Browser {
    let browser = opening_at(agent, "?matrix=1", false);
    wait_until_shown(&browser);
    browser
}

/// Waits until a collection is shown as complete, and drawn.
fn wait_until_shown(browser: &Browser) {
    browser.until("document.readyState === 'complete' && mesh.at && !turns.running && !view.stale && !view.frame");
}

/// Each call of the page's stopwatch takes 4 ms, and no time passes otherwise. Timers of a second
/// and more wait for the test: without its request, the page neither asks again nor gives up.
const CLOCK: &str = "
    window.watch = { began: Date.now(), passed: 0, look: 4 };
    Date.now = () => watch.began + watch.passed;
    performance.now = () => (watch.passed += watch.look);
    window.timers = new Map();
    const [start, stop] = [setTimeout.bind(window), clearTimeout.bind(window)];
    let held = 0;
    window.setTimeout = (work, time, ...more) => {
        if (time < 1000) return start(work, time, ...more);
        timers.set(--held, { work, time });
        return held;
    };
    window.clearTimeout = (id) => timers.delete(id) || stop(id);
    AbortSignal.timeout = () => new AbortController().signal;
    window.fire = () => {
        const [[id, { work }]] = timers;
        timers.delete(id);
        work();
    };
    window.waits = () => [...timers.values()].map(({ time }) => time);
";

const HELPERS: &str = "
    const middle = (of, i) => of.starts[i] + of.size / 2;
    window.place = (row, column) => {
        const box = canvas.getBoundingClientRect();
        return [box.left + (view.left + middle(view.columns, column)) / d - map.scrollLeft,
            box.top + (view.top + middle(view.rows, row)) / d - map.scrollTop];
    };
    // From a copy: a canvas that is read from is drawn in another way.
    window.pixels = (x, y, width, height) => {
        const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, x, y, width, height, 0, 0, width, height);
        return copy.getImageData(0, 0, width, height).data;
    };
    window.hex = (image, at = 0) => '#' + [0, 1, 2].map((i) => image[at + i].toString(16).padStart(2, '0')).join('');
    window.colors = (row, column) => {
        const { rows, columns } = view;
        const image = pixels(view.left + columns.starts[column] - map.scrollLeft * d,
            view.top + rows.starts[row] - map.scrollTop * d, columns.size - 1, rows.size - 1);
        const found = new Set();
        for (let i = 0; i < image.length; i += 4) {
            found.add(hex(image, i));
        }
        return [...found];
    };
    // For each link on a map that is seen whole: its corner's colour, and the tone that what was
    // measured asks for.
    window.eachCell = (work) => {
        const { rows, columns } = view, all = pixels(0, 0, canvas.width, canvas.height);
        rows.nodes.forEach((source, i) => columns.nodes.forEach((peer, j) => {
            const at = 4 * (canvas.width * (view.top + rows.starts[i] + 1) + view.left + columns.starts[j] + 1);
            const cell = find(source.name, peer.name);
            const part = cell && cell.recent.lost / (cell.recent.lost + cell.recent.received);
            const step = [0, .02, .05, .15, .5, 1].findIndex((bound) => part <= bound);
            work(source, peer, hex(all, at), source === peer ? 'self' : cell ? 'loss' + step : null);
        }));
    };
    window.losses = () => [0, 1, 2, 3, 4, 5].map((i) => tone('loss' + i));
    window.tone = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name);
    window.rowOf = (name) => view.rows.nodes.findIndex((node) => node.name === name);
    window.columnOf = (name) => view.columns.nodes.findIndex((node) => node.name === name);
";
