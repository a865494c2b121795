//! Times in two bytes: round-trip times, and those of checks.

/// Codes of a time: 1 µs to 100 s in steps of 0.03 %. Code 0 is none.
const TIME_LEAST: f64 = 1e-6;
const TIME_CODES: f64 = 65_534.0;
/// ln(100 s / 1 µs).
const TIME_SPAN: f64 = 18.420_680_743_952_367;

/// Returns the code of a time.
pub(super) fn time_code(seconds: Option<f64>) -> u16 {
    let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) else { return 0 };
    let part = (seconds / TIME_LEAST).ln() / TIME_SPAN;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 1 to 65,535")]
    let code = (1.0 + (part * TIME_CODES).round()).clamp(1.0, 1.0 + TIME_CODES) as u16;
    code
}

/// Returns the time of a code.
pub(super) fn time_seconds(code: u16) -> Option<f64> {
    (code > 0).then(|| TIME_LEAST * (f64::from(code - 1) / TIME_CODES * TIME_SPAN).exp())
}
