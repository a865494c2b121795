//! An HTTP client that keeps bodies as received: compressed, or binary.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::until::PATIENCE;

/// A response, with its body as received.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The status line and the headers, their names in lower case.
    head: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value. Values of several headers of one name are joined by a comma.
    pub fn header(&self, name: &str) -> Option<String> {
        let values = self.head.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned));
        values.reduce(|all, value| format!("{all}, {value}"))
    }
}

/// Sends a GET of /metrics, on a connection of its own. `headers` are whole lines, of any bytes.
///
/// # Errors
/// Any failure before the whole answer is read.
pub fn scrape(address: SocketAddr, headers: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    stream.write_all(&[head, headers, b"\r\n"].concat())?;
    receive(&mut BufReader::new(stream))
}

fn receive(from: &mut impl BufRead) -> io::Result<Answer> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let lower = |(name, value): (&str, &str)| format!("{}:{value}", name.to_ascii_lowercase());
        head.push(line.split_once(':').map_or_else(|| line.to_owned(), lower));
    }
    let status = head.first().and_then(|line| line.get(9..12)?.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let mut answer = Answer { status, head, body: Vec::new() };
    if answer.header("transfer-encoding").as_deref() == Some("chunked") {
        while let size @ 1.. = chunk(from)? {
            from.by_ref().take(size).read_to_end(&mut answer.body)?;
            from.read_exact(&mut [0; 2])?;
        }
        from.read_exact(&mut [0; 2])?;
    } else if let Some(length) = answer.header("content-length") {
        let length = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
        from.by_ref().take(length).read_to_end(&mut answer.body)?;
        if answer.body.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    } else {
        from.read_to_end(&mut answer.body)?;
    }
    Ok(answer)
}

/// Reads the size of the next chunk.
fn chunk(from: &mut impl BufRead) -> io::Result<u64> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    u64::from_str_radix(line.trim(), 16).map_err(|_| io::ErrorKind::InvalidData.into())
}
