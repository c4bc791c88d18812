//! Packets: a header of one byte (two if extended), then a payload whose length the header gives.

/// What an address packet holds the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AddressKind {
    Instruction,
    BranchTarget,
    DataVirtual,
    DataPhysical,
    PreviousBranchTarget,
    Other(u8),
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CounterKind {
    TotalLatency,
    IssueLatency,
    TranslationLatency,
    Other(u8),
}

/// One packet of an SPE record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Packet {
    /// Padding, or alignment.
    Padding,
    /// The record is complete, without a time.
    End,
    /// The record is complete, at this tick of the generic timer.
    Timestamp(u64),
    /// Event bits of the operation.
    Events(u64),
    /// Where the data came from; the meaning is the core's own.
    DataSource(u64),
    /// A context id register, and which.
    Context { index: u8, id: u32 },
    /// What the operation is: its class, and bits that depend on it.
    Operation { class: u8, bits: u8 },
    /// An address, with its tag and security bits.
    Address { kind: AddressKind, value: u64 },
    /// A count of cycles.
    Counter { kind: CounterKind, cycles: u16 },
    /// Not known: one byte was passed over.
    Unknown(u8),
}

/// Reads packets one after the other. Unknown bytes give [`Packet::Unknown`]; a packet that is cut at the end ends the stream.
#[derive(Clone, Copy, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Packets<'a> {
    /// Reads `bytes`, which begin where a packet begins.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Packets<'a> {
        Packets { bytes, at: 0 }
    }

    /// Number of bytes read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes at the end that are no whole packet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The payload of `size` bytes after a header of `header` bytes, which is then passed.
    fn payload(&mut self, header: usize, size: usize) -> Option<u64> {
        let start = self.at + header;
        let payload = self.bytes.get(start..start + size)?;
        self.at = start + size;
        Some(payload.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn passed(&mut self, bytes: usize, packet: Packet) -> Packet {
        self.at += bytes;
        packet
    }
}

impl Iterator for Packets<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let first = *self.bytes.get(self.at)?;
        // Bits 4 and 5 of these headers are the logarithm of the payload's size.
        let sized = 1 << (first >> 4 & 3);
        match first {
            0x00 => return Some(self.passed(1, Packet::Padding)),
            0x01 => return Some(self.passed(1, Packet::End)),
            0x71 => return self.payload(1, 8).map(Packet::Timestamp),
            _ if first & 0xcf == 0x42 => return self.payload(1, sized).map(Packet::Events),
            _ if first & 0xcf == 0x43 => return self.payload(1, sized).map(Packet::DataSource),
            _ if first & 0xfc == 0x64 => {
                return self.payload(1, 4).map(|id| Packet::Context { index: first & 3, id: id as u32 });
            }
            _ if first & 0xfc == 0x48 => {
                return self.payload(1, 1).map(|bits| Packet::Operation { class: first & 3, bits: bits as u8 });
            }
            _ => {}
        }
        let (header, size, index) = if first & 0xfc == 0x20 {
            let second = *self.bytes.get(self.at + 1)?;
            if second == 0 {
                return self.alignment(first);
            }
            (second, 2, (first & 3) << 3 | second & 7)
        } else {
            (first, 1, first & 7)
        };
        match header & 0xf8 {
            0xb0 => self.payload(size, 8).map(|value| Packet::Address { kind: address_kind(index), value }),
            0x98 => {
                self.payload(size, 2).map(|cycles| Packet::Counter { kind: counter_kind(index), cycles: cycles as u16 })
            }
            _ => Some(self.passed(1, Packet::Unknown(first))),
        }
    }
}

impl Packets<'_> {
    /// An alignment packet: padding up to the next multiple of a power of two.
    fn alignment(&mut self, header: u8) -> Option<Packet> {
        let alignment = 1usize << ((header & 0xf) + 1);
        let next = (self.at + 1).next_multiple_of(alignment);
        if next > self.bytes.len() {
            return None;
        }
        self.at = next;
        Some(Packet::Padding)
    }
}

fn address_kind(index: u8) -> AddressKind {
    match index {
        0 => AddressKind::Instruction,
        1 => AddressKind::BranchTarget,
        2 => AddressKind::DataVirtual,
        3 => AddressKind::DataPhysical,
        4 => AddressKind::PreviousBranchTarget,
        other => AddressKind::Other(other),
    }
}

fn counter_kind(index: u8) -> CounterKind {
    match index {
        0 => CounterKind::TotalLatency,
        1 => CounterKind::IssueLatency,
        2 => CounterKind::TranslationLatency,
        other => CounterKind::Other(other),
    }
}
