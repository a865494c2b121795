//! The page in light and dark, sharp, narrow, and legible to colour-blind readers.

use kube_canary::sys::clock;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::made_up::{Link, Mesh, losing, well};
use crate::{opened, picture};

fn three() -> Mesh {
    let mut mesh = Mesh::new(3, |source, peer, _| {
        let link = well(source, peer, 3);
        Some(if peer == 1 { Link { lost: 6, received: 52, ..link } } else { link })
    });
    mesh.verdicts.push(losing("node-2", 2));
    mesh.verdicts.push(
        json!({"kind": "agent_starved", "subject": "node-2", "direction": "both", "network": "pod", "severity": "warning",
        "since_unix_seconds": clock::realtime().as_secs() - 4_000,
        "evidence": "its agent lags, and what it measured is discounted: it sends 120 ms late (99th percentile)"}),
    );
    mesh.starved = vec![1];
    mesh
}

/// The relative luminance of a colour, 0 to 1 (WCAG 2).
fn luminance(hex: &str) -> f64 {
    let channel = |from: usize| {
        let value = f64::from(u8::from_str_radix(&hex[from..from + 2], 16).expect("a colour")) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(a: f64, b: f64) -> f64 {
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn light_and_dark_are_both_legible() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    browser.resize(1280, 800, 1.0);
    let mut backs = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.until("!view.stale && !view.frame && colors(0, 1).includes(tone('loss3'))");
        let of = |name: &str| luminance(&browser.text(&format!("tone('{name}')")));
        let back = of("back");
        backs.push(back);
        for name in ["text", "dim", "bad", "good", "mark"] {
            assert!(contrast(of(name), back) >= 4.5, "{scheme}: {name} on the page: {}", contrast(of(name), back));
        }
        for (scale, steps) in [("loss", 1..=5), ("rtt", 0..=7)] {
            let steps: Vec<f64> = steps.map(|i| of(&format!("{scale}{i}"))).collect();
            let away = |pair: &[f64]| if back > 0.5 { pair[0] / pair[1] } else { pair[1] / pair[0] };
            assert!(steps.windows(2).all(|pair| away(pair) > 1.15), "{scheme}: {scale} by lightness alone: {steps:?}");
        }
        assert!(
            contrast(of("loss0"), of("loss1")) > 1.2,
            "{scheme}: none and any: {}",
            contrast(of("loss0"), of("loss1"))
        );
        picture::take(&browser, &format!("mesh-3-{scheme}"));
    }
    assert!(backs[0] > 0.8 && backs[1] < 0.1, "{backs:?}");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_narrow_phone_shows_it_sharp_and_within_its_width() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    browser.resize(360, 640, 3.0);
    browser.until("devicePixelRatio === 3 && !view.stale && !view.frame && canvas.width === map.clientWidth * 3");
    let wide = browser.run("return document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(360), "{wide}");
    // An edge of a cell is an edge of a pixel, so there are only three colours: the cell's, its
    // figure's and the background's.
    assert_eq!(
        browser.run(
            "const data = pixels(view.left + view.columns.starts[1], view.top + view.rows.starts[0], 1, 1);
        return hex(data) === tone('loss3')"
        ),
        true
    );
    browser.run("map.scrollIntoView()");
    browser.click("place(0, 1)");
    browser.until("$('link').open && document.querySelectorAll('#link-hour svg').length === 2");
    let boxed: Value =
        browser.run("const { left, right } = $('link').getBoundingClientRect(); return left >= 0 && right <= 360");
    assert_eq!(boxed, true);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn the_picture_is_also_described_in_words() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    let attribute = |id: &str, name: &str| browser.text(&format!("$('{id}').getAttribute('{name}')"));
    assert_eq!(attribute("headline", "aria-live"), "polite");
    assert_eq!(attribute("trouble", "role"), "alert");
    assert_eq!((attribute("map", "role"), attribute("map", "aria-describedby")), ("application".into(), "keys".into()));
    assert_eq!(
        browser.run(
            "return [...document.querySelectorAll('button')].filter((b) => !(b.textContent || b.ariaLabel || b.title)).length"
        ),
        0
    );
    assert_eq!(browser.run("return [...document.querySelectorAll('[id]')].length - new Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size"), 0);
    // The page moves nothing by itself, so there is nothing to reduce for a reader's preference of
    // less motion.
    assert_eq!(browser.run("return document.getAnimations().length"), 0);
    assert_eq!(browser.console(), [""; 0]);
}
