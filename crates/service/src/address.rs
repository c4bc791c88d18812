//! Address of a server: a TCP port or a unix socket, written as one word.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::ServiceError;

/// An address: `127.0.0.1:9105`, `[::1]:9105`, `9105` (of the loopback), `unix:/run/numapilot/metrics`, or `/run/numapilot/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port; port 0: any free port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can connect to it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Address, ServiceError> {
        let fail = |what: &str| ServiceError::Address { text: text.to_owned(), what: what.to_owned() };
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text)) {
            // sun_path of struct sockaddr_un has 108 bytes, the last of them 0.
            return match path.len() {
                0 => Err(fail("the path is empty")),
                1..108 => Ok(Address::Unix(PathBuf::from(path))),
                _ => Err(fail("a socket's path has at most 107 bytes")),
            };
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        let text_with_ip = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        text_with_ip
            .as_deref()
            .unwrap_or(text)
            .parse()
            .map(Address::Tcp)
            .map_err(|_| fail("it is neither IP:PORT nor a path"))
    }
}

#[cfg(test)]
mod tests {
    //! Words and what they mean.

    use super::*;

    #[test]
    fn every_form_is_understood_and_written_back() {
        for (text, shown, local) in [
            ("127.0.0.1:9105", "127.0.0.1:9105", true),
            ("[::1]:9105", "[::1]:9105", true),
            ("9105", "127.0.0.1:9105", true),
            ("localhost:0", "127.0.0.1:0", true),
            ("0.0.0.0:9105", "0.0.0.0:9105", false),
            ("10.1.2.3:80", "10.1.2.3:80", false),
            ("unix:/run/x", "unix:/run/x", true),
            ("/run/x", "unix:/run/x", true),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (shown, local), "{text}");
        }
    }

    #[test]
    fn other_words_are_refused_with_the_forms_that_exist() {
        for text in ["", "unix:", "example.org:80", "70000", "127.0.0.1", &format!("/{}", "x".repeat(107))] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("unix:/PATH"), "{error}");
        }
    }
}
