//! Screenshots for the documentation.

use std::path::Path;

use crate::browser::Browser;

/// The largest size of a picture of the documentation.
const BYTES_MAX: usize = 150 * 1_024;

/// Writes docs/images/`name`.png, if the environment requests it.
pub fn take(browser: &Browser, name: &str) {
    if std::env::var_os("KUBE_CANARY_SCREENSHOTS").is_none() {
        return;
    }
    let image = decoded(&browser.screenshot());
    assert!(image.starts_with(b"\x89PNG") && image.len() <= BYTES_MAX, "{name}: {} bytes", image.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{name}.png")), image).expect("a file");
}

/// The map of a mesh of 300, its cursor on the row of node-100 and the column of node-007, in light
/// and in dark: docs/images/`name`-SCHEME.png.
pub fn take_map(browser: &Browser, name: &str) {
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.run(
            "$('matrix').scrollIntoView(); moveTo(rowOf('node-100'), columnOf('node-007')); map.focus(); redraw()",
        );
        browser.until("!view.stale && !view.frame");
        take(browser, &format!("{name}-{scheme}"));
    }
}

/// Base64 (RFC 4648), with its padding.
fn decoded(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let six = ALPHABET.iter().position(|known| *known == letter).expect("base64");
        bits = bits << 6 | u32::try_from(six).expect("six bits");
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    bytes
}
