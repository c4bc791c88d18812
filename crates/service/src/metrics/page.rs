//! The page that Prometheus reads: an HTTP server that answers `GET` and `HEAD` of `/metrics`, and closes every connection after one answer.
//!
//! It has no encryption and asks for no password. So it listens on the loopback or a unix socket unless configured otherwise, and shows nothing that would
//! reveal one user's programs to another.

use std::io::Read;
use std::io::Write;

use super::MetricFamily;
use super::encode;
use crate::address::Address;
use crate::connection::Connection;
use crate::error::ServiceError;
use crate::server::ConnectionCounts;
use crate::server::Limits;
use crate::server::Server;

/// Maximum size of a request's head in bytes.
const HEAD_BYTES: usize = 8 << 10;

/// A page that serves metrics; dropping it stops the server.
#[derive(Debug)]
pub struct MetricsPage {
    server: Server,
}

impl MetricsPage {
    /// Serves the result of `families`, which is called for each request from the page's own threads. `allow_remote`: whether other machines may read it. A
    /// unix socket may be read by all users (mode 0666).
    ///
    /// # Errors
    /// The address is in use or may not be used, or other machines can reach it and `allow_remote` is false.
    pub fn start(
        address: &Address,
        allow_remote: bool,
        families: impl Fn() -> Vec<MetricFamily> + Send + Sync + 'static,
    ) -> Result<MetricsPage, ServiceError> {
        if !address.is_local() && !allow_remote {
            return Err(ServiceError::NotLocal { address: address.to_string() });
        }
        let limits = Limits { connections: 16, ..Limits::default() };
        let server = Server::start(address, 0o666, limits, move |connection| answer(connection, &families))?;
        Ok(MetricsPage { server })
    }

    /// Address of the page.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Number of connections.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.server.connection_counts()
    }
}

fn answer(connection: &mut Connection, families: &dyn Fn() -> Vec<MetricFamily>) {
    let Ok(head) = read_head(connection) else { return };
    connection.has_asked();
    let (status, kind, body) = match head.as_deref().map(request) {
        None => ("431 Request Header Fields Too Large", PLAIN, "the request is too long\n".to_owned()),
        Some(None) => ("400 Bad Request", PLAIN, "this is not HTTP/1\n".to_owned()),
        Some(Some(("GET" | "HEAD", "/metrics"))) => ("200 OK", EXPOSITION, encode(&families())),
        Some(Some(("GET" | "HEAD", "/"))) => ("200 OK", PLAIN, "numapilot: the metrics are at /metrics\n".to_owned()),
        Some(Some(("GET" | "HEAD", _))) => ("404 Not Found", PLAIN, "there is only /metrics\n".to_owned()),
        Some(Some(_)) => ("405 Method Not Allowed", PLAIN, "only GET and HEAD\n".to_owned()),
    };
    let is_head = head.is_some_and(|head| head.starts_with(b"HEAD "));
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let start = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    // A client that has disconnected needs no answer.
    let _ = connection.write_all(start.as_bytes());
    if !is_head {
        let _ = connection.write_all(body.as_bytes());
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads up to the empty line; `None`: the head is too long.
fn read_head(connection: &mut impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let bytes = connection.read(&mut piece)?;
        head.extend_from_slice(&piece[..bytes]);
        let ends = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
        if bytes == 0 || ends(b"\r\n\r\n") || ends(b"\n\n") {
            return Ok(Some(head));
        }
        if head.len() > HEAD_BYTES {
            return Ok(None);
        }
    }
}

/// Method and path (without a query) of the first line; `None`: it is not an HTTP request.
fn request(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_request = version.starts_with("HTTP/1.") && words.next().is_none() && target.starts_with('/');
    is_request.then(|| (method, target.split('?').next().unwrap_or(target)))
}

#[cfg(test)]
mod tests {
    //! A real page, read by clients that behave and others.

    use std::net::SocketAddr;
    use std::net::TcpStream;
    use std::time::Duration;
    use std::time::Instant;

    use super::*;

    fn page() -> (MetricsPage, SocketAddr) {
        let families = || vec![MetricFamily::gauge("one", "One").value(1.0)];
        let page = MetricsPage::start(&"127.0.0.1:0".parse().unwrap(), false, families).unwrap();
        let Address::Tcp(at) = *page.address() else { panic!("TCP") };
        (page, at)
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn each_request_has_its_answer() {
        let (page, at) = page();
        let metrics = ask(at, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("version=0.0.4"), "{metrics}");
        assert!(metrics.ends_with("\r\n\r\n# HELP one One\n# TYPE one gauge\none 1\n"), "{metrics}");
        let head = ask(at, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 38\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            (&b"GET / HTTP/1.0\r\n\r\n"[..], "200"),
            (b"GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x02\x00\n\n", "400"),
            (b"GET metrics HTTP/1.1\r\n\r\n", "400"),
            (&[b'x'; 12_000], "431"),
        ] {
            let answer = ask(at, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        }
        assert_eq!(page.connection_counts().accepted, 8);
    }

    #[test]
    fn readers_that_send_nothing_or_go_do_not_keep_others_waiting() {
        let (page, at) = page();
        let silent: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(at).unwrap()).collect();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(at).unwrap();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        }
        let start = Instant::now();
        while !ask(at, b"GET /metrics HTTP/1.1\r\n\r\n").contains("one 1") {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", page.connection_counts());
        }
        drop(silent);
    }

    /// Whoever reached the port kept all others out, by some connections that sent nothing.
    #[test]
    fn readers_that_send_nothing_make_room_for_one_that_asks() {
        let (page, at) = page();
        let silent: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(at).unwrap()).collect();
        let start = Instant::now();
        while page.connection_counts().accepted < 16 {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", page.connection_counts());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(ask(at, b"GET /metrics HTTP/1.1\r\n\r\n").contains("one 1"), "{:?}", page.connection_counts());
        drop(silent);
    }

    #[test]
    fn other_machines_read_only_with_leave() {
        let error = MetricsPage::start(&"0.0.0.0:0".parse().unwrap(), false, Vec::new).unwrap_err().to_string();
        assert!(error.contains("other machines"), "{error}");
        MetricsPage::start(&"0.0.0.0:0".parse().unwrap(), true, Vec::new).unwrap();
    }
}
