//! Checks of what pods depend on, as causes: a target, a zone, or single nodes.
//!
//! Nodes and checks are one more layer of evidence. An attempt is good, slow or failed. For each
//! check the fewest causes that explain the bad attempts are named ([`search`]): the target for all
//! nodes, zones, or nodes. What the network already explains is no evidence ([`evidence`]). What is
//! over says so, although the recent windows still show it ([`over`]).
//!
//! Checks go through names of the judge's own list alone. A report can make its own node look bad,
//! and with others the target, and nothing else.

mod describe;
mod evidence;
mod over;
mod search;

use kube_canary_model::check::{CheckFailure, CheckKind};
use kube_canary_model::verdict::Verdict;

use super::agents::Standing;
use crate::matrix::Matrix;
use crate::slices::yield_now;
use evidence::{BadOutcome, Explained, Scope};
use search::{CheckFinding, CheckPart};

/// Adds what checks find to the verdicts over the network, which explain some of it.
///
/// Takes 1 byte per node, and 12 for each node of which one check fails or is slow.
pub async fn add(matrix: &Matrix, standings: &[Standing], verdicts: &mut Vec<Verdict>) {
    if matrix.check_names().is_empty() {
        return;
    }
    let mut explained = Explained::by_network(matrix, verdicts).await;
    let all = 0..u8::try_from(matrix.check_names().len()).unwrap_or(u8::MAX);
    let mut checks: Vec<(u8, CheckKind)> = all.map(|check| (check, evidence::kind(matrix, check))).collect();
    // A name that the DNS does not answer is the fault of the DNS, so its checks come first.
    checks.sort_by_key(|(_, kind)| *kind != CheckKind::Dns);
    for (check, kind) in checks {
        yield_now().await;
        let failing =
            Scope { matrix, standings, explained: &explained, check, kind, outcome: BadOutcome::Failed, since: None };
        let found = search::search(&failing);
        verdicts.extend(describe::verdicts(&failing, &found));
        // A name that does not exist says nothing of other names.
        if kind == CheckKind::Dns && evidence::reason(matrix, check) != Some(CheckFailure::NoSuchName) {
            explained.dns_fails(matrix, check, |node, zone| covers(&found, node, zone));
        }
        if found.iter().any(|finding| finding.part == CheckPart::Target) {
            continue;
        }
        yield_now().await;
        explained.set_failing(matrix, |node, zone| covers(&found, node, zone));
        let slow =
            Scope { matrix, standings, explained: &explained, check, kind, outcome: BadOutcome::Slow, since: None };
        let found = search::search(&slow);
        verdicts.extend(describe::verdicts(&slow, &found));
    }
}

fn covers(found: &[CheckFinding], node: u16, zone: u8) -> bool {
    found.iter().any(|finding| finding.part.covers(node, zone))
}

#[cfg(test)]
mod tests;
