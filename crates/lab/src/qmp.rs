//! QEMU's monitor protocol, as much as snapshots and a clean end need (`docs/interop/qmp-spec.rst` of QEMU): one JSON object a line.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::error::LabError;

/// A connection to one QEMU.
#[derive(Debug)]
pub(crate) struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Monitor {
    /// Greets QEMU at the other end of `stream`; each later answer may take `timeout`.
    pub(crate) fn new(stream: UnixStream, timeout: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    /// Waits for the greeting and leaves negotiation.
    pub(crate) fn start(&mut self) -> Result<(), LabError> {
        while self.line()?.get("QMP").is_none() {}
        self.execute("qmp_capabilities", json!({})).map(drop)
    }

    /// Runs a command; its answer. Events in between are dropped.
    pub(crate) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, LabError> {
        let text = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.writer.write_all(text.as_bytes()).map_err(|e| failed(command, &e))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(LabError::Monitor(format!("{command}: {error}")));
            }
        }
    }

    fn line(&mut self) -> Result<Value, LabError> {
        let mut text = String::new();
        match self.reader.read_line(&mut text) {
            Ok(0) => Err(LabError::Monitor("QEMU has closed the connection".into())),
            Ok(_) => serde_json::from_str(&text).map_err(|e| LabError::Monitor(format!("{e} in {text:?}"))),
            Err(e) => Err(failed("reading", &e)),
        }
    }
}

fn failed(what: &str, error: &io::Error) -> LabError {
    LabError::Monitor(format!("{what}: {error}"))
}
