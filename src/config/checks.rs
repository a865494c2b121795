//! The checks of `run`: `--check`, `--checks-file`, `--check-ca` and `--check-rate`.

use std::path::PathBuf;
use std::sync::Arc;

use super::UsageError;
use super::run::number_between;
use super::typed::Typed;
use crate::checks::{AuthoritiesFile, ChecksConfig};
use crate::discovery::DiscoverySource;
use crate::limits::{CHECK_RATE_DEFAULT, CHECK_RATE_MAX};
use crate::peers::{Method, Methods};

/// What `--check` takes to turn the default checks off.
const NONE: &str = "none";

/// Resolves the checks. The file is read once, so that a bad one stops the start.
pub(super) fn resolve(typed: &Typed, source: &DiscoverySource, probes: Methods) -> Result<ChecksConfig, UsageError> {
    let usage = |error: &dyn std::fmt::Display| UsageError(error.to_string());
    // A URL may contain a comma, and no check contains white space.
    let given = typed.texts("check").flat_map(|(flag, text)| text.split_whitespace().map(move |check| (flag, check)));
    let (none, checks): (Vec<_>, Vec<_>) = given.partition(|(_, check)| *check == NONE);
    let defaults = none.is_empty();
    let config = ChecksConfig {
        specs: ChecksConfig::read_flags(checks, defaults).map_err(|error| usage(&error))?,
        file: typed.text("checks-file").map(PathBuf::from),
        defaults,
        by_udp: probes.has(Method::Udp),
        authorities: authorities_file(typed)?,
        rate: typed.value("check-rate", number_between(1, CHECK_RATE_MAX))?.unwrap_or(CHECK_RATE_DEFAULT).into(),
    };
    config.load(source).map_err(|error| usage(&error))?;
    Ok(config)
}

/// Resolves `--check-ca`. The file is read once, so that a bad one stops the start.
pub(super) fn authorities_file(typed: &Typed) -> Result<Option<Arc<AuthoritiesFile>>, UsageError> {
    let Some(path) = typed.text("check-ca") else { return Ok(None) };
    let file = AuthoritiesFile::open(path.into()).map_err(|error| UsageError(format!("--check-ca {error}")))?;
    Ok(Some(Arc::new(file)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Command, Env, parse};
    use super::*;
    use crate::checks::CheckSpec;

    fn checks(arguments: &[&str], env: Env<'_>) -> Result<ChecksConfig, UsageError> {
        let peer = ["--peer", "a=127.0.0.2"];
        let line: Vec<_> = peer.iter().chain(arguments).map(Into::into).collect();
        match parse(&line, env)? {
            Command::Run(settings) => Ok(settings.checks),
            other => panic!("{other:?}"),
        }
    }

    fn names(config: &ChecksConfig) -> Vec<&str> {
        config.specs.iter().map(|CheckSpec { name, .. }| &**name).collect()
    }

    #[test]
    fn checks_are_given_one_by_one_or_separated_by_spaces() {
        let config = checks(&["--check", "a=tcp:h:1", "--check", "b=tcp:h:2 https://c/?x=1,2"], &|_| None).unwrap();
        assert_eq!((names(&config), config.defaults, config.rate), (vec!["a", "b", "c"], true, 50.0));
        let env = |name: &str| (name == "KUBE_CANARY_CHECK").then(|| "none  dns=icmp:h\n".to_owned());
        let config = checks(&["--check-rate", "7"], &env).unwrap();
        assert_eq!((names(&config), config.defaults, config.rate), (vec!["dns"], false, 7.0));
    }

    #[test]
    fn none_turns_the_defaults_off_beside_others() {
        assert!(!checks(&["--check", "none"], &|_| None).unwrap().defaults);
        let config = checks(&["--check", "service=tcp:h:1", "--check", "none"], &|_| None).unwrap();
        assert_eq!((names(&config), config.defaults), (vec!["service"], false));
    }

    #[test]
    fn bad_checks_stop_the_start() {
        let folder = std::env::temp_dir().join(format!("kube-canary-config-checks-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("checks").to_string_lossy().into_owned();
        fs::write(&file, "# two checks\na=tcp:h:1\nb=https://user:secret@h/\n").unwrap();
        let line = format!("--checks-file {file}:3: bad check \"b=https:…\": ");
        for (arguments, parts) in [
            (["--check", "sctp:h:1"], ["--check: bad check \"sctp:h:1\"", "accepted: [NAME=]dns:NAME"]),
            (["--check", "a=tcp:h:1 a=tcp:h:2"], ["two checks have the NAME \"a\"", "accepted: a NAME="]),
            (["--check", "dns=tcp:h:1"], ["\"dns\" is that of a default check", "--check none"]),
            (["--checks-file", &file], [&line, "accepted: https://HOST[:PORT]/PATH"]),
            (["--checks-file", "/nonexistent/checks"], ["--checks-file /nonexistent/checks", "accepted: a text file"]),
            (["--check-ca", "/nonexistent/ca"], ["--check-ca /nonexistent/ca", "certificates in PEM"]),
            (["--check-ca", &file], ["no certificate in it", "certificates in PEM"]),
            (["--check-rate", "0"], ["--check-rate \"0\"", "from 1 to 1000"]),
            (["--check-rate", "1.5"], ["--check-rate \"1.5\"", "from 1 to 1000"]),
        ] {
            let error = checks(&arguments, &|_| None).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
            assert!(error.lines().count() == 1 && !error.contains("secret"), "{error}");
        }
        let many: Vec<String> = (0..=32).map(|n| format!("c{n}=tcp:h:1")).collect();
        assert!(checks(&["--check", &many.join(" ")], &|_| None).unwrap_err().0.contains("at most 32"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
