//! The settings of `kube-canary doctor`.

use super::UsageError;
use super::canaries::Canaries;
use super::typed::Typed;

/// What it does.
pub const ABOUT: &str = "Which node, link or pair of zones is bad, as the canaries see it.";
/// What stands below the flags.
pub const AFTER: &str = "
Each --url is asked for its whole mesh (/api/v1/mesh): one canary is enough, and several see past each other's blind spots.
Without --url, every canary of the headless Service is asked for what it measures itself. Judged are the last 30 to 60 seconds.

Exit codes: 0 all well; 1 it is not, a canary that was asked does not answer, or a failure; 2 a bad flag.
";

/// An examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorSettings {
    /// Who is asked.
    pub canaries: Canaries,
    /// One object rather than sentences.
    pub json: bool,
}

impl DoctorSettings {
    pub(super) fn resolve(typed: &Typed) -> Result<Self, UsageError> {
        Ok(Self { canaries: Canaries::resolve(typed)?, json: typed.switch("json") })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    #[test]
    fn it_asks_whom_it_is_told_to_ask() {
        let settings = |line: &str| parse(line.split_whitespace().map(Into::into).collect(), &|_| None);
        let Ok(Command::Doctor(urls)) = settings("doctor --url http://a --json") else { panic!() };
        assert!(matches!(&urls.canaries, Canaries::Urls(urls) if urls.len() == 1) && urls.json);
        let Ok(Command::Doctor(service)) = settings("doctor --namespace n") else { panic!() };
        let name = "kube-canary.n.svc".to_owned();
        assert_eq!(service, DoctorSettings { canaries: Canaries::Service { name, port: 9_877 }, json: false });
        assert!(settings("doctor --url a").unwrap_err().0.contains("http://HOST"));
    }
}
