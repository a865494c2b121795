//! A fake DNS server on loopback, UDP and TCP on one port, which gives the answers that the test
//! sets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The answer to a question.
#[derive(Clone, Debug)]
pub enum Say {
    Records(Vec<IpAddr>),
    /// The same over TCP. Over UDP, only that the answer does not fit.
    Truncated(Vec<IpAddr>),
    Code(ResponseCode),
    /// To a question with EDNS, FORMERR in a header alone.
    WithoutEdns(Vec<IpAddr>),
    Nothing,
}

/// A question that was answered: name, type, and whether it came by TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub name: String,
    pub kind: RecordType,
    pub tcp: bool,
}

type Script = Arc<Mutex<BTreeMap<(String, bool), Say>>>;

pub struct NameServer {
    pub address: SocketAddr,
    pub asked: mpsc::UnboundedReceiver<Asked>,
    script: Script,
    /// The tasks, which end with the server.
    _tasks: JoinSet<()>,
}

impl NameServer {
    pub async fn start() -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The port may be in use for TCP. Then another one is tried.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let script = Script::default();
        let (sender, asked) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, script.clone(), sender.clone()));
        tasks.spawn(serve_tcp(tcp, script.clone(), sender));
        Self { address, asked, script, _tasks: tasks }
    }

    /// Sets the answers for `name` from now on. Names without answers do not exist.
    pub fn say(&self, name: &str, a: Say, aaaa: Say) {
        let mut script = self.script.lock().unwrap();
        script.insert((name.into(), false), a);
        script.insert((name.into(), true), aaaa);
    }

    /// Forgets the questions so far.
    pub fn forget(&mut self) {
        while self.asked.try_recv().is_ok() {}
    }
}

async fn serve_udp(socket: UdpSocket, script: Script, asked: mpsc::UnboundedSender<Asked>) {
    let mut buffer = [0; 4_096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        if let Some(answer) = answer(&buffer[..length], false, &script, &asked) {
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, script: Script, asked: mpsc::UnboundedSender<Asked>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        while let Ok(length) = stream.read_u16().await {
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            if let Some(answer) = answer(&question, true, &script, &asked) {
                stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        }
    }
}

fn answer(question: &[u8], tcp: bool, script: &Script, asked: &mpsc::UnboundedSender<Asked>) -> Option<Vec<u8>> {
    let (id, has_edns) = ([question[0], question[1]], question[10..12] != [0, 0]);
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    let name = query.name().to_utf8();
    let kind = query.query_type();
    let say = script.lock().unwrap().get(&(name.clone(), kind == RecordType::AAAA)).cloned();
    let mut reply = Message::response(question.metadata.id, question.metadata.op_code);
    reply.metadata.message_type = MessageType::Response;
    reply.metadata.recursion_desired = question.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.add_query(query.clone());
    let records = match say.unwrap_or(Say::Code(ResponseCode::NXDomain)) {
        Say::WithoutEdns(_) if has_edns => {
            let _ = asked.send(Asked { name, kind, tcp });
            return Some([&id[..], &[0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat());
        }
        Say::Records(records) | Say::WithoutEdns(records) => records,
        Say::Truncated(records) if tcp => records,
        Say::Truncated(_) => {
            reply.metadata.truncation = true;
            Vec::new()
        }
        Say::Code(code) => {
            reply.metadata.response_code = code;
            Vec::new()
        }
        Say::Nothing => {
            let _ = asked.send(Asked { name, kind, tcp });
            return None;
        }
    };
    for address in records {
        let data = match address {
            IpAddr::V4(v4) => RData::A(A(v4)),
            IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
        };
        reply.add_answer(Record::from_rdata(query.name().clone(), 5, data));
    }
    let _ = asked.send(Asked { name, kind, tcp });
    Some(reply.to_vec().unwrap())
}
