//! Asks the judges what they say.
//!
//! The three that answered last are asked first, and then all others that may judge, the
//! best-ranked first: three at a time, until three have answered. So a dead judge costs its time
//! once, and not at each request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::document::{self, JudgeStatement};
use super::role::JUDGES;
use crate::http::client;
use crate::limits::JUDGE_DOCUMENT_BYTES_MAX;
use crate::peers::Ranked;
use crate::sys::clock;

/// Asks `ranked` members, the best first, until `wanted` judges have answered, or until all were
/// asked. Returns their documents, the best-ranked first. `known` has the names of those that
/// answered last.
pub async fn judges(
    ranked: &[Ranked],
    port: u16,
    answer: Duration,
    wanted: usize,
    known: &mut Vec<Box<str>>,
) -> Vec<JudgeStatement> {
    let is_known = |member: &&Ranked| known.contains(&member.node);
    let order: Vec<&Ranked> =
        ranked.iter().filter(is_known).chain(ranked.iter().filter(|member| !is_known(member))).collect();
    let mut found = some(&order, port, answer, wanted, (document::PATH, document::read)).await;
    let rank = |said: &JudgeStatement| ranked.iter().position(|member| member.node == said.node);
    found.sort_by_key(rank);
    found.truncate(wanted);
    *known = found.iter().map(|said| said.node.clone()).collect();
    found
}

/// Asks all `ranked` members what they keep of the judges, or hold as judges.
pub async fn kept(ranked: &[Ranked], port: u16, answer: Duration) -> Vec<JudgeStatement> {
    let order: Vec<&Ranked> = ranked.iter().collect();
    some(&order, port, answer, usize::MAX, (document::KEPT_PATH, document::read_kept)).await
}

/// A path, and how an answer to it is read.
type JudgeAnswerForm = (&'static str, fn(&str, &[u8], u64) -> Option<JudgeStatement>);

/// Asks members in their order, three at a time, until `wanted` have answered.
async fn some(
    order: &[&Ranked],
    port: u16,
    answer: Duration,
    wanted: usize,
    form: JudgeAnswerForm,
) -> Vec<JudgeStatement> {
    let mut found: Vec<JudgeStatement> = Vec::new();
    for some in order.chunks(JUDGES) {
        let asked: Vec<Asked<'_>> =
            some.iter().map(|member| Box::pin(ask(member, port, answer, form)) as Asked<'_>).collect();
        found.extend(all(asked).await);
        if found.len() >= wanted {
            break;
        }
    }
    found
}

type Asked<'a> = Pin<Box<dyn Future<Output = Option<JudgeStatement>> + 'a>>;

async fn ask(member: &Ranked, port: u16, answer: Duration, (path, read): JudgeAnswerForm) -> Option<JudgeStatement> {
    match client::get(member.server(port), path, JUDGE_DOCUMENT_BYTES_MAX, answer).await {
        Ok(body) => read(&member.node, &body, clock::realtime().as_secs()),
        Err(error) => {
            log::debug!("{} gives no verdicts: {error}", member.node);
            None
        }
    }
}

/// Waits for all of them at once.
async fn all(mut asked: Vec<Asked<'_>>) -> Vec<JudgeStatement> {
    let mut found = Vec::new();
    poll_fn(|cx| {
        asked.retain_mut(|one| match one.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(said) => {
                found.extend(said);
                false
            }
        });
        if asked.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    found
}
