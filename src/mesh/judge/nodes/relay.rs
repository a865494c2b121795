//! Passes on what a judge keeps of all nodes, to readers of an agent that is none.
//!
//! An agent asks for one document at a time, and at most once in a second, however many readers it
//! has. It holds a frame of the document, not the whole. The bytes come from another pod: they are
//! bounded in number and time, and can make only this answer wrong.

use std::time::Duration;

use hyper::body::Incoming;
use tokio::time::timeout;

use super::PATH;
use crate::http::Reply;
use crate::http::client::{self, HttpConnection};
use crate::limits::NODES_DOCUMENT_BYTES_MAX;
use crate::mesh::Times;
use crate::mesh::frame_writer::{FrameWriter, WrittenBody};
use crate::mesh::turns::{ReaderTurn, ReaderTurns};
use crate::peers::Ranked;

/// Least time from one document to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// Readers that wait for the document before theirs.
pub const WAITERS_MAX: usize = 4;
/// Bytes that are written at a time.
const PART_BYTES: usize = 1_024;

/// Answers with the document of the first of these judges that gives one. `port` is that of members
/// whose port discovery does not give.
pub async fn reply(turns: &ReaderTurns, judges: &[&Ranked], port: u16, times: Times) -> Reply {
    let Some(turn) = turns.turn(times.wait, PAUSE).await else {
        return Reply::text(503, "another reader is being answered; try again\n");
    };
    for judge in judges {
        match timeout(times.row, client::open(judge.server(port), PATH, None)).await {
            Ok(Ok((link, response))) => return passed_on((link, response.into_body()), turn, times),
            Ok(Err(error)) => log::debug!("{} gives no nodes: {error}", judge.node),
            Err(_) => log::debug!("{} gives no nodes within {:?}", judge.node, times.row),
        }
    }
    Reply::text(503, "no judge answers, and only judges keep figures of all nodes\n")
}

fn passed_on((mut link, mut body): (HttpConnection, Incoming), turn: ReaderTurn, times: Times) -> Reply {
    let out = FrameWriter::default();
    let frames = out.clone();
    let writer = async move {
        let copied = async {
            let mut left = NODES_DOCUMENT_BYTES_MAX;
            while let Some(Ok(frame)) = link.frame(&mut body).await {
                let Ok(data) = frame.into_data() else { continue };
                let Some(rest) = left.checked_sub(data.len()) else { break };
                left = rest;
                for part in data.chunks(PART_BYTES) {
                    out.write(&[part]).await;
                }
            }
        };
        // A document that breaks off is no JSON, so its reader sees it.
        let _ = timeout(times.whole_row + times.reader, copied).await;
        drop(turn);
    };
    Reply::Live { content_type: "application/json", body: Box::new(WrittenBody::new(frames, writer, times.reader)) }
}
